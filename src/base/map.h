/* The hash table used everywhere: byte strings to pointers, with a maximum count.
 * Owned by one thread at a time. Holds slices of keys, not copies: the bytes (mostly a member of
 * the value) must stay as they are while the entry is in. Memory grows with the count, amortised,
 * and returns with map_release. A refused insert changes nothing. Keys are hashed with a secret
 * of the process, so that hostile ones cannot crowd; walks go by age, which no secret changes. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdint.h>

#include "base/siphash.h"
#include "base/slice.h"
#include "spec/codes.h"

#define MAP_COUNT_MAX ((size_t)1 << 29)

struct map_entry {
    struct slice key;
    void *value; /* NULL: removed */
    uint32_t hash;
};

struct map_slot;

struct map {
    struct siphash_key secret;
    struct map_entry *entries; /* in order of insertion, removed ones between */
    struct map_slot *slots;    /* where an entry is, by its hash */
    size_t entry_count;        /* used entries, removed ones included */
    size_t capacity;           /* of entries; there are twice as many slots; a power of two */
    size_t count;
    size_t count_max;
    uint64_t insert_count;
};

/* Takes no memory yet. */
void map_init(struct map *map, size_t count_max);
/* The values are not touched. */
void map_release(struct map *map);
/* value is not NULL. STATUS_ALREADY_EXISTS for a key that is in (there is no replacing: the key
 * may be part of the old value), STATUS_LIMIT_REACHED at the maximum, STATUS_OUT_OF_MEMORY. */
MUST_CHECK enum status map_insert(struct map *map, struct slice key, void *value);
/* The value, or NULL. */
void *map_find(const struct map *map, struct slice key);
/* The value that was in, or NULL. The key may be part of it. */
void *map_remove(struct map *map, struct slice key);

/* Every entry once, oldest insert first:
 *     struct map_walk walk = map_walk_begin(map);
 *     for (const struct map_entry *entry; (entry = map_walk_next(&walk));)
 * Any entry may be removed meanwhile; one not yet reached is then not seen. Inserting ends the
 * walk: asking it for more asserts. An entry may be read until the next insert or its removal. */
struct map_walk {
    const struct map *map;
    size_t index;
    uint64_t insert_count;
};

struct map_walk map_walk_begin(const struct map *map);
const struct map_entry *map_walk_next(struct map_walk *walk);

#endif
