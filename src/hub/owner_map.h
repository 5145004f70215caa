/* The owners of frames on shared topics, as far as reads have learned them: one hash for each. A
 * replay for one owner then reads the frames of that owner, and passes over the others.
 * Thread: any.
 * Memory: blocks of some KiB, up to OWNER_MAP_BLOCKS_MAX. A new block replaces an old one.
 * Errors: none; without memory nothing is known.
 * Invariant: a frame whose owner is not known may be of any owner. A frame of a journal never
 * changes its owner; a journal that is rebuilt has another epoch. */
#ifndef HUB_OWNER_MAP_H
#define HUB_OWNER_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "spec/codes.h"
#include "topic/owner.h"

struct owner_map;

/* The journal of a topic. */
struct owner_map_journal {
    uint64_t topic_ref;
    uint64_t epoch;
};

/* The keys of an owner or a principal (auth/principal.h). */
struct owner_map_keys {
    const uint32_t *keys;
    size_t count;
};

/* Frames that follow each other. */
struct owner_map_run {
    uint64_t seq;
    uint64_t count;   /* 0: none; seq is then the end of the search */
    uint64_t unknown; /* how many of them have an owner that is not known */
};

MUST_CHECK enum status owner_map_open(struct owner_map **map);
void owner_map_close(struct owner_map *map);
void owner_map_note(struct owner_map *map, const struct owner_map_journal *journal, uint64_t seq,
                    const struct owner *owner);
/* The next frames from seq on, and before end_seq, that may be of an owner with one of the keys. */
struct owner_map_run owner_map_next(struct owner_map *map, const struct owner_map_journal *journal,
                                    struct owner_map_keys keys, uint64_t seq, uint64_t end_seq);

#endif
