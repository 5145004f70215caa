#include "authority/chain_hash.h"

#include "wire/canonical.h"

#define OPENING_V1 "{\"cursor\":\""
#define OPENING_V2 "{\"chain_version\":2,\"cursor\":\""
/* Room for the names of members and the punctuation between two texts of unknown size. */
#define NAMES_BYTES_MAX 64

static void put(struct buffer *out, struct slice text) {
    memcpy(out->data + out->size, text.data, text.size);
    out->size += text.size;
}

/* Cursor, ids and hashes have a known size and need no escapes: one reservation, plain copies. */
static enum status write_cursor(struct buffer *out, const struct store_event *event,
                                struct slice opening) {
    enum status status =
        buffer_reserve(out, SHA256_BYTES + opening.size + EVENT_CURSOR_SIZE_MAX + NAMES_BYTES_MAX);
    if (status != STATUS_OK)
        return status;
    put(out, (struct slice){(const char *)event->prev_chain_hash, SHA256_BYTES});
    put(out, opening);
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    out->size += event_cursor_encode(&cursor, out->data + out->size);
    put(out, SLICE("\",\"entity\":\""));
    return STATUS_OK;
}

static void put_payload_hash(struct buffer *out, const struct store_event *event) {
    put(out, SLICE("\"payload_hash\":\""));
    payload_hash_text(event->payload_hash, out->data + out->size);
    out->size += PAYLOAD_HASH_SIZE - 1;
}

static void put_event_id(struct buffer *out, const struct store_event *event) {
    put(out, SLICE(",\"event_id\":\""));
    uuid_format(&event->event_id, out->data + out->size);
    out->size += UUID_TEXT_SIZE;
}

/* ---- version 1 ---- */

/* "<kind>:<id>" as one JSON string: the id is escaped as a string of its own, and its opening
 * quote becomes the colon. */
static enum status write_entity_v1(struct buffer *out, const struct store_event *event) {
    enum status status = buffer_append_slice(out, slice_of(entity_kind_name(event->entity_kind)));
    size_t colon_at = out->size;
    if (status == STATUS_OK)
        status = json_write_string(out, event->entity_id);
    if (status == STATUS_OK)
        out->data[colon_at] = ':';
    return status;
}

static enum status write_v1(struct buffer *out, const struct store_event *event) {
    enum status status = write_cursor(out, event, SLICE(OPENING_V1));
    if (status == STATUS_OK)
        status = write_entity_v1(out, event);
    if (status == STATUS_OK)
        status = buffer_reserve(out, NAMES_BYTES_MAX + UUID_TEXT_SIZE + PAYLOAD_HASH_SIZE);
    if (status != STATUS_OK)
        return status;
    put_event_id(out, event);
    put(out, SLICE("\","));
    put_payload_hash(out, event);
    put(out, SLICE("\",\"seq\":"));
    status = buffer_append_u64(out, event->seq);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE(",\"type\":"));
    return status == STATUS_OK ? json_write_string(out, event->type) : status;
}

/* ---- version 2 ---- */

static enum status write_optional(struct buffer *out, struct slice name, struct slice text) {
    enum status status = buffer_append_slice(out, name);
    if (status != STATUS_OK)
        return status;
    return text.data ? json_write_string(out, text) : buffer_append_slice(out, SLICE("null"));
}

static enum status write_owner(struct buffer *out, const struct owner *owner) {
    enum status status =
        write_optional(out, SLICE(",\"owner\":{\"guest_scope\":"), owner->guest_scope);
    if (status == STATUS_OK)
        status = write_optional(out, SLICE(",\"org_id\":"), owner->org_id);
    return status == STATUS_OK ? write_optional(out, SLICE(",\"user_id\":"), owner->user_id)
                               : status;
}

static enum status write_names_v2(struct buffer *out, const struct store_event *event) {
    struct slice kind = slice_of(entity_kind_name(event->entity_kind));
    enum status status = buffer_append_slice(out, kind);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE("\",\"entity_id\":"));
    if (status == STATUS_OK)
        status = json_write_string(out, event->entity_id);
    if (status == STATUS_OK)
        status = buffer_reserve(out, NAMES_BYTES_MAX + UUID_TEXT_SIZE);
    if (status != STATUS_OK)
        return status;
    put_event_id(out, event);
    put(out, SLICE("\",\"event_type\":"));
    return json_write_string(out, event->type);
}

static enum status write_v2(struct buffer *out, const struct store_event *event) {
    enum status status = write_cursor(out, event, SLICE(OPENING_V2));
    if (status == STATUS_OK)
        status = write_names_v2(out, event);
    if (status == STATUS_OK)
        status = write_owner(out, &event->owner);
    if (status == STATUS_OK)
        status = buffer_reserve(out, NAMES_BYTES_MAX + PAYLOAD_HASH_SIZE);
    if (status != STATUS_OK)
        return status;
    put(out, SLICE("},"));
    put_payload_hash(out, event);
    put(out, SLICE("\",\"recorded_at\":"));
    status = buffer_append_u64(out, event->recorded_at_ms);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE(",\"seq\":"));
    return status == STATUS_OK ? buffer_append_u64(out, event->seq) : status;
}

enum status chain_hash(const struct store_event *event, struct buffer *scratch,
                       uint8_t digest[SHA256_BYTES]) {
    buffer_clear(scratch);
    enum status status =
        event->chain_version == 1 ? write_v1(scratch, event) : write_v2(scratch, event);
    if (status == STATUS_OK)
        status = buffer_append_byte(scratch, '}');
    if (status == STATUS_OK)
        sha256(scratch->data, scratch->size, digest);
    return status;
}
