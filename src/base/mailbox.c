#include "base/mailbox.h"

#include <assert.h>
#include <time.h>

#define WAIT_MS_MAX (INT64_C(1000) * 86400 * 365)

static void must(int error) {
    assert(error == 0);
}

void mailbox_init(struct mailbox *mailbox, size_t count_max, void *user, mailbox_wake_cb *wake) {
    assert(count_max > 0);
    *mailbox = (struct mailbox){.count_max = count_max, .user = user, .wake = wake};
    mailbox->end = &mailbox->first;
    pthread_condattr_t attributes;
    must(pthread_condattr_init(&attributes));
    /* A wall clock that is set back would make the owner oversleep. */
    must(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    must(pthread_cond_init(&mailbox->filled, &attributes));
    must(pthread_condattr_destroy(&attributes));
    must(pthread_mutex_init(&mailbox->lock, NULL));
}

void mailbox_release(struct mailbox *mailbox) {
    assert(!mailbox->first && mailbox->count == 0);
    must(pthread_cond_destroy(&mailbox->filled));
    must(pthread_mutex_destroy(&mailbox->lock));
}

/* With the lock held. */
static enum status mailbox_append(struct mailbox *mailbox, struct mailbox_item *item,
                                  size_t places) {
    if (mailbox->closed)
        return STATUS_SHUTTING_DOWN;
    if (mailbox->count + places > mailbox->count_max)
        return STATUS_LIMIT_REACHED;
    item->next = NULL;
    *mailbox->end = item;
    mailbox->end = &item->next;
    mailbox->count += places;
    return STATUS_OK;
}

/* With the lock held, and an item inside. One wake-up is enough until the items are taken. */
static void wake_owner(struct mailbox *mailbox) {
    if (mailbox->is_woken_for_items)
        return;
    mailbox->is_woken_for_items = true;
    must(pthread_cond_signal(&mailbox->filled));
    if (mailbox->wake)
        mailbox->wake(mailbox->user);
}

static enum status post(struct mailbox *mailbox, struct mailbox_item *item, size_t places) {
    must(pthread_mutex_lock(&mailbox->lock));
    enum status status = mailbox_append(mailbox, item, places);
    if (status == STATUS_OK)
        wake_owner(mailbox);
    must(pthread_mutex_unlock(&mailbox->lock));
    return status;
}

enum status mailbox_post(struct mailbox *mailbox, struct mailbox_item *item) {
    return post(mailbox, item, 1);
}

enum status mailbox_post_uncounted(struct mailbox *mailbox, struct mailbox_item *item) {
    return post(mailbox, item, 0);
}

enum status mailbox_post_silently(struct mailbox *mailbox, struct mailbox_item *item) {
    must(pthread_mutex_lock(&mailbox->lock));
    enum status status = mailbox_append(mailbox, item, 1);
    must(pthread_mutex_unlock(&mailbox->lock));
    return status;
}

void mailbox_wake_for_items(struct mailbox *mailbox) {
    must(pthread_mutex_lock(&mailbox->lock));
    if (mailbox->first)
        wake_owner(mailbox);
    must(pthread_mutex_unlock(&mailbox->lock));
}

void mailbox_wake(struct mailbox *mailbox) {
    must(pthread_mutex_lock(&mailbox->lock));
    mailbox->is_woken = true;
    must(pthread_cond_signal(&mailbox->filled));
    must(pthread_mutex_unlock(&mailbox->lock));
}

void mailbox_close(struct mailbox *mailbox) {
    must(pthread_mutex_lock(&mailbox->lock));
    mailbox->closed = true;
    must(pthread_cond_signal(&mailbox->filled));
    must(pthread_mutex_unlock(&mailbox->lock));
}

/* With the lock held. */
static struct mailbox_item *mailbox_detach(struct mailbox *mailbox) {
    struct mailbox_item *items = mailbox->first;
    mailbox->first = NULL;
    mailbox->end = &mailbox->first;
    mailbox->count = 0;
    mailbox->is_woken_for_items = false;
    return items;
}

struct mailbox_item *mailbox_take_all(struct mailbox *mailbox) {
    must(pthread_mutex_lock(&mailbox->lock));
    struct mailbox_item *items = mailbox_detach(mailbox);
    must(pthread_mutex_unlock(&mailbox->lock));
    return items;
}

static struct timespec deadline_after(int64_t delay_ms) {
    struct timespec deadline;
    must(clock_gettime(CLOCK_MONOTONIC, &deadline));
    if (delay_ms > WAIT_MS_MAX)
        delay_ms = WAIT_MS_MAX;
    deadline.tv_sec += delay_ms / 1000;
    deadline.tv_nsec += delay_ms % 1000 * 1000000;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000;
    }
    return deadline;
}

enum status mailbox_wait(struct mailbox *mailbox, int64_t timeout_ms, struct mailbox_item **items) {
    struct timespec deadline = deadline_after(timeout_ms < 0 ? 0 : timeout_ms);
    must(pthread_mutex_lock(&mailbox->lock));
    int ended = timeout_ms == 0;
    while (!mailbox->first && !mailbox->closed && !mailbox->is_woken && !ended)
        ended = timeout_ms < 0
                    ? pthread_cond_wait(&mailbox->filled, &mailbox->lock)
                    : pthread_cond_timedwait(&mailbox->filled, &mailbox->lock, &deadline);
    bool over = mailbox->closed && !mailbox->first;
    mailbox->is_woken = false;
    *items = mailbox_detach(mailbox);
    must(pthread_mutex_unlock(&mailbox->lock));
    return over ? STATUS_SHUTTING_DOWN : STATUS_OK;
}
