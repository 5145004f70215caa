/* The queues with waiting tasks are in a ring. A thread takes one task of the first queue that has
 * credit, and moves that queue to the end. The time of a task is known only after it has run, so
 * credit may be overdrawn. A queue without credit gets a quantum at each visit and is passed over
 * until it has paid. So a principal with short reads is served before one with long reads. A queue
 * that is empty keeps its debt until time has paid it. Otherwise a principal that sends one long
 * read at a time would never pay. */
#include "store/store_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/metrics.h"

#define QUANTUM_NS INT64_C(2000000)
/* No queue is passed over for longer than this many rounds. */
#define DEBT_ROUNDS_MAX 64

struct store_queue {
    /* In pool.ready, while a task waits and a thread may take it. In pool.debtors, while it is
     * empty and has a debt. */
    struct list_node node;
    struct list tasks; /* that wait */
    int64_t credit_ns;
    uint64_t emptied_ns; /* of a debtor */
    size_t waiting_count;
    size_t running_count;
    struct slice key;
    char text[];
};

struct pool_thread {
    pthread_t handle;
    struct store_pool *pool;
    struct store_session *session;
};

struct store_pool {
    struct store_pool_options options;
    pthread_mutex_t lock; /* of the members up to the threads */
    pthread_cond_t posted;
    struct map queues; /* by key; a queue lives while a task of it waits or runs, or with a debt */
    struct list ready;
    struct list debtors; /* the one that was emptied first is the first */
    size_t debtor_count;
    size_t waiting_count;
    size_t running_count;
    bool is_stopping;
    size_t count;
    struct pool_thread threads[STORE_POOL_THREADS_MAX];
};

/* ---- queues, under the lock ---- */

static void debtor_remove(struct store_pool *pool, struct store_queue *queue) {
    list_remove(&queue->node);
    pool->debtor_count--;
}

static void queue_free(struct store_pool *pool, struct store_queue *queue) {
    (void)map_remove(&pool->queues, queue->key);
    free(queue);
}

/* The queue is empty. The debts of many principals are not kept: the oldest is forgotten. */
static void queue_emptied(struct store_pool *pool, struct store_queue *queue) {
    if (queue->credit_ns > 0) {
        queue_free(pool, queue);
        return;
    }
    if (pool->debtor_count == STORE_POOL_DEBTORS_MAX) {
        struct store_queue *oldest =
            container_of(list_first(&pool->debtors), struct store_queue, node);
        debtor_remove(pool, oldest);
        queue_free(pool, oldest);
    }
    queue->emptied_ns = clock_now().mono_ns;
    list_push_back(&pool->debtors, &queue->node);
    pool->debtor_count++;
}

static struct store_queue *queue_find(struct store_pool *pool, struct slice key) {
    struct store_queue *queue = map_find(&pool->queues, key);
    if (queue && queue->waiting_count + queue->running_count == 0) {
        /* Time pays the debt of an empty queue. */
        uint64_t paid_ns = clock_now().mono_ns - queue->emptied_ns;
        debtor_remove(pool, queue);
        if (paid_ns >= (uint64_t)(QUANTUM_NS - queue->credit_ns))
            queue->credit_ns = QUANTUM_NS;
        else
            queue->credit_ns += (int64_t)paid_ns;
    }
    if (queue)
        return queue;
    queue = calloc(1, sizeof(*queue) + key.size);
    if (!queue)
        return NULL;
    if (key.size > 0)
        memcpy(queue->text, key.data, key.size);
    queue->key = (struct slice){queue->text, key.size};
    queue->credit_ns = QUANTUM_NS;
    list_init(&queue->tasks);
    if (map_insert(&pool->queues, queue->key, queue) != STATUS_OK) {
        free(queue);
        return NULL;
    }
    return queue;
}

/* After a change of its tasks: whether a thread may take one. */
static void queue_update(struct store_pool *pool, struct store_queue *queue) {
    size_t running_max = pool->options.thread_count > 1 ? pool->options.thread_count - 1 : 1;
    bool is_ready = queue->waiting_count > 0 && queue->running_count < running_max;
    bool was_ready = list_node_is_linked(&queue->node);
    if (is_ready && !was_ready)
        list_push_back(&pool->ready, &queue->node);
    else if (!is_ready && was_ready)
        list_remove(&queue->node);
    if (queue->waiting_count == 0 && queue->running_count == 0)
        queue_emptied(pool, queue);
}

static struct store_queue *next_queue(struct store_pool *pool) {
    struct list_node *node;
    while ((node = list_pop_front(&pool->ready))) {
        struct store_queue *queue = container_of(node, struct store_queue, node);
        if (queue->credit_ns > 0)
            return queue;
        queue->credit_ns += QUANTUM_NS;
        list_push_back(&pool->ready, node);
    }
    return NULL;
}

static void enqueue(struct store_pool *pool, struct store_queue *queue, struct store_task *task) {
    list_push_back(&queue->tasks, &task->node);
    queue->waiting_count++;
    pool->waiting_count++;
}

/* ---- threads ---- */

