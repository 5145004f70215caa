/* Two arrays. Entries are in order of insertion; a removed entry leaves a hole until the next
 * rebuild. Slots are an open-addressed table with linear probing, from the hash to the entry. At
 * least half of the slots are empty, and a removal closes the gap, so probes stay short however
 * long the map is used. A full array of entries is rebuilt with at least a quarter of it free, so
 * many inserts share the cost of a rebuild. */
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_FIRST 8

struct map_slot {
    uint32_t hash;
    uint32_t number; /* the entry's index + 1; 0: the slot is empty */
};

void map_init(struct map *map, size_t count_max) {
    assert(count_max > 0 && count_max <= MAP_COUNT_MAX);
    *map = (struct map){.secret = siphash_process_key(), .count_max = count_max};
}

void map_release(struct map *map) {
    free(map->entries);
    free(map->slots);
    map_init(map, map->count_max);
}

static size_t slot_mask(const struct map *map) {
    return map->capacity * 2 - 1;
}

static uint32_t map_hash(const struct map *map, struct slice key) {
    return (uint32_t)siphash(map->secret, key);
}

/* The slot of the key, or NULL. */
static struct map_slot *slot_of(const struct map *map, struct slice key, uint32_t hash) {
    if (map->capacity == 0)
        return NULL;
    size_t mask = slot_mask(map);
    for (size_t at = hash & mask; map->slots[at].number > 0; at = (at + 1) & mask) {
        struct map_slot *slot = &map->slots[at];
        if (slot->hash == hash && slice_equal(map->entries[slot->number - 1].key, key))
            return slot;
    }
    return NULL;
}

static void slot_fill(struct map *map, uint32_t hash, size_t entry_index) {
    size_t mask = slot_mask(map);
    size_t at = hash & mask;
    while (map->slots[at].number > 0)
        at = (at + 1) & mask;
    map->slots[at] = (struct map_slot){hash, (uint32_t)(entry_index + 1)};
}

/* Moves back the slots that a probe could no longer reach across the gap. */
static void slot_clear(struct map *map, struct map_slot *slot) {
    size_t mask = slot_mask(map);
    size_t gap = (size_t)(slot - map->slots);
    for (size_t at = (gap + 1) & mask; map->slots[at].number > 0; at = (at + 1) & mask) {
        size_t home = map->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            map->slots[gap] = map->slots[at];
            gap = at;
        }
    }
    map->slots[gap].number = 0;
}

/* New arrays without holes, sized for the count and one more. */
static enum status map_rebuild(struct map *map) {
    struct map next = *map;
    next.capacity = CAPACITY_FIRST;
    while (map->count + 1 > next.capacity - next.capacity / 4)
        next.capacity *= 2;
    next.entries = malloc(next.capacity * sizeof(*next.entries));
    next.slots = calloc(next.capacity * 2, sizeof(*next.slots));
    if (!next.entries || !next.slots) {
        free(next.entries);
        free(next.slots);
        return STATUS_OUT_OF_MEMORY;
    }
    next.entry_count = 0;
    for (size_t i = 0; i < map->entry_count; i++) {
        if (!map->entries[i].value)
            continue;
        slot_fill(&next, map->entries[i].hash, next.entry_count);
        next.entries[next.entry_count++] = map->entries[i];
    }
    assert(next.entry_count == map->count);
    free(map->entries);
    free(map->slots);
    map->entries = next.entries;
    map->slots = next.slots;
    map->capacity = next.capacity;
    map->entry_count = next.entry_count;
    return STATUS_OK;
}

enum status map_insert(struct map *map, struct slice key, void *value) {
    assert(value);
    uint32_t hash = map_hash(map, key);
    if (slot_of(map, key, hash))
        return STATUS_ALREADY_EXISTS;
    if (map->count == map->count_max)
        return STATUS_LIMIT_REACHED;
    if (map->entry_count == map->capacity) {
        enum status status = map_rebuild(map);
        if (status != STATUS_OK)
            return status;
    }
    slot_fill(map, hash, map->entry_count);
    map->entries[map->entry_count++] = (struct map_entry){key, value, hash};
    map->count++;
    return STATUS_OK;
}

void *map_find(const struct map *map, struct slice key) {
    const struct map_slot *slot = slot_of(map, key, map_hash(map, key));
    return slot ? map->entries[slot->number - 1].value : NULL;
}

void *map_remove(struct map *map, struct slice key) {
    struct map_slot *slot = slot_of(map, key, map_hash(map, key));
    if (!slot)
        return NULL;
    struct map_entry *entry = &map->entries[slot->number - 1];
    void *value = entry->value;
    *entry = (struct map_entry){{NULL, 0}, NULL, 0};
    slot_clear(map, slot);
    map->count--;
    /* Holes at the end are used again at once: a map used as a stack never rebuilds. */
    while (map->entry_count > 0 && !map->entries[map->entry_count - 1].value)
        map->entry_count--;
    return value;
}
