#include "hub/frame_row.h"

#include <assert.h>

#include "authority/event_json.h"
#include "projector/summary.h"

/* The longest prefix, id and seq together. */
#define KEY_BYTES_MAX 1024
/* An event as JSON without its texts, and the size of one escaped character. */
#define LOG_FIXED_BYTES   1024
#define ESCAPED_BYTES_MAX 6

struct owner frame_owner(const struct store_event *event, const struct owner *entity_owner) {
    const struct owner *owner = &event->owner;
    bool has_owner = owner->user_id.data || owner->guest_scope.data || owner->org_id.data;
    return has_owner || !entity_owner ? *owner : *entity_owner;
}

/* Nothing for entities whose events are no documents. */
static enum status event_key(const struct store_event *event, struct buffer *out) {
    const char *prefix = entity_row(event->entity_kind)->event_key_prefix;
    if (!prefix)
        return STATUS_OK;
    enum status status = buffer_append_slice(out, slice_of(prefix));
    if (status == STATUS_OK)
        status = buffer_append_slice(out, event->entity_id);
    if (status == STATUS_OK)
        status = buffer_append_byte(out, ':');
    return status == STATUS_OK ? buffer_append_u64(out, event->seq) : status;
}

static struct frame_content content_of(struct slice topic, const struct store_event *event,
                                       const struct owner *entity_owner) {
    struct frame_content content = {
        .topic = topic,
        .seq = event->seq,
        .kind = event->type,
        .document_version = event->seq,
        .payload = event->payload,
        .event_id = event->event_id,
        .cursor = event->cursor,
        .published_at_ms = uuid7_timestamp_ms(&event->cursor),
        .owner = frame_owner(event, entity_owner),
    };
    memcpy(content.payload_hash, event->payload_hash, SHA256_BYTES);
    return content;
}

/* Adds the key and makes the frame. An empty key has data NULL. */
static enum status make(struct frame_content *content, enum status status, struct buffer *key,
                        struct frame **frame) {
    content->document_key = buffer_slice(key);
    if (status == STATUS_OK)
        status = frame_make(frame, content);
    buffer_release(key);
    return status;
}

enum status frame_of_event(struct slice topic, const struct store_event *event,
                           const struct owner *entity_owner, struct frame **frame) {
    struct frame_content content = content_of(topic, event, entity_owner);
    struct buffer key;
    buffer_init(&key, KEY_BYTES_MAX);
    return make(&content, event_key(event, &key), &key, frame);
}

enum status frame_of_row(struct slice topic, const struct store_journal_row *row,
                         const struct store_event *event, const struct owner *entity_owner,
                         struct frame **frame) {
    struct frame_content content = content_of(topic, event, entity_owner);
    struct buffer key;
    enum status status;
    buffer_init(&key, KEY_BYTES_MAX);
    if (row->payload.data) {
        enum document_kind kind = entity_row(event->entity_kind)->summary;
        status = summary_document_key(kind, event->entity_id, &key);
        content.kind = slice_of(document_kind_name(kind));
        content.document_version = row->document_version;
        content.payload = row->payload;
    } else {
        status = event_key(event, &key);
    }
    content.seq = row->seq;
    content.published_at_ms = row->published_at_ms;
    memcpy(content.payload_hash, row->payload_hash, SHA256_BYTES);
    return make(&content, status, &key, frame);
}

static enum status log_key(const struct store_event *event, struct buffer *out) {
    enum status status = buffer_append_slice(out, slice_of(entity_kind_name(event->entity_kind)));
    if (status == STATUS_OK)
        status = buffer_append_byte(out, ':');
    return status == STATUS_OK ? buffer_append_slice(out, event->entity_id) : status;
}

enum status frame_of_log(const struct store_event *event, const struct owner *entity_owner,
                         struct frame **frame) {
    struct frame_content content = content_of(SLICE(LOG_TOPIC), event, entity_owner);
    size_t escaped_bytes_max = ESCAPED_BYTES_MAX * (event->entity_id.size + event->type.size);
    struct buffer json, key;
    buffer_init(&json, LOG_FIXED_BYTES + escaped_bytes_max + event->payload.size);
    buffer_init(&key, KEY_BYTES_MAX);
    enum status status = event_write_json(&json, event);
    if (status == STATUS_OK)
        status = log_key(event, &key);
    content.seq = content.document_version = event->log_id;
    content.payload = buffer_slice(&json);
    status = make(&content, status, &key, frame);
    buffer_release(&json);
    return status;
}
