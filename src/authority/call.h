/* A call: work that leaves an io loop, runs on another thread and comes back to the same loop.
 * Thread: call_store, call_writer, call_begin, call_cancel and done belong to the loop's. run
 * belongs to a thread of the store pool or to the writer. call_return_post may be called from any
 * thread.
 * Memory: the caller owns the call until done runs. done may free it.
 * Errors: a pool or writer that refuses the call sets status, and done still runs.
 * Invariant: done runs exactly once, always in a later turn. The loop stays alive until then. */
#ifndef AUTHORITY_CALL_H
#define AUTHORITY_CALL_H

#include "authority/writer.h"
#include "net/loop.h"
#include "store/store_pool.h"

struct call {
    struct io_loop *loop;
    bool has_more; /* set by run on the store pool: it must run again, in its turn */
    /* Runs elsewhere, unless the call was refused. A failure goes into status. On the store pool a
     * long read runs in slices of STORE_TASK_ROWS rows, while has_more. */
    void (*run)(struct call *call, struct store_session *store);
    void (*done)(struct call *call);
    enum status status;
    bool any_node;           /* call_writer: the work needs no writer role (struct writer_job) */
    struct store_pool *pool; /* the pool that holds the call; NULL: none */
    struct store_task task;
    /* The call is in one mailbox at a time: first the other thread's, then the loop's. */
    union {
        struct writer_job job;
        struct loop_task back;
    } in;
};

/* Runs call->run on a thread of the pool, in the queue of the principal. */
void call_store(struct call *call, struct io_loop *loop, struct store_pool *pool,
                const struct store_client *client);
/* The result is not needed any more. A call that waits in a store pool never runs; one that runs
 * there ends at its next row. done follows, as always. Other calls are not affected. */
void call_cancel(struct call *call);
/* Runs call->run on the writer, between two batches. */
void call_writer(struct call *call, struct io_loop *loop, struct writer *writer);
/* Another thread took over the work by other means and ends it with call_return_post. */
void call_begin(struct call *call, struct io_loop *loop);
/* Posts the group of a call that began. The writer is woken at the end of the loop's turn. Without
 * success the caller ends the call. */
MUST_CHECK enum status call_post_group(struct call *call, struct writer *writer,
                                       struct append_group *group);
/* The work is finished, and done runs on the loop. Once for each call_begin. */
void call_return_post(struct call *call);

/* Sets a property of the store from a thread that has no write session, and no loop, and is not the
 * writer's. It waits until the writer, which has not stopped, has done it. The statuses are those
 * of writer_post_job and of the store. */
MUST_CHECK enum status call_put_property(struct writer *writer,
                                         const struct store_property *property);

#endif
