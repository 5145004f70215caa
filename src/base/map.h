/* The hash table used everywhere: byte strings to pointers, with a maximum count. Keys are hashed
 * with a secret of the process, so that hostile keys cannot force collisions.
 * Thread: one at a time.
 * Memory: grows with the count, freed by map_release. Keys are slices, not copies: their bytes must
 * not change while the entry is in the map.
 * Errors: a refused insert changes nothing.
 * Invariant: walks go in order of insertion. */
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
    struct map_entry *entries; /* in order of insertion, with removed ones in between */
    struct map_slot *slots;    /* index of an entry by its hash */
    size_t entry_count;        /* used entries, removed ones included */
    size_t capacity;           /* room for entries, a power of two; there are twice as many slots */
    size_t count;
    size_t count_max;
};

/* Takes no memory yet. */
void map_init(struct map *map, size_t count_max);
/* The values are not touched. */
void map_release(struct map *map);
/* value is not NULL. STATUS_ALREADY_EXISTS for a present key (a value is never replaced: the key
 * may be part of the old value), STATUS_LIMIT_REACHED at the maximum, STATUS_OUT_OF_MEMORY. */
MUST_CHECK enum status map_insert(struct map *map, struct slice key, void *value);
/* The value, or NULL. */
void *map_find(const struct map *map, struct slice key);
/* Returns the removed value, or NULL. The key may be part of it. */
void *map_remove(struct map *map, struct slice key);

#endif
