#include "authority/event_write.h"

#include <assert.h>

#include "authority/entity_state.h"
#include "base/decimal.h"
#include "wire/canonical.h"
#include "wire/csv.h"
#include "wire/json.h"
#include "wire/put.h"

/* The text of an event without its payload, ids and owner. */
#define EVENT_FIXED_BYTES 800
#define COLUMN_COUNT      15
#define NUMBER_SIZE_MAX   20

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

/* Each append is answered with its event, so the memory of all members is reserved once. */
enum status event_write_json(struct buffer *out, const struct store_event *event) {
    const struct event_cursor cursor = event_cursor_of(&event->cursor);
    const struct owner *owner = &event->owner;
    const struct slice owner_names[] = {SLICE(",\"user_id\":"), SLICE(",\"guest_scope\":"),
                                        SLICE(",\"org_id\":")};
    const struct slice owner_parts[] = {owner->user_id, owner->guest_scope, owner->org_id};
    size_t bytes = EVENT_FIXED_BYTES + event->payload.size + json_string_bytes(event->entity_id) +
                   json_string_bytes(event->type);
    for (size_t i = 0; i < 3; i++)
        bytes += json_string_bytes(owner_parts[i]);
    enum status status = buffer_reserve(out, bytes);
    if (status != STATUS_OK)
        return status;
    char *at = PUT_LITERAL(out->data + out->size, "{\"event_id\":\"");
    uuid_format(&event->event_id, at);
    at = PUT_LITERAL(at + UUID_TEXT_SIZE, "\",\"cursor\":\"");
    at += event_cursor_encode(&cursor, at);
    at = PUT_LITERAL(at, "\",\"entity\":\"");
    at = put_slice(at, slice_of(entity_kind_name(event->entity_kind)));
    at = json_put_string(PUT_LITERAL(at, "\",\"entity_id\":"), event->entity_id);
    at = decimal_write_u64(PUT_LITERAL(at, ",\"seq\":"), event->seq);
    at = json_put_string(PUT_LITERAL(at, ",\"event_type\":"), event->type);
    at = put_slice(PUT_LITERAL(at, ",\"payload\":"), event->payload);
    at = put_hash(PUT_LITERAL(at, ",\"payload_hash\":"), event->payload_hash);
    at = PUT_LITERAL(at, ",\"owner\":");
    char *begin = at;
    for (size_t i = 0; i < 3; i++)
        if (owner_parts[i].data)
            at = json_put_string(put_slice(at, owner_names[i]), owner_parts[i]);
    /* The brace takes the place of the first comma. */
    if (at == begin)
        at++;
    *begin = '{';
    *at++ = '}';
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

void run_put_members(struct object_writer *object, const struct store_entity *run) {
    assert(run->kind == ENTITY_RUN);
    object_text(object, SLICE("run_id"), run->id);
    object_text(object, SLICE("status"), run->status);
    put_owner(object, &run->owner);
    object_text(object, SLICE("worker_id"), run->worker_id);
    object_text(object, SLICE("thread_id"), run->thread_id);
    object_json(object, SLICE("metadata"), metadata_or_empty(run));
    put_time(object, SLICE("created_at"), run->created_at_ms);
    put_time(object, SLICE("started_at"), run->started_at_ms);
    put_time(object, SLICE("finished_at"), run->stopped_at_ms);
    put_head(object, run);
}

enum status run_write_json(struct buffer *out, const struct store_entity *run) {
    struct object_writer object = object_begin(out);
    run_put_members(&object, run);
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

/* ---- tables ---- */

/* The texts of columns that the row itself does not hold. */
struct columns {
    char event_id[UUID_TEXT_SIZE];
    char cursor[EVENT_CURSOR_SIZE_MAX];
    char payload_hash[PAYLOAD_HASH_SIZE];
    char prev_chain_hash[PAYLOAD_HASH_SIZE];
    char chain_hash[PAYLOAD_HASH_SIZE];
    struct buffer numbers;
    char number_memory[3 * NUMBER_SIZE_MAX];
};

static struct slice number(struct columns *columns, uint64_t value) {
    size_t begin = columns->numbers.size;
    enum status status = buffer_append_u64(&columns->numbers, value);
    (void)status; /* there is room for all three */
    return slice_from(buffer_slice(&columns->numbers), begin);
}

enum status event_write_csv(struct buffer *out, const struct store_event *event) {
    struct columns columns;
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    size_t begin = out->size;
    columns.numbers = buffer_over(columns.number_memory, sizeof(columns.number_memory));
    uuid_format(&event->event_id, columns.event_id);
    payload_hash_text(event->payload_hash, columns.payload_hash);
    payload_hash_text(event->prev_chain_hash, columns.prev_chain_hash);
    payload_hash_text(event->chain_hash, columns.chain_hash);
    const struct slice fields[COLUMN_COUNT] = {
        {columns.event_id, UUID_TEXT_SIZE},
        {columns.cursor, event_cursor_encode(&cursor, columns.cursor)},
        slice_of(entity_kind_name(event->entity_kind)),
        event->entity_id,
        number(&columns, event->seq),
        event->type,
        event->payload,
        slice_of(columns.payload_hash),
        event->owner.user_id,
        event->owner.guest_scope,
        event->owner.org_id,
        number(&columns, event->recorded_at_ms),
        slice_of(columns.prev_chain_hash),
        slice_of(columns.chain_hash),
        number(&columns, event->chain_version),
    };
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        buffer_note(out, csv_write_field(out, fields[i]));
    }
    buffer_note(out, csv_write_end(out));
    return buffer_end(out, begin);
}
