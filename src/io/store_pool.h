/* The readers: a small pool of threads that read the store, each with a session of its own, so
 * that loops never wait for a disk.
 * readers_post may be called from any thread; everything else belongs to the main thread.
 * A task's memory stays its poster's, who must keep it until run has been called; run says by
 * itself, mostly by posting to a loop, that it is done. Bounded: STATUS_LIMIT_REACHED when too
 * much waits, STATUS_SHUTTING_DOWN after readers_stop.
 * Each accepted task runs exactly once, and is one bounded page of work. */
#ifndef IO_STORE_POOL_H
#define IO_STORE_POOL_H

#include "base/mailbox.h"
#include "store/store.h"

#define READERS_MAX 64

struct reader_task {
    struct mailbox_item item;
    void (*run)(struct reader_task *task, struct store_session *session);
};

struct readers;

MUST_CHECK enum status readers_start(struct readers **readers, struct store *store, size_t count,
                                     size_t tasks_max);
MUST_CHECK enum status readers_post(struct readers *readers, struct reader_task *task);
/* Any thread: how many rows of the store they have read. */
uint64_t readers_rows_read(const struct readers *readers);
/* Any thread: tasks that wait or run. */
size_t readers_waiting(const struct readers *readers);
/* Runs what was posted, then ends the threads. */
void readers_stop(struct readers *readers);

#endif
