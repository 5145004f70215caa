/* The entities used last, each with its state after the requests applied so far.
 * Thread: the writer's.
 * Memory: a bounded number of entries and bytes of their texts. Entries of the batch under way are
 * never evicted, so a batch may exceed the bounds by its size.
 * Errors: STATUS_OUT_OF_MEMORY.
 * Invariant: an entry without an entity stands for one that the store was asked for and does not
 * have, and lasts one batch. If a batch fails, all entries are dropped. */
#ifndef AUTHORITY_ENTITY_CACHE_H
#define AUTHORITY_ENTITY_CACHE_H

#include "authority/publish_limit.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

/* Worker events are published to two topics. */
#define ENTITY_BUCKETS_MAX 2

struct usage; /* authority/quota.h */

struct entity_entry {
    struct list_node by_use;
    struct hlist_node incomplete;
    /* STATUS_OK: entity is set. STATUS_NOT_FOUND: it does not exist, or was not asked for yet. Any
     * other status is the failure of its read. */
    enum status status;
    bool is_stream_taken; /* an application topic that does not exist; another has its stream */
    size_t lookup_index;  /* while the status is STATUS_NOT_FOUND: its number in the prefetch */
    struct store_entity entity;
    struct publish_bucket buckets[ENTITY_BUCKETS_MAX]; /* used by runs and workers */
    /* Policies of its own topic and of the shared one, in that generation of the rules. */
    const struct policy *limits[ENTITY_BUCKETS_MAX]; /* the first NULL: not looked up yet */
    unsigned limits_generation;
    struct usage *usage; /* its owner's in the batch usage_batch; NULL: none */
    uint64_t usage_batch;
    uint64_t batch;        /* the last one that used it */
    uint64_t first_log_id; /* its first event, if that is newer than the entry; else 0 */
    uint64_t last_log_id;  /* the last event added while in memory; else 0 */
    bool is_changed;       /* its row is part of the batch under way */
    bool writes_metadata;  /* that row has other metadata than the stored one */
    bool is_borrowing;     /* texts point into the batch's groups until entity_cache_settle */
    char *texts;           /* otherwise holds the entity's texts, except the id */
    size_t text_bytes;
    char id[];
};

struct entity_cache {
    struct map by_id[ENTITY_KIND_COUNT];
    struct list by_use;      /* the newest first */
    struct hlist incomplete; /* entries of this batch that were added without an entity */
    size_t count;
    size_t count_max;
    size_t bytes;
    size_t bytes_max;
    uint64_t batch;
};

void entity_cache_init(struct entity_cache *cache, size_t count_max, size_t bytes_max);
void entity_cache_release(struct entity_cache *cache);
/* Drops all entries. */
void entity_cache_clear(struct entity_cache *cache);

/* Entries used from now on belong to a new batch. Older ones may be evicted. */
void entity_cache_begin_batch(struct entity_cache *cache);
/* The entry of an entity that the batch will use. is_added: it was not in memory, and the store
 * must be asked for it. */
MUST_CHECK enum status entity_cache_expect(struct entity_cache *cache, enum entity_kind kind,
                                           struct slice id, struct entity_entry **entry,
                                           bool *is_added);
/* NULL: it is not in memory, or does not exist. */
struct entity_entry *entity_cache_find(const struct entity_cache *cache, enum entity_kind kind,
                                       struct slice id);
/* Sets the entity that the store has, with copies of its texts. */
MUST_CHECK enum status entity_cache_fill(struct entity_cache *cache, struct entity_entry *entry,
                                         const struct store_entity *entity);
/* A new entity, which exists neither in memory nor in the store. Its texts are borrowed. */
MUST_CHECK enum status entity_cache_add(struct entity_cache *cache,
                                        const struct store_entity *entity,
                                        struct entity_entry **entry);
/* After the commit, before the groups are returned: copies borrowed texts. */
void entity_cache_settle(struct entity_cache *cache, struct entity_entry *entry);

/* Copies with all their texts in the arena; false when there is no room. */
bool owner_copy(struct arena *arena, const struct owner *from, struct owner *to);
bool store_entity_copy(struct arena *arena, const struct store_entity *from,
                       struct store_entity *to);

#endif
