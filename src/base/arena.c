#include "base/arena.h"

#include <assert.h>
#include <stdalign.h>
#include <stdlib.h>

#include "base/poison.h"

#define BLOCK_BYTES_FIRST 4096

/* bytes is all of the block, this header included. */
struct arena_block {
    struct arena_block *next;
    size_t bytes;
    alignas(ARENA_ALIGNMENT) char data[];
};

static_assert(sizeof(struct arena_block) % ARENA_ALIGNMENT == 0, "data begins aligned");
static_assert(alignof(max_align_t) >= ARENA_ALIGNMENT, "malloc aligns enough");

static size_t block_capacity(const struct arena_block *block) {
    return block->bytes - sizeof(*block);
}

static void block_free(struct arena *arena, struct arena_block *block) {
    arena->bytes_held -= block->bytes;
    unpoison(block->data, block_capacity(block));
    free(block);
}

void arena_init(struct arena *arena, size_t bytes_max) {
    assert(bytes_max > 0);
    *arena = (struct arena){.bytes_max = bytes_max};
}

void arena_release(struct arena *arena) {
    struct arena_block *block = arena->block;
    while (block) {
        struct arena_block *next = block->next;
        block_free(arena, block);
        block = next;
    }
    assert(arena->bytes_held == 0);
    arena_init(arena, arena->bytes_max);
}

/* Keeps the largest block within ARENA_KEEP_BYTES, so that the next turn need not grow again. */
void arena_reset(struct arena *arena) {
    struct arena_block *kept = NULL;
    struct arena_block *block = arena->block;
    while (block) {
        struct arena_block *next = block->next;
        struct arena_block *ending = block;
        if (block->bytes <= ARENA_KEEP_BYTES && (!kept || block->bytes > kept->bytes)) {
            ending = kept;
            kept = block;
        }
        if (ending)
            block_free(arena, ending);
        block = next;
    }
    arena->block = kept;
    arena->block_used = 0;
    if (kept) {
        kept->next = NULL;
        poison(kept->data, block_capacity(kept));
    }
}

/* Room for size in a new block: twice the last one, or less if the maximum is near. */
static bool arena_grow(struct arena *arena, size_t size) {
    size_t left = arena->bytes_max - arena->bytes_held;
    if (left < sizeof(struct arena_block) || size > left - sizeof(struct arena_block))
        return false;
    size_t needed = sizeof(struct arena_block) + size;
    size_t bytes = BLOCK_BYTES_FIRST;
    if (arena->block)
        bytes = arena->block->bytes > left / 2 ? left : arena->block->bytes * 2;
    if (bytes < needed)
        bytes = needed;
    if (bytes > left)
        bytes = left;
    struct arena_block *block = malloc(bytes);
    if (!block)
        return false;
    block->next = arena->block;
    block->bytes = bytes;
    poison(block->data, block_capacity(block));
    arena->block = block;
    arena->block_used = 0;
    arena->bytes_held += bytes;
    assert(arena->bytes_held <= arena->bytes_max);
    return true;
}

void *arena_alloc(struct arena *arena, size_t size) {
    if (size > arena->bytes_max)
        return NULL;
    size_t room = arena->block ? block_capacity(arena->block) - arena->block_used : 0;
    if ((size > room || room == 0) && !arena_grow(arena, size > 0 ? size : 1))
        return NULL;
    char *data = arena->block->data + arena->block_used;
    size_t rounded = (size + (size == 0) + ARENA_ALIGNMENT - 1) & ~(size_t)(ARENA_ALIGNMENT - 1);
    size_t capacity = block_capacity(arena->block);
    /* The last piece of a block of odd size may end inside its alignment. */
    arena->block_used =
        rounded < capacity - arena->block_used ? arena->block_used + rounded : capacity;
    unpoison(data, size);
    return data;
}

struct slice arena_copy(struct arena *arena, struct slice slice) {
    char *data = arena_alloc(arena, slice.size);
    if (!data)
        return (struct slice){NULL, 0};
    if (slice.size > 0)
        memcpy(data, slice.data, slice.size);
    return (struct slice){data, slice.size};
}
