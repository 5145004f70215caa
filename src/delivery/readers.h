/* The readers of a shared topic, listed by the owner whose frames they see. A frame then concerns
 * the readers of its owner, and those that read everything, and no other.
 * Belongs to its loop's thread.
 * Memory: a reader is a member of its subscriber or poll. One that is listed by owner has a listing
 * besides, and the lists take about eight bytes for each entry.
 * STATUS_OUT_OF_MEMORY for a reader that cannot be added.
 * Every reader whose principal may read a frame is visited for it (principal_keys). Rarely, another
 * one is visited too. A visit may end the visited reader and add others, but end no other. */
#ifndef DELIVERY_READERS_H
#define DELIVERY_READERS_H

#include "auth/grant.h"
#include "base/list.h"

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

#endif
