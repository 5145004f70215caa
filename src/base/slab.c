#include "base/slab.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/poison.h"

/* The beginning of a free item. */
struct free_item {
    struct free_item *next;
};

/* The address of a block is a multiple of SLAB_BLOCK_BYTES, so an item's address leads to it. */
struct block {
    struct hlist_node node; /* in slab.roomy, while it has room */
    struct free_item *free;
    size_t used_count;
    size_t fresh_bytes; /* the end of the items that were used so far */
};

static struct block *block_of(void *item) {
    char *address = item;
    return (struct block *)(void *)(address - (uintptr_t)address % SLAB_BLOCK_BYTES);
}

static bool is_full(const struct slab *slab, const struct block *block) {
    return !block->free && block->fresh_bytes + slab->item_bytes > SLAB_BLOCK_BYTES;
}

static size_t aligned(size_t bytes) {
    size_t alignment = SLAB_ALIGNMENT;
    return (bytes + alignment - 1) / alignment * alignment;
}

/* Memory of the system whose address is a multiple of its size. malloc would leave gaps as large as
 * the blocks. */
static char *map_aligned(void) {
    char *memory = mmap(NULL, 2 * (size_t)SLAB_BLOCK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t before = (SLAB_BLOCK_BYTES - (uintptr_t)memory % SLAB_BLOCK_BYTES) % SLAB_BLOCK_BYTES;
    if (before > 0)
        (void)munmap(memory, before);
    (void)munmap(memory + before + SLAB_BLOCK_BYTES, SLAB_BLOCK_BYTES - before);
    return memory + before;
}

static struct block *block_make(struct slab *slab) {
    char *memory = map_aligned();
    if (!memory)
        return NULL;
    struct block *block = (struct block *)memory;
    *block = (struct block){.fresh_bytes = aligned(sizeof(*block))};
    poison(memory + block->fresh_bytes, SLAB_BLOCK_BYTES - block->fresh_bytes);
    hlist_push_front(&slab->roomy, &block->node);
    return block;
}

static void block_free(struct block *block) {
    hlist_remove(&block->node);
    unpoison(block, SLAB_BLOCK_BYTES);
    (void)munmap(block, SLAB_BLOCK_BYTES);
}

void slab_release(struct slab *slab) {
    assert(slab->item_count == 0);
    while (slab->roomy.first)
        block_free(container_of(slab->roomy.first, struct block, node));
}

void *slab_take(struct slab *slab, size_t item_bytes) {
    struct hlist_node *node = slab->roomy.first;
    assert(item_bytes > 0 && item_bytes <= SLAB_ITEM_BYTES_MAX);
    assert(slab->item_bytes == 0 || slab->item_bytes == aligned(item_bytes));
    slab->item_bytes = aligned(item_bytes);
    struct block *block = node ? container_of(node, struct block, node) : block_make(slab);
    if (!block)
        return NULL;
    void *item = block->free;
    if (item) {
        unpoison(item, slab->item_bytes);
        block->free = block->free->next;
    } else {
        item = (char *)block + block->fresh_bytes;
        unpoison(item, slab->item_bytes);
        block->fresh_bytes += slab->item_bytes;
    }
    block->used_count++;
    slab->item_count++;
    if (is_full(slab, block))
        hlist_remove(&block->node);
    return memset(item, 0, slab->item_bytes);
}

void slab_give(struct slab *slab, void *item) {
    struct block *block = block_of(item);
    struct free_item *freed = item;
    assert(block->used_count > 0 && slab->item_count > 0);
    if (!hlist_node_is_linked(&block->node))
        hlist_push_front(&slab->roomy, &block->node);
    freed->next = block->free;
    block->free = freed;
    poison(item, slab->item_bytes);
    block->used_count--;
    slab->item_count--;
    /* The last one stays: an item that comes and goes would allocate each time. */
    bool is_only = slab->roomy.first == &block->node && !block->node.next;
    if (block->used_count == 0 && !is_only)
        block_free(block);
}
