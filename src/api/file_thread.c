#include "api/file_thread.h"

#include <assert.h>

#include "base/list.h"

static void *file_thread_main(void *user) {
    struct file_thread *thread = user;
    struct mailbox_item *items;
    while (mailbox_wait(&thread->mailbox, MAILBOX_FOREVER, &items) == STATUS_OK)
        while (items) {
            struct file_task *task = container_of(items, struct file_task, item);
            items = items->next;
            task->run(task);
        }
    return NULL;
}

enum status file_thread_start(struct file_thread *thread) {
    mailbox_init(&thread->mailbox, 1, NULL, NULL);
    thread->is_started = pthread_create(&thread->handle, NULL, file_thread_main, thread) == 0;
    if (thread->is_started)
        return STATUS_OK;
    mailbox_release(&thread->mailbox);
    return STATUS_SYSTEM_ERROR;
}

void file_thread_post(struct file_thread *thread, struct file_task *task) {
    enum status status = mailbox_post_uncounted(&thread->mailbox, &task->item);
    assert(status == STATUS_OK);
    (void)status;
}

void file_thread_stop(struct file_thread *thread) {
    if (!thread->is_started)
        return;
    mailbox_close(&thread->mailbox);
    pthread_join(thread->handle, NULL);
    mailbox_release(&thread->mailbox);
    thread->is_started = false;
}
