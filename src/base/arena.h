/* A bump allocator with a maximum, for memory that lives one turn or one request.
 * Thread: one at a time.
 * Memory: blocks double in size; arena_reset frees all allocations and keeps at most
 * ARENA_KEEP_BYTES.
 * Errors: NULL past the maximum or without memory; the arena stays usable.
 * Invariant: bytes_held counts all memory taken from the system, headers included, and is <=
 * bytes_max. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/slice.h"

#define ARENA_ALIGNMENT  16
#define ARENA_KEEP_BYTES 65536

struct arena_block;

struct arena {
    struct arena_block *block; /* the block being filled; full blocks follow it */
    size_t block_used;
    size_t bytes_held;
    size_t bytes_max;
};

/* Takes no memory yet. */
void arena_init(struct arena *arena, size_t bytes_max);
void arena_release(struct arena *arena);
void arena_reset(struct arena *arena);
/* Aligned to ARENA_ALIGNMENT, not cleared. A size of 0 returns a valid, distinct pointer. */
void *arena_alloc(struct arena *arena, size_t size);
/* A copy that lives as long as the arena's turn; data is NULL when there was no room. An empty
 * slice has non-NULL data. */
struct slice arena_copy(struct arena *arena, struct slice slice);

#endif
