/* The entities used last, each with its state as of the batch under way.
 * Owned by the writer. Memory: a bounded number of entries and of their texts; entries of the
 * batch under way are never evicted, so a batch may exceed the bounds by its own size.
 * STATUS_NOT_FOUND; the store's errors; STATUS_OUT_OF_MEMORY.
 * What is in the cache is what the log says after the batch under way; when that batch fails,
 * everything is forgotten. */
#ifndef AUTHORITY_ENTITY_CACHE_H
#define AUTHORITY_ENTITY_CACHE_H

#include "authority/publish_limit.h"
#include "base/map.h"
#include "store/store.h"

/* Worker events are published to two topics. */
#define ENTITY_BUCKETS_MAX 2

struct entity_entry {
    struct store_entity entity;
    struct publish_bucket buckets[ENTITY_BUCKETS_MAX];
    struct entity_entry *newer;
    struct entity_entry *older;
    uint64_t batch;        /* the last one that used it */
    uint64_t first_log_id; /* of its first event, where it was made while in memory; else 0 */
    uint64_t last_log_id;  /* of the last event added while in memory; else 0 */
    bool is_changed;       /* its row is part of the batch under way */
    bool is_borrowing;     /* texts point into the batch's groups until entity_cache_settle */
    char *texts;           /* what the entity's texts, but the id, point to otherwise */
    size_t text_bytes;
    char id[];
};

struct entity_cache {
    struct map by_id[ENTITY_KIND_COUNT];
    struct entity_entry *newest;
    struct entity_entry *oldest;
    size_t count;
    size_t count_max;
    size_t bytes;
    size_t bytes_max;
    uint64_t batch;
    struct arena arena; /* for what is on its way in from the store */
};

void entity_cache_init(struct entity_cache *cache, size_t count_max, size_t bytes_max);
void entity_cache_release(struct entity_cache *cache);
/* Forgets everything. */
void entity_cache_clear(struct entity_cache *cache);

/* From the next use on entries belong to a new batch; the ones before may go again. */
void entity_cache_begin_batch(struct entity_cache *cache);
/* Loads it through the session where it is not in memory. */
MUST_CHECK enum status entity_cache_find(struct entity_cache *cache, struct store_session *session,
                                         enum entity_kind kind, struct slice id,
                                         struct entity_entry **entry);
/* A new entity, which is in neither. Its texts are borrowed. */
MUST_CHECK enum status entity_cache_add(struct entity_cache *cache,
                                        const struct store_entity *entity,
                                        struct entity_entry **entry);
/* After the commit, before the groups go back: takes copies of borrowed texts. */
void entity_cache_settle(struct entity_cache *cache, struct entity_entry *entry);

/* A copy with all its texts in the arena; false when there is no room. */
bool store_entity_copy(struct arena *arena, const struct store_entity *from,
                       struct store_entity *to);

#endif
