#include "authority/event_hash.h"

#include "wire/canonical.h"

#define OPENING "{\"cursor\":\""

static void append_fixed(struct buffer *out, const void *data, size_t size) {
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

/* Cursor, ids and hashes have a known size and need no escapes: one reservation, plain copies. */
static enum status write_cursor(struct buffer *out, const struct store_event *event) {
    enum status status =
        buffer_reserve(out, SHA256_BYTES + sizeof(OPENING) + EVENT_CURSOR_SIZE_MAX + 32);
    if (status != STATUS_OK)
        return status;
    append_fixed(out, event->prev_hash, SHA256_BYTES);
    append_fixed(out, OPENING, sizeof(OPENING) - 1);
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    out->size += event_cursor_encode(&cursor, out->data + out->size);
    append_fixed(out, "\",\"entity\":", 11);
    return STATUS_OK;
}

/* "<kind>:<id>" as one JSON string: the id is escaped as a string of its own, and its opening
 * quote becomes the colon. */
static enum status write_entity(struct buffer *out, const struct store_event *event) {
    struct slice kind = slice_of(entity_kind_name(event->entity_kind));
    enum status status = buffer_append_byte(out, '"');
    if (status == STATUS_OK)
        status = buffer_append_slice(out, kind);
    size_t colon_at = out->size;
    if (status == STATUS_OK)
        status = json_write_string(out, event->entity_id);
    if (status == STATUS_OK)
        out->data[colon_at] = ':';
    return status;
}

static enum status write_id_and_hash(struct buffer *out, const struct store_event *event) {
    enum status status = buffer_reserve(out, 64 + UUID_TEXT_SIZE + PAYLOAD_HASH_SIZE);
    if (status != STATUS_OK)
        return status;
    append_fixed(out, ",\"event_id\":\"", 13);
    uuid_format(&event->event_id, out->data + out->size);
    out->size += UUID_TEXT_SIZE;
    append_fixed(out, "\",\"payload_hash\":\"", 18);
    payload_hash_text(event->payload_hash, out->data + out->size);
    out->size += PAYLOAD_HASH_SIZE - 1;
    append_fixed(out, "\",\"seq\":", 8);
    return STATUS_OK;
}

enum status event_hash(const struct store_event *event, struct buffer *scratch,
                       uint8_t digest[SHA256_BYTES]) {
    buffer_clear(scratch);
    enum status status = write_cursor(scratch, event);
    if (status == STATUS_OK)
        status = write_entity(scratch, event);
    if (status == STATUS_OK)
        status = write_id_and_hash(scratch, event);
    if (status == STATUS_OK)
        status = buffer_append_u64(scratch, event->seq);
    if (status == STATUS_OK)
        status = buffer_append(scratch, ",\"type\":", 8);
    if (status == STATUS_OK)
        status = json_write_string(scratch, event->type);
    if (status == STATUS_OK)
        status = buffer_append_byte(scratch, '}');
    if (status == STATUS_OK)
        sha256(scratch->data, scratch->size, digest);
    return status;
}
