/* A page: frames of a topic that follow each other, and the bytes they were encoded to, once for
 * all connections of a loop that are at the same position and use the same dialect. A push is such
 * bytes as they go to a socket.
 * Thread: the loop's.
 * Memory: a push is reference-counted and outlives its page: what a socket has not taken yet is all
 * that is held for its connection.
 * Errors: STATUS_OUT_OF_MEMORY, and those of the encoders.
 * Invariant: a page covers (after_seq, through_seq]. A page without its hidden frames is not
 * shared. The bytes of a push never change. */
#ifndef DELIVERY_PAGE_H
#define DELIVERY_PAGE_H

#include "auth/grant.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "base/list.h"
#include "hub/frame.h"
#include "spec/codes.h"
#include "topic/position.h"

/* ---- pushes ---- */

struct push {
    size_t references;
    size_t size;
    char data[];
};

/* Copies the bytes. The caller has the one reference. */
MUST_CHECK enum status push_make(struct push **push, struct slice bytes);
/* Begins a push that an encoder appends to out. bytes: how many are expected; bytes_max: the limit.
 */
MUST_CHECK enum status push_begin(struct buffer *out, size_t bytes, size_t bytes_max);
/* The appended bytes as a push, in the memory of out, which is empty afterwards. */
struct push *push_end(struct buffer *out);
struct push *push_ref(struct push *push);
void push_unref(struct push *push);

/* ---- pages ---- */

#define DELIVERY_FRAMES_MAX JOURNAL_READ_FRAMES_MAX

struct selection;

/* Frames of a topic that a subscription gave, and the range they cover. */
struct delivery_batch {
    size_t count_max; /* asked: at most DELIVERY_FRAMES_MAX */
    size_t bytes_max; /* for the payloads; one frame is given whatever its size */
    uint64_t after_seq;
    uint64_t through_seq;
    size_t taken;               /* frames that were examined, hidden ones included */
    size_t readable;            /* frames of them that the principal may read */
    struct uuid through_cursor; /* the position there: names no event that is not the principal's */
    bool is_folded;             /* the subscription folds */
    struct selection *selection; /* the subscription's; NULL: none */
    bool is_selected_whole;      /* with a selection: it alone left frames of the range out */
    size_t count;
    struct frame *frames[DELIVERY_FRAMES_MAX];
};

void delivery_batch_release(struct delivery_batch *batch);
/* The events that its frames stand for. */
size_t delivery_batch_events(const struct delivery_batch *batch);

/* Forms in which one page is kept. A page in any further form is encoded for each subscriber. */
#define PAGE_FORMS_MAX 16

struct feed;
struct page_form;

struct page_encoding {
    const struct page_form *form; /* NULL: this place is free, and so are all behind it */
    struct push *push;
};

/* Clients that a page is for. */
enum page_reader {
    PAGE_READER_PLAIN = 1,
    PAGE_READER_FOLDING = 2,
};

/* What the clients of a page have in common. */
struct page_key {
    enum page_reader reader;
    const struct selection *selection; /* NULL: none */
};

struct page {
    struct slice topic; /* a copy: a bound name ends with the subscription that made the page */
    uint64_t head_seq;
    struct topic_epoch epoch;
    unsigned readers; /* enum page_reader */
    bool is_whole;    /* nothing in its range is hidden from the principal that it was made for */
    struct delivery_batch batch; /* with a reference to the selection */
    struct page_encoding encodings[PAGE_FORMS_MAX];
    /* For the feed that keeps it. */
    struct feed *feed;
    struct hlist_node feed_node;
    struct list_node age_node;
    size_t kept_bytes;
    uint64_t round; /* the round of its feeds when it was added */
    char topic_text[];
};

/* How a dialect encodes pages: one constant for each of its forms, which is identified by its
 * address. */
struct page_form {
    size_t bytes_max;
    MUST_CHECK enum status (*encode)(const struct page *page, const struct page_form *form,
                                     void *user, struct buffer *out);
    /* For the dialect: what it sends of each frame, and whether the bytes are packed, as chunks or
     * compressed. */
    unsigned content;
    bool is_packed;
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
