/* A queue with many senders and one owner, the only way from thread to thread: an intrusive list
 * under one lock.
 * Thread: any for functions that post, wake and close; the owner for all others.
 * Memory: an item is a member of the sender's object. A successful post moves it to the owner; a
 * refused post does not.
 * Errors: STATUS_LIMIT_REACHED when full, STATUS_SHUTTING_DOWN once closed.
 * Invariant: items arrive once each, in the order they were posted. */
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

/* Wakes up the owner's event loop. The sender calls it, once until the items are taken, with the
 * lock held. So no call is in progress once mailbox_close has returned, and the loop may be
 * destroyed. It must neither block nor call the mailbox; uv_async_send is suitable. */
typedef void mailbox_wake_cb(void *user);

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct mailbox_item *first;
    struct mailbox_item **end; /* the pointer that the next item goes to */
    size_t count;              /* without the uncounted items */
    size_t count_max;
    bool closed;
    bool is_woken;           /* the owner's next wait ends at once */
    bool is_woken_for_items; /* the owner was woken for the items inside */
    void *user;
    mailbox_wake_cb *wake;
};

/* wake may be NULL for an owner that blocks in mailbox_wait. The mailbox may not move. */
void mailbox_init(struct mailbox *mailbox, size_t count_max, void *user, mailbox_wake_cb *wake);
/* Call when no sender can reach it any more and all items were taken. */
void mailbox_release(struct mailbox *mailbox);
MUST_CHECK enum status mailbox_post(struct mailbox *mailbox, struct mailbox_item *item);
/* Posts an item that takes none of the count_max places: its sender bounds such items. */
MUST_CHECK enum status mailbox_post_uncounted(struct mailbox *mailbox, struct mailbox_item *item);
/* Posts without waking the owner. The sender calls mailbox_wake_for_items soon, once for many
 * items. The owner may take the items earlier. */
MUST_CHECK enum status mailbox_post_silently(struct mailbox *mailbox, struct mailbox_item *item);
void mailbox_wake_for_items(struct mailbox *mailbox);
/* Ends the owner's wait, or its next one, without an item. Several calls before that end one wait.
 */
void mailbox_wake(struct mailbox *mailbox);
/* Refuses later posts and ends the owner's wait. Items inside can still be taken. Closing again
 * does nothing. */
void mailbox_close(struct mailbox *mailbox);
/* All items, oldest first, or NULL; never blocks. */
struct mailbox_item *mailbox_take_all(struct mailbox *mailbox);
/* The same, but blocks until there is an item. STATUS_OK with items, which is NULL after the
 * timeout or mailbox_wake; STATUS_SHUTTING_DOWN when the mailbox is closed and empty, now and for
 * good. */
MUST_CHECK enum status mailbox_wait(struct mailbox *mailbox, int64_t timeout_ms,
                                    struct mailbox_item **items);

#endif
