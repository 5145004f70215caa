#include "io/store_pool.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/metrics.h"

struct reader {
    pthread_t thread;
    struct mailbox mailbox;
    struct store_session *session;
    atomic_size_t waiting;
};

struct store_pool {
    size_t count;
    struct reader threads[STORE_POOL_THREADS_MAX];
};

static void *reader_thread(void *user) {
    struct reader *reader = user;
    struct mailbox_item *item;
    while (mailbox_wait(&reader->mailbox, MAILBOX_FOREVER, &item) == STATUS_OK) {
        while (item) {
            struct store_task *task = (struct store_task *)item;
            item = item->next;
            uint64_t begun_ns = clock_now().mono_ns;
            task->run(task, reader->session);
            atomic_fetch_sub(&reader->waiting, 1);
            metrics_observe(METRIC_STORE_READ_DURATION_SECONDS, METRIC_PLAIN,
                            clock_now().mono_ns - begun_ns, 1);
            metrics_add(METRIC_STORE_READS, METRIC_PLAIN, 1);
        }
    }
    return NULL;
}

static enum status reader_start(struct reader *reader, struct store *store, size_t tasks_max) {
    enum status status = store_session_open(store, STORE_READ, &reader->session);
    if (status != STATUS_OK)
        return status;
    mailbox_init(&reader->mailbox, tasks_max, NULL, NULL);
    if (pthread_create(&reader->thread, NULL, reader_thread, reader) == 0)
        return STATUS_OK;
    mailbox_release(&reader->mailbox);
    store_session_close(reader->session);
    return STATUS_SYSTEM_ERROR;
}

enum status store_pool_start(struct store_pool **readers, struct store *store, size_t count,
                             size_t tasks_max) {
    assert(count >= 1 && count <= STORE_POOL_THREADS_MAX);
    struct store_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return STATUS_OUT_OF_MEMORY;
    while (pool->count < count) {
        enum status status = reader_start(&pool->threads[pool->count], store, tasks_max);
        if (status != STATUS_OK) {
            store_pool_stop(pool);
            return status;
        }
        pool->count++;
    }
    *readers = pool;
    return STATUS_OK;
}

enum status store_pool_post(struct store_pool *readers, struct store_task *task) {
    struct reader *chosen = &readers->threads[0];
    for (size_t i = 1; i < readers->count; i++)
        if (atomic_load(&readers->threads[i].waiting) < atomic_load(&chosen->waiting))
            chosen = &readers->threads[i];
    atomic_fetch_add(&chosen->waiting, 1);
    enum status status = mailbox_post(&chosen->mailbox, &task->item);
    if (status != STATUS_OK)
        atomic_fetch_sub(&chosen->waiting, 1);
    return status;
}

uint64_t store_pool_rows_read(const struct store_pool *readers) {
    uint64_t rows_read = 0;
    for (size_t i = 0; i < readers->count; i++)
        rows_read += store_session_rows_read(readers->threads[i].session);
    return rows_read;
}

size_t store_pool_waiting(const struct store_pool *readers) {
    size_t waiting = 0;
    for (size_t i = 0; i < readers->count; i++)
        waiting += atomic_load(&readers->threads[i].waiting);
    return waiting;
}

void store_pool_stop(struct store_pool *readers) {
    for (size_t i = 0; i < readers->count; i++)
        mailbox_close(&readers->threads[i].mailbox);
    for (size_t i = 0; i < readers->count; i++) {
        pthread_join(readers->threads[i].thread, NULL);
        mailbox_release(&readers->threads[i].mailbox);
        store_session_close(readers->threads[i].session);
    }
    free(readers);
}
