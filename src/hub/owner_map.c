/* Block b of a journal has the frames from b * BLOCK_FRAMES on, and one slot in which it can be. */
#include "hub/owner_map.h"

#include <pthread.h>
#include <stdlib.h>

#include "auth/principal.h"
#include "base/limits.h"

#define BLOCK_FRAMES 1024
/* Hashes of owners are never that. */
#define UNKNOWN 0
/* For frames without an owner. A few owners have it too. */
#define UNOWNED 1

struct block {
    struct owner_map_journal journal;
    uint64_t number;
    uint32_t owners[BLOCK_FRAMES];
};

struct owner_map {
    pthread_mutex_t lock;
    struct block *blocks[OWNER_MAP_BLOCKS_MAX];
};

enum status owner_map_open(struct owner_map **map) {
    struct owner_map *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    pthread_mutex_init(&made->lock, NULL);
    *map = made;
    return STATUS_OK;
}

void owner_map_close(struct owner_map *map) {
    for (size_t i = 0; i < OWNER_MAP_BLOCKS_MAX; i++)
        free(map->blocks[i]);
    pthread_mutex_destroy(&map->lock);
    free(map);
}

static struct block **slot_of(struct owner_map *map, const struct owner_map_journal *journal,
                              uint64_t number) {
    /* The blocks of a topic do not displace each other before they fill the table. */
    return &map->blocks[(journal->topic_ref * 37 + number) % OWNER_MAP_BLOCKS_MAX];
}

static bool is_of(const struct block *block, const struct owner_map_journal *journal,
                  uint64_t number) {
    return block && block->number == number && block->journal.topic_ref == journal->topic_ref &&
           block->journal.epoch == journal->epoch;
}

static uint32_t hash_of(uint32_t key) {
    return key > UNOWNED ? key : UNOWNED;
}

void owner_map_note(struct owner_map *map, const struct owner_map_journal *journal, uint64_t seq,
                    const struct owner *owner) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    uint64_t number = seq / BLOCK_FRAMES;
    size_t count = owner_keys(owner, keys);
    pthread_mutex_lock(&map->lock);
    struct block **slot = slot_of(map, journal, number);
    if (!is_of(*slot, journal, number)) {
        free(*slot);
        *slot = calloc(1, sizeof(**slot));
        if (*slot) {
            (*slot)->journal = *journal;
            (*slot)->number = number;
        }
    }
    if (*slot)
        (*slot)->owners[seq % BLOCK_FRAMES] = count > 0 ? hash_of(keys[0]) : UNOWNED;
    pthread_mutex_unlock(&map->lock);
}

struct owner_map_run owner_map_next(struct owner_map *map, const struct owner_map_journal *journal,
                                    struct owner_map_keys keys, uint64_t seq, uint64_t end_seq) {
    struct owner_map_run run = {end_seq, 0, 0};
    bool has_ended = false;
    pthread_mutex_lock(&map->lock);
    while (seq < end_seq && !has_ended) {
        uint64_t number = seq / BLOCK_FRAMES;
        struct block *block = *slot_of(map, journal, number);
        if (!is_of(block, journal, number))
            block = NULL;
        for (; seq < end_seq && seq / BLOCK_FRAMES == number && !has_ended; seq++) {
            uint32_t owner = block ? block->owners[seq % BLOCK_FRAMES] : UNKNOWN;
            /* It may be of these principals. */
            bool is_found = owner == UNKNOWN;
            for (size_t i = 0; i < keys.count; i++)
                is_found |= owner == hash_of(keys.keys[i]);
            has_ended = !is_found && run.count > 0;
            if (is_found && run.count == 0)
                run.seq = seq;
            run.count += is_found;
            run.unknown += owner == UNKNOWN;
        }
        /* A longer run would be more than one read takes. */
        has_ended |= run.count >= JOURNAL_READ_FRAMES_MAX;
    }
    pthread_mutex_unlock(&map->lock);
    return run;
}
