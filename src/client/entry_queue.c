#include "client/entry_queue.h"

#include <stdlib.h>

void entry_queue_init(struct entry_queue *queue) {
    *queue = (struct entry_queue){.frames = 0};
    list_init(&queue->entries);
}

void entry_queue_clear(struct entry_queue *queue) {
    while (!list_is_empty(&queue->entries))
        entry_queue_drop_first(queue);
}

enum status entry_queue_push(struct entry_queue *queue, const struct entry *entry) {
    if (entry->kind == ENTRY_MOVE && !list_is_empty(&queue->entries)) {
        struct entry *last = container_of(list_last(&queue->entries), struct entry, node);
        if (last->kind == ENTRY_MOVE) {
            last->position = entry->position;
            return STATUS_OK;
        }
    }
    struct entry *made = malloc(sizeof(*made) + entry->json.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    *made = *entry;
    made->node = (struct list_node){0};
    made->bytes = sizeof(*made) + entry->json.size;
    if (entry->json.data) {
        memcpy((char *)(made + 1), entry->json.data, entry->json.size);
        made->json.data = (const char *)(made + 1);
    }
    list_push_back(&queue->entries, &made->node);
    queue->frames += entry->kind == ENTRY_FRAME;
    queue->bytes += made->bytes;
    return STATUS_OK;
}

const struct entry *entry_queue_first(const struct entry_queue *queue) {
    struct list_node *first = list_first(&queue->entries);
    return first ? container_of(first, struct entry, node) : NULL;
}

void entry_queue_drop_first(struct entry_queue *queue) {
    struct entry *entry = container_of(list_pop_front(&queue->entries), struct entry, node);
    queue->frames -= entry->kind == ENTRY_FRAME;
    queue->bytes -= entry->bytes;
    free(entry);
}