static void *thread_main(void *user) {
    struct pool_thread *thread = user;
    struct store_pool *pool = thread->pool;
    const int64_t debt_max_ns = QUANTUM_NS * DEBT_ROUNDS_MAX;
    pthread_mutex_lock(&pool->lock);
    while (!pool->is_stopping || pool->waiting_count > 0) {
        struct store_queue *queue = next_queue(pool);
        if (!queue) {
            pthread_cond_wait(&pool->posted, &pool->lock);
            continue;
        }
        struct store_task *task =
            container_of(list_pop_front(&queue->tasks), struct store_task, node);
        queue->waiting_count--;
        queue->running_count++;
        pool->waiting_count--;
        pool->running_count++;
        assert(queue->running_count > 0); /* the queue stays while its task runs */
        queue_update(pool, queue);
        pthread_mutex_unlock(&pool->lock);
        uint64_t started_ns = clock_now().mono_ns;
        store_session_cancel_by(thread->session, &task->is_cancelled);
        /* The memory of a task without further slices may be gone afterwards. */
        bool has_more = task->run(task, thread->session);
        store_session_cancel_by(thread->session, NULL);
        uint64_t took_ns = clock_now().mono_ns - started_ns;
        metrics_observe(METRIC_STORE_READ_DURATION_SECONDS, METRIC_PLAIN, took_ns, 1);
        metrics_add(METRIC_STORE_READS, METRIC_PLAIN, 1);
        pthread_mutex_lock(&pool->lock);
        queue->credit_ns -= took_ns < (uint64_t)debt_max_ns ? (int64_t)took_ns : debt_max_ns;
        if (queue->credit_ns < -debt_max_ns)
            queue->credit_ns = -debt_max_ns;
        queue->running_count--;
        pool->running_count--;
        if (has_more)
            enqueue(pool, queue, task);
        queue_update(pool, queue);
    }
    /* A thread sleeps while the last tasks of a queue run on the others. */
    pthread_cond_broadcast(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

enum status store_pool_start(struct store_pool **started, struct store *store,
                             const struct store_pool_options *options) {
    assert(options->thread_count >= 1 && options->thread_count <= STORE_POOL_THREADS_MAX);
    assert(options->principal_tasks_max >= 1);
    struct store_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return STATUS_OUT_OF_MEMORY;
    pool->options = *options;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->posted, NULL);
    map_init(&pool->queues, MAP_COUNT_MAX);
    list_init(&pool->ready);
    list_init(&pool->debtors);
    while (pool->count < options->thread_count) {
        struct pool_thread *thread = &pool->threads[pool->count];
        thread->pool = pool;
        enum status status = store_session_open(store, STORE_READ, &thread->session);
        if (status == STATUS_OK &&
            pthread_create(&thread->handle, NULL, thread_main, thread) != 0) {
            store_session_close(thread->session);
            status = STATUS_SYSTEM_ERROR;
        }
        if (status != STATUS_OK) {
            store_pool_stop(pool);
            return status;
        }
        pool->count++;
    }
    *started = pool;
    return STATUS_OK;
}

/* ---- tasks ---- */

static enum status add_task(struct store_pool *pool, struct store_task *task,
                            const struct store_client *client) {
    if (pool->is_stopping)
        return STATUS_SHUTTING_DOWN;
    if (pool->waiting_count >= pool->options.tasks_max)
        return STATUS_LIMIT_REACHED;
    struct store_queue *queue = queue_find(pool, client->key);
    if (!queue)
        return STATUS_OUT_OF_MEMORY;
    if (client->is_bounded && queue->waiting_count >= pool->options.principal_tasks_max)
        return STATUS_RATE_LIMITED;
    task->queue = queue;
    enqueue(pool, queue, task);
    queue_update(pool, queue);
    return STATUS_OK;
}

enum status store_pool_post(struct store_pool *pool, struct store_task *task,
                            const struct store_client *client) {
    task->node = (struct list_node){0};
    atomic_init(&task->is_cancelled, false);
    pthread_mutex_lock(&pool->lock);
    enum status status = add_task(pool, task, client);
    if (status == STATUS_OK)
        pthread_cond_signal(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
    if (status == STATUS_RATE_LIMITED)
        metrics_add(METRIC_STORE_READS_REFUSED, METRIC_PLAIN, 1);
    return status;
}

bool store_pool_cancel(struct store_pool *pool, struct store_task *task) {
    pthread_mutex_lock(&pool->lock);
    bool is_waiting = list_node_is_linked(&task->node);
    if (is_waiting) {
        list_remove(&task->node);
        task->queue->waiting_count--;
        pool->waiting_count--;
        queue_update(pool, task->queue);
    }
    pthread_mutex_unlock(&pool->lock);
    atomic_store_explicit(&task->is_cancelled, true, memory_order_relaxed);
    metrics_add(METRIC_STORE_READS_CANCELLED, METRIC_PLAIN, 1);
    return is_waiting;
}

uint64_t store_pool_rows_read(const struct store_pool *pool) {
    uint64_t rows_read = 0;
    for (size_t i = 0; i < pool->count; i++)
        rows_read += store_session_rows_read(pool->threads[i].session);
    return rows_read;
}

size_t store_pool_waiting(struct store_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    size_t count = pool->waiting_count + pool->running_count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

void store_pool_stop(struct store_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_stopping = true;
    pthread_cond_broadcast(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < pool->count; i++) {
        pthread_join(pool->threads[i].handle, NULL);
        store_session_close(pool->threads[i].session);
    }
    while (pool->debtor_count > 0) {
        struct store_queue *queue =
            container_of(list_first(&pool->debtors), struct store_queue, node);
        debtor_remove(pool, queue);
        queue_free(pool, queue);
    }
    map_release(&pool->queues);
    pthread_cond_destroy(&pool->posted);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
