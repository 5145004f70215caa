/* The store pool: a few threads that read the store, each with its own session, so that no loop
 * waits for a disk. Tasks wait in one queue for each principal, in deficit round robin by the time
 * that they take. A principal never occupies all threads of a pool that has several.
 * Thread: any for store_pool_post, store_pool_cancel and the counters; the main thread for start
 * and stop. Memory: the caller keeps a task until its last slice has run, or until it is cancelled.
 * Errors: STATUS_LIMIT_REACHED when too many tasks wait, STATUS_RATE_LIMITED when too many of one
 * principal do, STATUS_OUT_OF_MEMORY, STATUS_SHUTTING_DOWN after store_pool_stop.
 * Invariant: each accepted task that is not cancelled runs to its end, in one slice of bounded work
 * or in several. Between two slices it waits in its queue, so that tasks of other principals run.
 */
#ifndef STORE_STORE_POOL_H
#define STORE_STORE_POOL_H

#include <stdatomic.h>

#include "base/list.h"
#include "store/store.h"

#define STORE_POOL_THREADS_MAX 64

struct store_queue;

struct store_task {
    /* Runs one slice, at most STORE_TASK_ROWS rows. True: another slice must follow. */
    bool (*run)(struct store_task *task, struct store_session *session);
    struct list_node node;     /* in its queue, while it waits */
    struct store_queue *queue; /* of its principal */
    atomic_bool is_cancelled;  /* a task that runs ends at its next row */
};

/* The principal that a task works for. */
struct store_client {
    struct slice key; /* its principal_key; empty: the server itself */
    bool is_bounded;  /* the task is refused if too many tasks of the principal wait */
};

struct store_pool_options {
    size_t thread_count;
    size_t tasks_max;           /* that wait */
    size_t principal_tasks_max; /* that wait, of one principal */
};

struct store_pool;

MUST_CHECK enum status store_pool_start(struct store_pool **pool, struct store *store,
                                        const struct store_pool_options *options);
/* Copies the key. */
MUST_CHECK enum status store_pool_post(struct store_pool *pool, struct store_task *task,
                                       const struct store_client *client);
/* For a task that was posted and whose memory is still kept. True: it waited, and never runs.
 * False: it runs or has run; its reads of the store fail from now on. */
MUST_CHECK bool store_pool_cancel(struct store_pool *pool, struct store_task *task);
/* Rows of the store that the pool has read. */
uint64_t store_pool_rows_read(const struct store_pool *pool);
/* Tasks that wait or run. */
size_t store_pool_waiting(struct store_pool *pool);
/* Runs the tasks that were posted, then ends the threads. */
void store_pool_stop(struct store_pool *pool);

#endif
