/* A slab: items of one size, packed into blocks. An item has no overhead of its own, and memory
 * that is allocated for a short time leaves no gaps between items that live long.
 * Owned by one thread at a time.
 * Memory: blocks of SLAB_BLOCK_BYTES, of which only the pages that were used are resident. A block
 * returns to the system with its last item, unless it is the only block with room.
 * NULL for an item that cannot be made.
 * An item that was given back is not used again; AddressSanitizer reports access to it. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>

#include "base/list.h"

#define SLAB_BLOCK_BYTES    65536
#define SLAB_ITEM_BYTES_MAX 1024
/* Enough for pointers and integers. */
#define SLAB_ALIGNMENT 8

/* A slab of zeroes is empty. It may not move once it has an item. */
struct slab {
    size_t item_bytes;  /* 0: no item was taken yet */
    struct hlist roomy; /* blocks with room */
    size_t item_count;
};

/* After its last item was given back. */
void slab_release(struct slab *slab);
/* An item of zeroes. The size is the same in every call. */
void *slab_take(struct slab *slab, size_t item_bytes);
void slab_give(struct slab *slab, void *item);

#endif
