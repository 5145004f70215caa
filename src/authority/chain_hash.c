#include "authority/chain_hash.h"

#include "wire/canonical.h"

/* Texts of a known size, which need no escapes. */
struct texts {
    struct slice cursor;
    char cursor_text[EVENT_CURSOR_SIZE_MAX];
    char event_id[UUID_TEXT_SIZE];
    char payload_hash[PAYLOAD_HASH_SIZE];
};

/* "<kind>:<id>" is one JSON string: the id is escaped as a string of its own, and its opening quote
 * becomes the colon. */
static void write_v1(struct buffer *out, const struct store_event *event,
                     const struct texts *texts) {
    buffer_append_slice(out, SLICE("{\"cursor\":\""));
    buffer_append_slice(out, texts->cursor);
    buffer_append_slice(out, SLICE("\",\"entity\":\""));
    buffer_append_slice(out, slice_of(entity_kind_name(event->entity_kind)));
    size_t colon_at = out->size;
    json_write_string(out, event->entity_id);
    if (buffer_status(out) == STATUS_OK)
        out->data[colon_at] = ':';
    buffer_append_slice(out, SLICE(",\"event_id\":\""));
    buffer_append(out, texts->event_id, UUID_TEXT_SIZE);
    buffer_append_slice(out, SLICE("\",\"payload_hash\":\""));
    buffer_append(out, texts->payload_hash, PAYLOAD_HASH_SIZE - 1);
    buffer_append_slice(out, SLICE("\",\"seq\":"));
    buffer_append_u64(out, event->seq);
    buffer_append_slice(out, SLICE(",\"type\":"));
    json_write_string(out, event->type);
}

static void write_v2(struct buffer *out, const struct store_event *event,
                     const struct texts *texts) {
    const struct owner *owner = &event->owner;
    const struct slice names[] = {SLICE(",\"owner\":{\"guest_scope\":"), SLICE(",\"org_id\":"),
                                  SLICE(",\"user_id\":")};
    const struct slice values[] = {owner->guest_scope, owner->org_id, owner->user_id};
    buffer_append_slice(out, SLICE("{\"chain_version\":2,\"cursor\":\""));
    buffer_append_slice(out, texts->cursor);
    buffer_append_slice(out, SLICE("\",\"entity\":\""));
    buffer_append_slice(out, slice_of(entity_kind_name(event->entity_kind)));
    buffer_append_slice(out, SLICE("\",\"entity_id\":"));
    json_write_string(out, event->entity_id);
    buffer_append_slice(out, SLICE(",\"event_id\":\""));
    buffer_append(out, texts->event_id, UUID_TEXT_SIZE);
    buffer_append_slice(out, SLICE("\",\"event_type\":"));
    json_write_string(out, event->type);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        buffer_append_slice(out, names[i]);
        if (values[i].data)
            json_write_string(out, values[i]);
        else
            buffer_append_slice(out, SLICE("null"));
    }
    buffer_append_slice(out, SLICE("},\"payload_hash\":\""));
    buffer_append(out, texts->payload_hash, PAYLOAD_HASH_SIZE - 1);
    buffer_append_slice(out, SLICE("\",\"recorded_at\":"));
    buffer_append_u64(out, event->recorded_at_ms);
    buffer_append_slice(out, SLICE(",\"seq\":"));
    buffer_append_u64(out, event->seq);
}

enum status chain_hash(const struct store_event *event, struct buffer *scratch,
                       uint8_t digest[SHA256_BYTES]) {
    struct texts texts;
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    texts.cursor =
        (struct slice){texts.cursor_text, event_cursor_encode(&cursor, texts.cursor_text)};
    uuid_format(&event->event_id, texts.event_id);
    payload_hash_text(event->payload_hash, texts.payload_hash);
    buffer_clear(scratch);
    buffer_append(scratch, event->prev_chain_hash, SHA256_BYTES);
    if (event->chain_version == 1)
        write_v1(scratch, event, &texts);
    else
        write_v2(scratch, event, &texts);
    enum status status = buffer_append_byte(scratch, '}');
    if (status == STATUS_OK)
        sha256(scratch->data, scratch->size, digest);
    return status;
}
