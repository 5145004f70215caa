/* The store pool: a few threads that read the store, each with its own session, so that no loop
 * waits for a disk.
 * store_pool_post and the two counters may be called from any thread; start and stop belong to the
 * main thread.
 * Memory: the caller keeps a task until its run function has been called.
 * Errors: STATUS_LIMIT_REACHED when too many tasks wait, STATUS_SHUTTING_DOWN after
 * store_pool_stop. Each accepted task runs exactly once. It is one bounded page of work. */
#ifndef IO_STORE_POOL_H
#define IO_STORE_POOL_H

#include "base/mailbox.h"
#include "store/store.h"

#define STORE_POOL_THREADS_MAX 64

struct store_task {
    struct mailbox_item item;
    void (*run)(struct store_task *task, struct store_session *session);
};

struct store_pool;

MUST_CHECK enum status store_pool_start(struct store_pool **pool, struct store *store,
                                        size_t thread_count, size_t tasks_max);
MUST_CHECK enum status store_pool_post(struct store_pool *pool, struct store_task *task);
/* Rows of the store that the pool has read. */
uint64_t store_pool_rows_read(const struct store_pool *pool);
/* Tasks that wait or run. */
size_t store_pool_waiting(const struct store_pool *pool);
/* Runs the tasks that were posted, then ends the threads. */
void store_pool_stop(struct store_pool *pool);

#endif
