#include "base/slab.h"

#include <assert.h>
#include <stdalign.h>
#include <stdlib.h>

#include "base/poison.h"

/* Mixed with the object's address: a live object holds its own by accident once in 2^64. */
#define FREE_MARK 0x9d8f3c61e24b57a6u

struct slab_block {
    struct slab_block *next;
    size_t bytes;
    alignas(SLAB_ALIGNMENT) char objects[];
};

/* What a free object holds in its first bytes. */
struct slab_free {
    struct slab_free *next;
    uint64_t mark;
};

static_assert(sizeof(struct slab_free) <= SLAB_ALIGNMENT, "the smallest object can be free");
static_assert(alignof(max_align_t) >= SLAB_ALIGNMENT, "malloc aligns enough");

static uint64_t free_mark(const void *object) {
    return FREE_MARK ^ (uint64_t)(uintptr_t)object;
}

void slab_init(struct slab *slab, size_t object_bytes, size_t block_count, size_t count_max) {
    assert(object_bytes > 0 && object_bytes <= SIZE_MAX / 2);
    assert(block_count > 0 && count_max > 0);
    size_t rounded = (object_bytes + SLAB_ALIGNMENT - 1) & ~(size_t)(SLAB_ALIGNMENT - 1);
    assert(block_count <= (SIZE_MAX - sizeof(struct slab_block)) / rounded);
    *slab = (struct slab){
        .object_bytes = rounded,
        .block_count = block_count,
        .count_max = count_max,
        .lowest = UINTPTR_MAX,
    };
}

void slab_release(struct slab *slab) {
    assert(slab->taken_count == 0);
    struct slab_block *block = slab->blocks;
    while (block) {
        struct slab_block *next = block->next;
        unpoison(block->objects, block->bytes);
        free(block);
        block = next;
    }
    slab_init(slab, slab->object_bytes, slab->block_count, slab->count_max);
}

static void slab_push(struct slab *slab, void *object) {
    struct slab_free *entry = object;
    entry->next = slab->free;
    entry->mark = free_mark(object);
    slab->free = entry;
    poison(object, slab->object_bytes);
}

static void slab_grow(struct slab *slab) {
    size_t left = slab->count_max - slab->made_count;
    size_t count = left < slab->block_count ? left : slab->block_count;
    if (count == 0)
        return;
    size_t bytes = count * slab->object_bytes;
    struct slab_block *block = malloc(sizeof(*block) + bytes);
    if (!block)
        return;
    block->next = slab->blocks;
    block->bytes = bytes;
    slab->blocks = block;
    slab->made_count += count;
    uintptr_t begin = (uintptr_t)block->objects;
    if (begin < slab->lowest)
        slab->lowest = begin;
    if (begin + bytes > slab->highest)
        slab->highest = begin + bytes;
    /* Backwards, so that objects are taken in the order of their addresses. */
    for (size_t i = count; i > 0; i--)
        slab_push(slab, block->objects + (i - 1) * slab->object_bytes);
}

void *slab_take(struct slab *slab) {
    if (!slab->free)
        slab_grow(slab);
    struct slab_free *entry = slab->free;
    if (!entry)
        return NULL;
    unpoison(entry, slab->object_bytes);
    assert(entry->mark == free_mark(entry));
    slab->free = entry->next;
    /* Else an object given back unwritten would look given already. */
    entry->mark = 0;
    slab->taken_count++;
    return entry;
}

void slab_give(struct slab *slab, void *object) {
    if (!object)
        return;
    uintptr_t address = (uintptr_t)object;
    assert(address % SLAB_ALIGNMENT == 0);
    assert(address >= slab->lowest && address + slab->object_bytes <= slab->highest);
    assert(slab->taken_count > 0);
    assert(((struct slab_free *)object)->mark != free_mark(object));
    slab->taken_count--;
    slab_push(slab, object);
}
