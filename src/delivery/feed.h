/* The epoch of a topic, which most subscriptions of the topic have in common.
 * Belongs to the thread of its subscriptions.
 * Memory: counted references; the last one frees it.
 * NULL for an epoch that cannot be made.
 * The text never changes. */
#ifndef DELIVERY_FEED_H
#define DELIVERY_FEED_H

#include <stdlib.h>

#include "auth/grant.h"
#include "base/list.h"
#include "base/map.h"
#include "delivery/page.h"
#include "hub/hub.h"
#include "io/loop.h"
#include "topic/position.h"

/* ---- epochs ---- */

struct shared_epoch {
    size_t references;
    struct topic_epoch epoch;
};

/* Without a reference so far. */
static inline struct shared_epoch *shared_epoch_make(const struct topic_epoch *epoch) {
    struct shared_epoch *made = malloc(sizeof(*made));
    if (made)
        *made = (struct shared_epoch){.epoch = *epoch};
    return made;
}

static inline void shared_epoch_unref(struct shared_epoch *epoch) {
    if (epoch && --epoch->references == 0)
        free(epoch);
}

/* Refers to this epoch, instead of the one before. */
static inline void shared_epoch_set(struct shared_epoch **place, struct shared_epoch *epoch) {
    epoch->references++;
    shared_epoch_unref(*place);
    *place = epoch;
}

/* ---- readers ---- */

struct reader_entry {
    struct hlist_node node;
    uint32_t key;
    uint32_t slot; /* its index in the listing */
};

/* Of a reader that is listed by owner. */
struct reader_listing {
    struct reader *reader;
    struct reader_entry entries[PRINCIPAL_KEYS_MAX];
    uint64_t hidden_seq; /* these two are the feed's */
    uint32_t own_count;
};

struct reader {
    struct hlist_node node;         /* in the list of all */
    struct reader_listing *listing; /* NULL: it reads everything */
};

struct readers {
    struct hlist all;
    struct hlist *buckets; /* by key; NULL: none yet */
    size_t bucket_count;   /* a power of two */
    size_t entry_count;    /* in the buckets */
    size_t walks;          /* under way: the buckets must not change */
};

typedef void reader_visit(struct reader *reader, void *user);

/* A table of zeroes is empty. After the last reader has left. */
void readers_release(struct readers *readers);
bool readers_is_empty(const struct readers *readers);
/* principal and view decide which frames it sees; the principal is not kept. */
MUST_CHECK enum status readers_add(struct readers *readers, struct reader *reader,
                                   const struct principal *principal, enum grant_view view);
void readers_add_to_all(struct readers *readers, struct reader *reader);
void readers_remove(struct readers *readers, struct reader *reader);
/* Whether it is listed by owner, and sees only frames of that owner. */
static inline bool reader_is_listed(const struct reader *reader) {
    return reader->listing;
}

void readers_visit_all(struct readers *readers, reader_visit *visit, void *user);
/* The readers that are listed by owner: those of this owner, or every one. */
void readers_visit_owner(struct readers *readers, const struct owner *owner, reader_visit *visit,
                         void *user);
void readers_visit_listed(struct readers *readers, reader_visit *visit, void *user);

/* ---- feeds ---- */

struct writer;

/* What the subscriptions of a topic on one thread share. It outlives them. */
struct feed_topic {
    struct hub_watch *watch;
    struct slice name; /* or a stream id of the kind ADDRESS_STORED_STREAM, until bound */
    const struct policy *policy;
    struct writer *writer;      /* raises the floor of a damaged journal */
    struct shared_epoch *epoch; /* that the store named last; NULL: none yet */
};

/* After its last subscription. */
void feed_topic_release(struct feed_topic *topic);

struct feed;

/* One that reads a topic. */
struct feed_member {
    struct feed *feed;
    struct reader reader;
    /* The topic advanced. May end this member, and no other. */
    void (*advanced)(struct feed_member *member);
};

#define FEED_UNKNOWN UINT32_MAX

struct feeds {
    struct io_loop *loop;
    struct loop_task advanced; /* posted by the hub when topics advanced */
    struct hub_listener listener;
    struct map by_name;
    struct list pages; /* of all feeds, the least recently used first */
    size_t page_bytes;
    uint64_t round; /* rises when no member waits for its turn */
};

void feeds_open(struct feeds *feeds, struct io_loop *loop, struct hub *hub);
/* When no member is left. */
void feeds_close(struct feeds *feeds);

/* principal and view: which frames the member may read; the principal is not kept. */
MUST_CHECK enum status feed_join(struct feeds *feeds, struct slice topic,
                                 struct feed_member *member, const struct principal *principal,
                                 enum grant_view view);
void feed_leave(struct feed_member *member);
/* The member has examined every frame up to head_seq, the hub's head. Frames after that wake it if
 * it may read them. */
void feed_settled(struct feed_member *member, uint64_t head_seq);
/* The member was sent frames that it may read. */
void feed_taken(struct feed_member *member, size_t count);
/* How far a settled member may move its position without examining frames; 0: not at all. cursor:
 * of the last frame there, or NULL where it is not known. */
uint64_t feed_hidden_seq(const struct feed_member *member, const struct uuid **cursor);
/* The frames of its own since the member settled; FEED_UNKNOWN: not counted. */
uint32_t feed_own_count(const struct feed_member *member);
/* For the subscriptions of its members. Policy and writer are the caller's to set. */
struct feed_topic *feed_topic(struct feed *feed);
/* The page behind that position, for members that are there; NULL: none. A feed keeps its most
 * recently used pages. */
struct page *feed_page(struct feed *feed, uint64_t after_seq);
/* Takes over the page. */
void feed_page_add(struct feed *feed, struct page *page);
/* No member waits for its turn: the pages are idle from now on. Frames of an idle page may have
 * been pruned since. */
void feeds_pages_idle(struct feeds *feeds);
bool feed_page_is_idle(const struct page *page);

#endif
