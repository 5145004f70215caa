/* The file thread: opens, writes, reads and closes files of the data folder for the loops, so that
 * no loop waits for a disk. It runs one task at a time, in the order in which they were posted.
 * Loops may have descriptor tables of their own, so a file of a task is only used by tasks, or by
 * other threads that share the table of the main thread.
 * Thread: file_thread_post may be called from any; start and stop belong to the main thread.
 * Memory: the caller keeps a task until it has run; the task may free it.
 * Errors: STATUS_SYSTEM_ERROR when there is no thread.
 * Invariant: every task that was posted runs once. */
#ifndef API_FILE_THREAD_H
#define API_FILE_THREAD_H

#include "base/mailbox.h"

struct file_task {
    struct mailbox_item item;
    void (*run)(struct file_task *task);
};

struct file_thread {
    pthread_t handle;
    struct mailbox mailbox;
    bool is_started; /* false in zeroed memory */
};

MUST_CHECK enum status file_thread_start(struct file_thread *thread);
/* The thread has started and was not stopped. The sender bounds its tasks. */
void file_thread_post(struct file_thread *thread, struct file_task *task);
/* Runs the tasks that were posted, then ends. Does nothing if the thread was not started. */
void file_thread_stop(struct file_thread *thread);

#endif
