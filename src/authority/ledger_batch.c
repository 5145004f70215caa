#include "authority/ledger_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"

/* A key of the index: the entity's ref, then the idempotency key. */
#define REF_BYTES sizeof(uint64_t)

enum status ledger_batch_init(struct ledger_batch *batch) {
    *batch = (struct ledger_batch){0};
    map_init(&batch->key_index, BATCH_REQUESTS_MAX);
    map_init(&batch->stream_index, BATCH_REQUESTS_MAX);
    arena_init(&batch->arena, BATCH_ARENA_BYTES_MAX);
    batch->events = calloc(BATCH_REQUESTS_MAX, sizeof(*batch->events));
    batch->states = calloc(BATCH_REQUESTS_MAX, sizeof(*batch->states));
    batch->changed = calloc(BATCH_REQUESTS_MAX, sizeof(struct entity_entry *));
    batch->entities = calloc(BATCH_REQUESTS_MAX, sizeof(*batch->entities));
    batch->keys = calloc(BATCH_REQUESTS_MAX, sizeof(*batch->keys));
    batch->topics = calloc(BATCH_REQUESTS_MAX, sizeof(*batch->topics));
    batch->pending = calloc(BATCH_REQUESTS_MAX, sizeof(struct append_request *));
    if (batch->events && batch->states && batch->changed && batch->entities && batch->keys &&
        batch->topics && batch->pending)
        return STATUS_OK;
    ledger_batch_release(batch);
    return STATUS_OUT_OF_MEMORY;
}

void ledger_batch_release(struct ledger_batch *batch) {
    free(batch->events);
    free(batch->states);
    free(batch->changed);
    free(batch->entities);
    free(batch->keys);
    free(batch->topics);
    free(batch->pending);
    map_release(&batch->key_index);
    map_release(&batch->stream_index);
    arena_release(&batch->arena);
}

void ledger_batch_begin(struct ledger_batch *batch, uint64_t first_log_id) {
    batch->first_log_id = first_log_id;
    batch->imported_log_id = 0;
    batch->room_least = STORE_ROOM_FREE;
    batch->event_count = batch->changed_count = batch->key_count = 0;
    batch->topic_count = batch->pending_count = 0;
    batch->outbox_count = batch->rejection_count = 0;
    if (batch->key_index.count > 0)
        map_release(&batch->key_index);
    if (batch->stream_index.count > 0)
        map_release(&batch->stream_index);
    arena_reset(&batch->arena);
}

const struct store_event *ledger_batch_event(const struct ledger_batch *batch, uint64_t log_id) {
    if (log_id < batch->first_log_id || log_id - batch->first_log_id >= batch->event_count)
        return NULL;
    return &batch->events[log_id - batch->first_log_id];
}

/* Minted ids are cursors, which rise. */
uint64_t ledger_batch_find_minted(const struct ledger_batch *batch, const struct uuid *id) {
    size_t first = 0;
    size_t end = batch->event_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (uuid_compare(&batch->events[middle].cursor, id) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    bool is_found = first < batch->event_count &&
                    uuid_compare(&batch->events[first].cursor, id) == 0 &&
                    uuid_compare(&batch->events[first].event_id, id) == 0;
    return is_found ? batch->events[first].log_id : 0;
}

static struct slice index_key(char *memory, uint64_t entity_ref, struct slice key) {
    memcpy(memory, &entity_ref, REF_BYTES);
    memcpy(memory + REF_BYTES, key.data, key.size);
    return (struct slice){memory, REF_BYTES + key.size};
}

uint64_t ledger_batch_find_key(const struct ledger_batch *batch, uint64_t entity_ref,
                               struct slice key) {
    char memory[REF_BYTES + APPEND_IDEMPOTENCY_BYTES_MAX];
    assert(key.size <= APPEND_IDEMPOTENCY_BYTES_MAX);
    if (batch->key_count == 0)
        return 0;
    const struct store_key *found = map_find(&batch->key_index, index_key(memory, entity_ref, key));
    return found ? found->log_id : 0;
}

const struct store_topic *ledger_batch_find_stream(const struct ledger_batch *batch,
                                                   struct slice stream_id) {
    return batch->topic_count > 0 ? map_find(&batch->stream_index, stream_id) : NULL;
}

enum status ledger_batch_add_key(struct ledger_batch *batch, const struct store_key *key) {
    assert(batch->key_count < BATCH_REQUESTS_MAX);
    char *memory = arena_alloc(&batch->arena, REF_BYTES + key->key.size);
    if (!memory)
        return STATUS_OUT_OF_MEMORY;
    struct store_key *row = &batch->keys[batch->key_count];
    enum status status =
        map_insert(&batch->key_index, index_key(memory, key->entity_ref, key->key), row);
    if (status != STATUS_OK)
        return STATUS_OUT_OF_MEMORY;
    *row = *key;
    batch->key_count++;
    return STATUS_OK;
}

enum status ledger_batch_add_topic(struct ledger_batch *batch, const struct store_topic *topic) {
    assert(batch->topic_count < BATCH_REQUESTS_MAX);
    struct store_topic *row = &batch->topics[batch->topic_count];
    enum status status = map_insert(&batch->stream_index, topic->stream_id, row);
    if (status != STATUS_OK)
        return STATUS_OUT_OF_MEMORY;
    *row = *topic;
    batch->topic_count++;
    return STATUS_OK;
}

void ledger_batch_add_changed(struct ledger_batch *batch, struct entity_entry *entry) {
    if (entry->is_changed)
        return;
    assert(batch->changed_count < BATCH_REQUESTS_MAX);
    entry->is_changed = true;
    batch->changed[batch->changed_count++] = entry;
}

void ledger_batch_add_pending(struct ledger_batch *batch, struct append_request *request) {
    assert(batch->pending_count < BATCH_REQUESTS_MAX);
    batch->pending[batch->pending_count++] = request;
}

void ledger_batch_fill(struct ledger_batch *batch, struct store_batch *rows) {
    for (size_t i = 0; i < batch->changed_count; i++) {
        batch->entities[i] = batch->changed[i]->entity;
        /* A heartbeat would write all of the metadata again. */
        if (!batch->changed[i]->writes_metadata)
            batch->entities[i].metadata = (struct slice){NULL, 0};
    }
    *rows = (struct store_batch){
        .entities = batch->entities,
        .entity_count = batch->changed_count,
        .events = batch->events,
        .event_count = batch->event_count,
        .keys = batch->keys,
        .key_count = batch->key_count,
        .topics = batch->topics,
        .topic_count = batch->topic_count,
        .outbox_ids = batch->outbox_ids,
        .outbox_count = batch->outbox_count,
        .rejections = batch->rejections,
        .rejection_count = batch->rejection_count,
        .imported_log_id = batch->imported_log_id,
        .room_least = batch->room_least,
        .is_shared = batch->is_shared,
    };
}
