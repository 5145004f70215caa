#include "io/store_pool.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/metrics.h"

struct pool_thread {
    pthread_t handle;
    struct mailbox mailbox;
    struct store_session *session;
    atomic_size_t waiting;
};

struct store_pool {
    size_t count;
    struct pool_thread threads[STORE_POOL_THREADS_MAX];
};

static void *thread_main(void *user) {
    struct pool_thread *thread = user;
    struct mailbox_item *item;
    while (mailbox_wait(&thread->mailbox, MAILBOX_FOREVER, &item) == STATUS_OK) {
        while (item) {
            struct store_task *task = container_of(item, struct store_task, item);
            item = item->next;
            uint64_t started_ns = clock_now().mono_ns;
            task->run(task, thread->session);
            atomic_fetch_sub(&thread->waiting, 1);
            metrics_observe(METRIC_STORE_READ_DURATION_SECONDS, METRIC_PLAIN,
                            clock_now().mono_ns - started_ns, 1);
            metrics_add(METRIC_STORE_READS, METRIC_PLAIN, 1);
        }
    }
    return NULL;
}

static enum status thread_start(struct pool_thread *thread, struct store *store, size_t tasks_max) {
    enum status status = store_session_open(store, STORE_READ, &thread->session);
    if (status != STATUS_OK)
        return status;
    mailbox_init(&thread->mailbox, tasks_max, NULL, NULL);
    if (pthread_create(&thread->handle, NULL, thread_main, thread) == 0)
        return STATUS_OK;
    mailbox_release(&thread->mailbox);
    store_session_close(thread->session);
    return STATUS_SYSTEM_ERROR;
}

enum status store_pool_start(struct store_pool **started, struct store *store, size_t thread_count,
                             size_t tasks_max) {
    assert(thread_count >= 1 && thread_count <= STORE_POOL_THREADS_MAX);
    struct store_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return STATUS_OUT_OF_MEMORY;
    while (pool->count < thread_count) {
        enum status status = thread_start(&pool->threads[pool->count], store, tasks_max);
        if (status != STATUS_OK) {
            store_pool_stop(pool);
            return status;
        }
        pool->count++;
    }
    *started = pool;
    return STATUS_OK;
}

enum status store_pool_post(struct store_pool *pool, struct store_task *task) {
    struct pool_thread *chosen = &pool->threads[0];
    for (size_t i = 1; i < pool->count; i++)
        if (atomic_load(&pool->threads[i].waiting) < atomic_load(&chosen->waiting))
            chosen = &pool->threads[i];
    atomic_fetch_add(&chosen->waiting, 1);
    enum status status = mailbox_post(&chosen->mailbox, &task->item);
    if (status != STATUS_OK)
        atomic_fetch_sub(&chosen->waiting, 1);
    return status;
}

uint64_t store_pool_rows_read(const struct store_pool *pool) {
    uint64_t rows_read = 0;
    for (size_t i = 0; i < pool->count; i++)
        rows_read += store_session_rows_read(pool->threads[i].session);
    return rows_read;
}

size_t store_pool_waiting(const struct store_pool *pool) {
    size_t waiting = 0;
    for (size_t i = 0; i < pool->count; i++)
        waiting += atomic_load(&pool->threads[i].waiting);
    return waiting;
}

void store_pool_stop(struct store_pool *pool) {
    for (size_t i = 0; i < pool->count; i++)
        mailbox_close(&pool->threads[i].mailbox);
    for (size_t i = 0; i < pool->count; i++) {
        pthread_join(pool->threads[i].handle, NULL);
        mailbox_release(&pool->threads[i].mailbox);
        store_session_close(pool->threads[i].session);
    }
    free(pool);
}
