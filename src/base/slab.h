/* Objects of one size with a maximum count: taking and giving back is a few instructions.
 * Owned by one thread. Memory comes in blocks and stays with the slab until slab_release: what
 * a peak took once is there for the next peak. slab_take answers NULL at the maximum or without
 * memory. A given object is poisoned; giving one twice, writing to a given one, or giving what
 * lies outside the slab asserts. taken_count <= made_count <= count_max. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>
#include <stdint.h>

#define SLAB_ALIGNMENT 16

struct slab_block;
struct slab_free;

struct slab {
    struct slab_free *free;
    struct slab_block *blocks;
    size_t object_bytes; /* rounded up to SLAB_ALIGNMENT */
    size_t block_count;
    size_t count_max;
    size_t made_count;
    size_t taken_count;
    uintptr_t lowest; /* where the objects of all blocks lie */
    uintptr_t highest;
};

/* Takes no memory yet; then block_count objects at a time. */
void slab_init(struct slab *slab, size_t object_bytes, size_t block_count, size_t count_max);
/* Every object must have been given back. */
void slab_release(struct slab *slab);
/* Aligned to SLAB_ALIGNMENT, not cleared. */
void *slab_take(struct slab *slab);
/* NULL is allowed and does nothing. */
void slab_give(struct slab *slab, void *object);

#endif
