/* A cache of recent summaries, so that an event does not cost a read of its document.
 * Thread: the writer's.
 * Memory: each entry owns its document, which holds the texts of the summary, and during a commit a
 * second one. summary_cache_trim bounds the bytes; it keeps entries that the current commit uses.
 * Errors: STATUS_OUT_OF_MEMORY leaves the entry unchanged.
 * Invariant: `now` of an entry is committed; `next` is the result of the current commit. */
#ifndef PROJECTOR_SUMMARY_CACHE_H
#define PROJECTOR_SUMMARY_CACHE_H

#include "base/list.h"
#include "base/map.h"
#include "projector/update.h"

/* A summary as committed. */
struct cached_document {
    char *text; /* the document; NULL: none */
    size_t text_bytes;
    union any_summary summary;
    struct store_summary_rows rows; /* the committed rows */
    /* The metadata of the stored document, in text; absent if it has none. */
    struct update_metadata metadata;
};

struct change;

struct cache_entry {
    uint64_t ref;
    enum document_kind kind;
    struct cached_document *now;
    struct cached_document *next;
    struct cached_document documents[2]; /* these two, which change places with a commit */
    struct change *change;               /* its change in the current commit; NULL: none */
    struct list_node age;                /* in summary_cache.by_age */
};

struct summary_cache {
    struct map by_ref;
    struct list by_age; /* least recently used first */
    size_t bytes;
    size_t bytes_max;
};

void summary_cache_init(struct summary_cache *cache, size_t bytes_max);
void summary_cache_release(struct summary_cache *cache);
/* The entry, which becomes the most recent; NULL: not cached. */
struct cache_entry *summary_cache_find(struct summary_cache *cache, uint64_t ref);
/* A new entry without a document; NULL without memory. */
struct cache_entry *summary_cache_add(struct summary_cache *cache, uint64_t ref,
                                      enum document_kind kind);
void summary_cache_drop(struct summary_cache *cache, struct cache_entry *entry);
/* Drops all entries; none is part of a commit. */
void summary_cache_clear(struct summary_cache *cache);
/* Sets `next`: the summary and a copy of its document. */
MUST_CHECK enum status summary_cache_prepare(struct summary_cache *cache, struct cache_entry *entry,
                                             const union any_summary *summary,
                                             struct slice document,
                                             const struct summary_marks *marks);
/* `next` becomes `now`, or is dropped. An entry without a document is dropped. */
void summary_cache_settle(struct summary_cache *cache, struct cache_entry *entry, bool committed);
/* Drops the least recently used entries until the limit holds. */
void summary_cache_trim(struct summary_cache *cache);

#endif
