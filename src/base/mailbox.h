/* Many senders, one owner: the only door between threads. An intrusive list behind one lock.
 * mailbox_post and mailbox_close from any thread; everything else by the owner. Allocates
 * nothing: an item is a member of the sender's object, which the owner owns from a successful
 * post on; after a refused post it stays the sender's. Answers STATUS_LIMIT_REACHED when full,
 * STATUS_SHUTTING_DOWN once closed. Items arrive once each, in the order they were posted. */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spec/codes.h"

#define MAILBOX_FOREVER (-1)

struct mailbox_item {
    struct mailbox_item *next;
};

/* Tells the owner's event loop to come and take. Called by the sender, only when the mailbox was
 * empty, with the lock held: so that none is under way once mailbox_close has returned, and what
 * it wakes may be destroyed. It must neither wait nor call the mailbox; uv_async_send fits. */
typedef void mailbox_wake_cb(void *user);

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct mailbox_item *first;
    struct mailbox_item **end; /* where the next item hangs */
    size_t count;
    size_t count_max;
    bool closed;
    void *user;
    mailbox_wake_cb *wake;
};

/* wake may be NULL, for an owner that sleeps in mailbox_wait. The mailbox may not move. */
void mailbox_init(struct mailbox *mailbox, size_t count_max, void *user, mailbox_wake_cb *wake);
/* When no sender can reach it any more, and everything was taken. */
void mailbox_release(struct mailbox *mailbox);
MUST_CHECK enum status mailbox_post(struct mailbox *mailbox, struct mailbox_item *item);
/* Refuses posts from now on, and ends the owner's wait; what is inside can still be taken. Closing
 * again does nothing. */
void mailbox_close(struct mailbox *mailbox);
/* Everything inside, first posted first, or NULL; never waits. */
struct mailbox_item *mailbox_take_all(struct mailbox *mailbox);
/* The same, waiting for the first item: STATUS_OK with items, which is NULL after timeout_ms (or
 * a wait of 0); STATUS_SHUTTING_DOWN when closed and empty, which it will stay. */
MUST_CHECK enum status mailbox_wait(struct mailbox *mailbox, int64_t timeout_ms,
                                    struct mailbox_item **items);

#endif
