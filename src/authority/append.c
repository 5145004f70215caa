#include "authority/append.h"

#include "base/limits.h"
#include "topic/topic_name.h"

/* A topic's name is the longest id. */
#define KEY_BYTES_MAX (1 + TOPIC_NAME_BYTES_MAX)

/* ---- requests and groups ---- */

enum entity_kind append_entity_kind(enum append_kind kind) {
    switch (kind) {
    case APPEND_RUN_CREATE:
    case APPEND_RUN_EVENT:
        return ENTITY_RUN;
    case APPEND_WORKER_CREATE:
    case APPEND_WORKER_HEARTBEAT:
    case APPEND_WORKER_STATUS:
    case APPEND_WORKER_EVENT:
        return ENTITY_WORKER;
    case APPEND_AUDIT_EVENT:
        return ENTITY_AUDIT;
    case APPEND_TOPIC_EVENT:
    case APPEND_NOTIFICATION:
    case APPEND_KIND_COUNT:
        break;
    }
    return ENTITY_TOPIC;
}

bool append_is_creation(enum append_kind kind) {
    return kind == APPEND_RUN_CREATE || kind == APPEND_WORKER_CREATE;
}

bool append_key_is_scoped(enum append_kind kind) {
    return append_is_creation(kind) || kind == APPEND_TOPIC_EVENT || kind == APPEND_NOTIFICATION;
}

struct slice append_entity_id(const struct append_request *request) {
    if (request->kind == APPEND_NOTIFICATION)
        return topic_name(TOPIC_NOTIFICATIONS);
    if (request->kind == APPEND_AUDIT_EVENT)
        return SLICE(AUDIT_ENTITY_ID);
    if (request->kind == APPEND_TOPIC_EVENT && topic_is_projection_owned(request->entity_id))
        return (struct slice){NULL, 0};
    return request->entity_id;
}

void append_group_refuse(struct append_group *group, enum status status) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK)
            group->requests[i].status = status;
}

void append_group_refuse_new(struct append_group *group, enum status status) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK && !group->requests[i].import)
            group->requests[i].status = status;
}

/* ---- the order of a batch ---- */

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
