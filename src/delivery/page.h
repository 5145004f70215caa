/* A page: frames of a topic that follow each other, and the bytes they were encoded to, once for
 * all connections of a loop that are at the same position and use the same dialect.
 * Belongs to its loop's thread. A push is reference-counted and outlives its page: what a socket
 * has not taken yet is all that is held for it.
 * STATUS_OUT_OF_MEMORY, and what an encoder answers.
 * It covers (after_seq, through_seq]. A page without its hidden frames is not shared. */
#ifndef DELIVERY_PAGE_H
#define DELIVERY_PAGE_H

#include "base/list.h"
#include "delivery/push.h"
#include "delivery/subscription.h"

#define PAGE_FORMS_MAX 18

struct feed;

struct page {
    struct slice topic; /* a copy: a bound name ends with the subscription that made the page */
    uint64_t head_seq;
    struct topic_epoch epoch;
    struct delivery_batch batch;
    struct push *pushes[PAGE_FORMS_MAX];
    /* Of the feed that keeps it. */
    struct feed *feed;
    struct hlist_node feed_node;
    struct list_node age_node;
    size_t kept_bytes;
    uint64_t round; /* of its feeds, when it was added */
    char topic_text[];
};

struct page_form {
    unsigned index;
    size_t bytes_max;
    MUST_CHECK enum status (*encode)(const struct page *page, void *user, struct buffer *out);
};

/* Takes over the frames of the batch, which is empty afterwards. */
MUST_CHECK enum status page_make(struct page **page, struct slice topic, uint64_t head_seq,
                                 struct delivery_batch *batch);
void page_free(struct page *page);
/* Whether nothing in it is hidden from the principal, and it hides nothing. */
bool page_suits(const struct page *page, const struct principal *principal, enum grant_view view);
/* The page in that form; a reference for the caller. user: whatever the encoders need, such as a
 * compressor. */
MUST_CHECK enum status page_push(struct page *page, const struct page_form *form, void *user,
                                 struct push **push);

#endif
