#include "authority/append_order.h"

#include "authority/lookups.h"
#include "base/limits.h"
#include "topic/topic_name.h"

/* A topic's name is the longest id. */
#define KEY_BYTES_MAX (1 + TOPIC_NAME_BYTES_MAX)

void append_order_init(struct append_order *order) {
    order->blocks_all = false;
    order->last_waiting = NULL;
    atomic_init(&order->is_abandoned, false);
    map_init(&order->entities, BATCH_BLOCKED_ENTITIES_MAX);
    arena_init(&order->names, BATCH_BLOCKED_BYTES_MAX);
}

void append_order_release(struct append_order *order) {
    map_release(&order->entities);
    arena_release(&order->names);
}

/* Empty for a request that was refused before its entity was known. */
static struct slice key_of(const struct append_request *request, char text[KEY_BYTES_MAX]) {
    struct slice id = append_entity_id(request);
    if (request->kind == APPEND_KIND_COUNT || !id.data || id.size > TOPIC_NAME_BYTES_MAX)
        return (struct slice){text, 0};
    text[0] = (char)append_entity_kind(request->kind);
    memcpy(text + 1, id.data, id.size);
    return (struct slice){text, 1 + id.size};
}

void append_order_note(struct append_order *order, const struct append_request *request) {
    char text[KEY_BYTES_MAX];
    int http = status_http(request->status);
    if (http != 429 && http != 503)
        return;
    struct slice key = key_of(request, text);
    if (key.size > 0 && map_find(&order->entities, key))
        return;
    struct slice kept = key.size > 0 ? arena_copy(&order->names, key) : (struct slice){NULL, 0};
    if (!kept.data || map_insert(&order->entities, kept, order) != STATUS_OK)
        order->blocks_all = true;
}

bool append_order_blocks(const struct append_order *order, const struct append_request *request) {
    char text[KEY_BYTES_MAX];
    if (order->blocks_all || order->entities.count == 0)
        return order->blocks_all;
    struct slice key = key_of(request, text);
    return key.size > 0 && map_find(&order->entities, key);
}
