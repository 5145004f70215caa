/* The readers: a small pool of threads that read the store, each with a session of its own, so
 * that loops never wait for a disk.
 * store_pool_post may be called from any thread; everything else belongs to the main thread.
 * A task's memory stays its poster's, who must keep it until run has been called; run says by
 * itself, mostly by posting to a loop, that it is done. Bounded: STATUS_LIMIT_REACHED when too
 * much waits, STATUS_SHUTTING_DOWN after store_pool_stop.
 * Each accepted task runs exactly once, and is one bounded page of work. */
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

MUST_CHECK enum status store_pool_start(struct store_pool **readers, struct store *store,
                                        size_t count, size_t tasks_max);
MUST_CHECK enum status store_pool_post(struct store_pool *readers, struct store_task *task);
/* Any thread: how many rows of the store they have read. */
uint64_t store_pool_rows_read(const struct store_pool *readers);
/* Any thread: tasks that wait or run. */
size_t store_pool_waiting(const struct store_pool *readers);
/* Runs what was posted, then ends the threads. */
void store_pool_stop(struct store_pool *readers);

#endif
