#include "authority/event_json.h"

#include <assert.h>

#include "authority/worker_state.h"
#include "wire/object_writer.h"

/* Room for all of an event but its payload, entity id and type. */
#define EVENT_FIXED_BYTES 800

static void put_time(struct object_writer *object, struct slice name, uint64_t time_ms) {
    if (time_ms > 0) {
        object_number(object, name, time_ms);
        return;
    }
    object_json(object, name, SLICE("null"));
}

static void put_uuid(struct object_writer *object, struct slice name, const struct uuid *uuid) {
    char text[UUID_TEXT_SIZE];
    uuid_format(uuid, text);
    object_text(object, name, (struct slice){text, sizeof(text)});
}

static void put_cursor(struct object_writer *object, struct slice name, const struct uuid *uuid) {
    char text[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(uuid);
    object_text(object, name, (struct slice){text, event_cursor_encode(&cursor, text)});
}

/* Opens the member here, because an object writer writes whole members. */
static void put_event_owner(struct object_writer *object, const struct owner *owner) {
    object_json(object, SLICE("owner"), SLICE(""));
    if (object->status != STATUS_OK)
        return;
    struct object_writer inner = object_begin(object->out);
    object_text_given(&inner, SLICE("user_id"), owner->user_id);
    object_text_given(&inner, SLICE("guest_scope"), owner->guest_scope);
    object_text_given(&inner, SLICE("org_id"), owner->org_id);
    object->status = object_end(&inner);
}

enum status event_write_json(struct buffer *out, const struct store_event *event) {
    enum status status = buffer_reserve(out, EVENT_FIXED_BYTES + event->payload.size);
    if (status != STATUS_OK && status != STATUS_PAYLOAD_TOO_LARGE)
        return status;
    struct object_writer object = object_begin(out);
    put_uuid(&object, SLICE("event_id"), &event->event_id);
    put_cursor(&object, SLICE("cursor"), &event->cursor);
    object_text(&object, SLICE("entity"), slice_of(entity_kind_name(event->entity_kind)));
    object_text(&object, SLICE("entity_id"), event->entity_id);
    object_number(&object, SLICE("seq"), event->seq);
    object_text(&object, SLICE("event_type"), event->type);
    object_json(&object, SLICE("payload"), event->payload);
    object_hash(&object, SLICE("payload_hash"), event->payload_hash);
    put_event_owner(&object, &event->owner);
    object_number(&object, SLICE("recorded_at"), event->recorded_at_ms);
    object_hash(&object, SLICE("prev_chain_hash"), event->prev_chain_hash);
    object_hash(&object, SLICE("chain_hash"), event->chain_hash);
    if (event->chain_version < STORE_CHAIN_VERSION)
        object_number(&object, SLICE("chain_version"), event->chain_version);
    return object_end(&object);
}

static void put_owner(struct object_writer *object, const struct owner *owner) {
    object_text(object, SLICE("owner_user_id"), owner->user_id);
    object_text(object, SLICE("owner_guest_scope"), owner->guest_scope);
    object_text(object, SLICE("org_id"), owner->org_id);
}

static struct slice metadata_or_empty(const struct store_entity *entity) {
    return entity->metadata.data ? entity->metadata : SLICE("{}");
}

static void put_head(struct object_writer *object, const struct store_entity *entity) {
    object_number(object, SLICE("latest_seq"), entity->head_seq);
    object_hash(object, SLICE("head_hash"), entity->head_hash);
}

enum status run_write_json(struct buffer *out, const struct store_entity *run) {
    assert(run->kind == ENTITY_RUN);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("run_id"), run->id);
    object_text(&object, SLICE("status"), run->status);
    put_owner(&object, &run->owner);
    object_text(&object, SLICE("worker_id"), run->worker_id);
    object_text(&object, SLICE("thread_id"), run->thread_id);
    object_json(&object, SLICE("metadata"), metadata_or_empty(run));
    put_time(&object, SLICE("created_at"), run->created_at_ms);
    put_time(&object, SLICE("started_at"), run->started_at_ms);
    put_time(&object, SLICE("finished_at"), run->stopped_at_ms);
    put_head(&object, run);
    return object_end(&object);
}

enum status worker_write_json(struct buffer *out, const struct store_entity *worker,
                              uint64_t now_ms) {
    assert(worker->kind == ENTITY_WORKER);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("worker_id"), worker->id);
    object_text(&object, SLICE("status"), worker->status);
    put_owner(&object, &worker->owner);
    object_text(&object, SLICE("workspace_ref"), worker->workspace_ref);
    object_text(&object, SLICE("codex_home_ref"), worker->codex_home_ref);
    object_text(&object, SLICE("adapter"), worker->adapter);
    object_json(&object, SLICE("metadata"), metadata_or_empty(worker));
    put_time(&object, SLICE("created_at"), worker->created_at_ms);
    put_time(&object, SLICE("started_at"), worker->started_at_ms);
    put_time(&object, SLICE("stopped_at"), worker->stopped_at_ms);
    put_time(&object, SLICE("last_heartbeat_at"), worker->last_heartbeat_at_ms);
    object_text(&object, SLICE("liveness"), slice_of(worker_liveness(worker, now_ms)));
    put_head(&object, worker);
    return object_end(&object);
}
