/* The summaries the projector worked on last, so that an event costs no read of its document.
 * Writer's thread. Each entry owns its document, in which the summary's texts lie, and one more
 * while a commit is under way. Bounded in bytes by summary_cache_trim, which spares entries in use.
 * STATUS_OUT_OF_MEMORY; then the entry is as before.
 * An entry says what is committed; what a commit under way would make of it is apart. */
#ifndef PROJECTOR_SUMMARY_CACHE_H
#define PROJECTOR_SUMMARY_CACHE_H

#include "base/map.h"
#include "projector/fold.h"

/* A summary as committed. */
struct cached_document {
    char *text; /* the document; NULL: none */
    size_t text_bytes;
    uint64_t version;
    union any_summary summary;
    bool has_checkpoint;
    uint64_t checkpoint_seq;
    uint8_t checkpoint_hash[SHA256_BYTES];
};

struct change;

struct cache_entry {
    uint64_t ref;
    enum document_kind kind;
    struct cached_document now;
    struct cached_document next;
    struct change *change; /* the commit under way; NULL: not part of it */
    struct cache_entry *newer;
    struct cache_entry *older;
};

struct summary_cache {
    struct map by_ref;
    struct cache_entry *newest;
    struct cache_entry *oldest;
    size_t bytes;
    size_t bytes_max;
};

void summary_cache_init(struct summary_cache *cache, size_t bytes_max);
void summary_cache_release(struct summary_cache *cache);
/* The entry, now the newest; NULL when it is not in. */
struct cache_entry *summary_cache_find(struct summary_cache *cache, uint64_t ref);
/* A new entry without a document; NULL without memory. */
struct cache_entry *summary_cache_add(struct summary_cache *cache, uint64_t ref,
                                      enum document_kind kind);
void summary_cache_drop(struct summary_cache *cache, struct cache_entry *entry);
/* Sets what becomes of the entry if the commit succeeds: the summary, with its document copied. */
MUST_CHECK enum status summary_cache_prepare(struct summary_cache *cache, struct cache_entry *entry,
                                             const union any_summary *summary,
                                             struct slice document,
                                             const struct summary_marks *marks);
/* next becomes now, or is forgotten; an entry that then has no document is dropped. */
void summary_cache_settle(struct summary_cache *cache, struct cache_entry *entry, bool committed);
/* Drops the oldest until the bound holds. */
void summary_cache_trim(struct summary_cache *cache);

#endif
