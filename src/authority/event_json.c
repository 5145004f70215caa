#include "authority/event_json.h"

#include <assert.h>

#include "authority/worker_state.h"
#include "wire/canonical.h"
#include "wire/json.h"

/* Room for all of an event but its payload, entity id and type. */
#define EVENT_FIXED_BYTES 640

/* Writes members one after the other and remembers the first failure, so that a shape reads as
 * the list of its members. */
struct object_writer {
    struct buffer *out;
    size_t begin;
    enum status status;
};

static struct object_writer object_begin(struct buffer *out) {
    return (struct object_writer){out, out->size, buffer_append_byte(out, '{')};
}

static enum status object_end(struct object_writer *object) {
    if (object->status == STATUS_OK)
        object->status = buffer_append_byte(object->out, '}');
    if (object->status != STATUS_OK)
        object->out->size = object->begin;
    return object->status;
}

static void put_raw(struct object_writer *object, struct slice text) {
    if (object->status == STATUS_OK)
        object->status = buffer_append_slice(object->out, text);
}

static void put_name(struct object_writer *object, struct slice name) {
    if (object->out->size > object->begin + 1)
        put_raw(object, SLICE(","));
    put_raw(object, SLICE("\""));
    put_raw(object, name);
    put_raw(object, SLICE("\":"));
}

static void put_text(struct object_writer *object, struct slice name, struct slice text) {
    put_name(object, name);
    if (!text.data)
        put_raw(object, SLICE("null"));
    else if (object->status == STATUS_OK)
        object->status = json_write_string(object->out, text);
}

static void put_number(struct object_writer *object, struct slice name, uint64_t number) {
    put_name(object, name);
    if (object->status == STATUS_OK)
        object->status = buffer_append_u64(object->out, number);
}

static void put_time(struct object_writer *object, struct slice name, uint64_t time_ms) {
    if (time_ms > 0) {
        put_number(object, name, time_ms);
        return;
    }
    put_name(object, name);
    put_raw(object, SLICE("null"));
}

static void put_uuid(struct object_writer *object, struct slice name, const struct uuid *uuid) {
    char text[UUID_TEXT_SIZE];
    uuid_format(uuid, text);
    put_text(object, name, (struct slice){text, sizeof(text)});
}

static void put_cursor(struct object_writer *object, struct slice name, const struct uuid *uuid) {
    char text[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(uuid);
    put_text(object, name, (struct slice){text, event_cursor_encode(&cursor, text)});
}

static void put_hash(struct object_writer *object, struct slice name,
                     const uint8_t digest[SHA256_BYTES]) {
    char text[PAYLOAD_HASH_SIZE];
    payload_hash_text(digest, text);
    put_text(object, name, (struct slice){text, sizeof(text) - 1});
}

static void put_json(struct object_writer *object, struct slice name, struct slice json) {
    put_name(object, name);
    put_raw(object, json.data ? json : SLICE("null"));
}

enum status event_write_json(struct buffer *out, const struct store_event *event) {
    enum status status = buffer_reserve(out, EVENT_FIXED_BYTES + event->payload.size);
    if (status != STATUS_OK && status != STATUS_PAYLOAD_TOO_LARGE)
        return status;
    struct object_writer object = object_begin(out);
    put_uuid(&object, SLICE("event_id"), &event->event_id);
    put_cursor(&object, SLICE("cursor"), &event->cursor);
    put_text(&object, SLICE("entity"), slice_of(entity_kind_name(event->entity_kind)));
    put_text(&object, SLICE("entity_id"), event->entity_id);
    put_number(&object, SLICE("seq"), event->seq);
    put_text(&object, SLICE("event_type"), event->type);
    put_json(&object, SLICE("payload"), event->payload);
    put_number(&object, SLICE("recorded_at"), uuid7_timestamp_ms(&event->cursor));
    put_hash(&object, SLICE("prev_hash"), event->prev_hash);
    put_hash(&object, SLICE("event_hash"), event->event_hash);
    return object_end(&object);
}

static void put_owner(struct object_writer *object, const struct store_owner *owner) {
    put_text(object, SLICE("owner_user_id"), owner->user_id);
    put_text(object, SLICE("owner_guest_scope"), owner->guest_scope);
    put_text(object, SLICE("org_id"), owner->org_id);
}

static struct slice metadata_or_empty(const struct store_entity *entity) {
    return entity->metadata.data ? entity->metadata : SLICE("{}");
}

static void put_head(struct object_writer *object, const struct store_entity *entity) {
    put_number(object, SLICE("latest_seq"), entity->head_seq);
    put_hash(object, SLICE("head_hash"), entity->head_hash);
}

enum status run_write_json(struct buffer *out, const struct store_entity *run) {
    assert(run->kind == ENTITY_RUN);
    struct object_writer object = object_begin(out);
    put_text(&object, SLICE("run_id"), run->id);
    put_text(&object, SLICE("status"), run->status);
    put_owner(&object, &run->owner);
    put_text(&object, SLICE("worker_id"), run->worker_id);
    put_text(&object, SLICE("thread_id"), run->thread_id);
    put_json(&object, SLICE("metadata"), metadata_or_empty(run));
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
    put_text(&object, SLICE("worker_id"), worker->id);
    put_text(&object, SLICE("status"), worker->status);
    put_owner(&object, &worker->owner);
    put_text(&object, SLICE("workspace_ref"), worker->workspace_ref);
    put_text(&object, SLICE("codex_home_ref"), worker->codex_home_ref);
    put_text(&object, SLICE("adapter"), worker->adapter);
    put_json(&object, SLICE("metadata"), metadata_or_empty(worker));
    put_time(&object, SLICE("created_at"), worker->created_at_ms);
    put_time(&object, SLICE("started_at"), worker->started_at_ms);
    put_time(&object, SLICE("stopped_at"), worker->stopped_at_ms);
    put_time(&object, SLICE("last_heartbeat_at"), worker->last_heartbeat_at_ms);
    put_text(&object, SLICE("liveness"), slice_of(worker_liveness(worker, now_ms)));
    put_head(&object, worker);
    return object_end(&object);
}
