#include "authority/event_json.h"

#include <assert.h>

#include "authority/worker_state.h"
#include "base/decimal.h"
#include "wire/canonical.h"
#include "wire/json.h"
#include "wire/object_writer.h"
#include "wire/put.h"

/* All of an event besides its payload and its texts. */
#define EVENT_FIXED_BYTES 800

static void put_time(struct object_writer *object, struct slice name, uint64_t time_ms) {
    if (time_ms > 0) {
        object_number(object, name, time_ms);
        return;
    }
    object_json(object, name, SLICE("null"));
}

static char *put_hash(char *at, const uint8_t digest[SHA256_BYTES]) {
    *at++ = '"';
    payload_hash_text(digest, at);
    at += PAYLOAD_HASH_SIZE - 1; /* without its NUL */
    *at++ = '"';
    return at;
}

static char *put_ids(char *at, const struct store_event *event) {
    const struct event_cursor cursor = event_cursor_of(&event->cursor);
    at = PUT_LITERAL(at, "{\"event_id\":\"");
    uuid_format(&event->event_id, at);
    at = PUT_LITERAL(at + UUID_TEXT_SIZE, "\",\"cursor\":\"");
    at += event_cursor_encode(&cursor, at);
    *at++ = '"';
    return at;
}

static char *put_event_owner(char *at, const struct owner *owner) {
    const struct {
        struct slice name;
        struct slice text;
    } members[] = {
        {SLICE(",\"user_id\":"), owner->user_id},
        {SLICE(",\"guest_scope\":"), owner->guest_scope},
        {SLICE(",\"org_id\":"), owner->org_id},
    };
    char *begin = at;
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
        if (members[i].text.data)
            at = json_put_string(put_slice(at, members[i].name), members[i].text);
    /* The brace takes the place of the first comma. */
    if (at == begin)
        at++;
    *begin = '{';
    *at++ = '}';
    return at;
}

static size_t event_bytes_max(const struct store_event *event) {
    const struct owner *owner = &event->owner;
    return EVENT_FIXED_BYTES + event->payload.size + json_string_bytes(event->entity_id) +
           json_string_bytes(event->type) + json_string_bytes(owner->user_id) +
           json_string_bytes(owner->guest_scope) + json_string_bytes(owner->org_id);
}

/* Each append is answered with its event, so the memory of all members is reserved once. */
enum status event_write_json(struct buffer *out, const struct store_event *event) {
    enum status status = buffer_reserve(out, event_bytes_max(event));
    if (status != STATUS_OK)
        return status;
    char *at = put_ids(out->data + out->size, event);
    at = PUT_LITERAL(at, ",\"entity\":\"");
    at = put_slice(at, slice_of(entity_kind_name(event->entity_kind)));
    at = json_put_string(PUT_LITERAL(at, "\",\"entity_id\":"), event->entity_id);
    at = decimal_write_u64(PUT_LITERAL(at, ",\"seq\":"), event->seq);
    at = json_put_string(PUT_LITERAL(at, ",\"event_type\":"), event->type);
    at = put_slice(PUT_LITERAL(at, ",\"payload\":"), event->payload);
    at = put_hash(PUT_LITERAL(at, ",\"payload_hash\":"), event->payload_hash);
    at = put_event_owner(PUT_LITERAL(at, ",\"owner\":"), &event->owner);
    at = decimal_write_u64(PUT_LITERAL(at, ",\"recorded_at\":"), event->recorded_at_ms);
    at = put_hash(PUT_LITERAL(at, ",\"prev_chain_hash\":"), event->prev_chain_hash);
    at = put_hash(PUT_LITERAL(at, ",\"chain_hash\":"), event->chain_hash);
    if (event->chain_version < STORE_CHAIN_VERSION)
        at = decimal_write_u64(PUT_LITERAL(at, ",\"chain_version\":"), event->chain_version);
    *at++ = '}';
    out->size = (size_t)(at - out->data);
    return STATUS_OK;
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
