#include "hub/frame_row.h"

#include <assert.h>

#include "authority/event_json.h"
#include "base/limits.h"
#include "hub/frame_encode.h"
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

static struct frame_content content_of(const struct store_event *event,
                                       const struct owner *entity_owner) {
    return (struct frame_content){
        .seq = event->seq,
        .kind = event->type,
        .payload = event->payload,
        .cursor = event->cursor,
        .published_at_ms = event->recorded_at_ms,
        .owner = frame_owner(event, entity_owner),
    };
}

static struct frame_members members_of(const struct frame_topic *topic,
                                       const struct store_event *event) {
    return (struct frame_members){
        .topic = topic->name,
        .event = event,
        .document_version = event->seq,
        .payload_hash = event->payload_hash,
        .projection_version = topic->projection_version,
    };
}

/* The memory of a document key. */
struct key {
    struct buffer buffer;
    char text[KEY_BYTES_MAX];
};

static struct buffer *key_init(struct key *key) {
    key->buffer = buffer_over(key->text, sizeof(key->text));
    return &key->buffer;
}

/* data NULL for an empty key. */
static struct slice key_slice(const struct key *key) {
    return key->buffer.size > 0 ? buffer_slice(&key->buffer) : (struct slice){NULL, 0};
}

static enum status make(const struct frame_content *content, const struct frame_members *members,
                        struct frame_room *room, struct frame **frame) {
    struct frame_encoding encoding;
    enum status status = frame_encode(content, members, &encoding);
    return status == STATUS_OK ? frame_make(room, content, &encoding.text, frame) : status;
}

enum status frame_of_event(const struct frame_topic *topic, const struct store_event *event,
                           const struct owner *entity_owner, struct frame_room *room,
                           struct frame **frame) {
    struct frame_content content = content_of(event, entity_owner);
    const struct frame_members members = members_of(topic, event);
    struct key key;
    enum status status = event_key(event, key_init(&key));
    content.document_key = key_slice(&key);
    return status == STATUS_OK ? make(&content, &members, room, frame) : status;
}

/* The version that a summary was projected under, as its document names it; data NULL: it names
 * none. The version in use may be another one by now. */
static enum status stored_version(struct slice document, char text[KEY_BYTES_MAX],
                                  struct slice *version) {
    const struct json_limits limits = {SUMMARY_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field field = {.name = SLICE("projection_version")};
    struct buffer out = buffer_over(text, KEY_BYTES_MAX);
    enum status status = json_read_object(document, &limits, &field, 1);
    *version = (struct slice){NULL, 0};
    if (status == STATUS_OK && field.present && field.value.kind == JSON_KIND_STRING) {
        status = json_string_decode(field.value, &out);
        *version = buffer_slice(&out);
    }
    return status == STATUS_OK ? STATUS_OK : STATUS_INTERNAL_ERROR;
}

enum status frame_of_row(const struct frame_topic *topic, const struct store_journal_row *row,
                         const struct store_event *event, const struct owner *entity_owner,
                         struct frame_room *room, struct frame **frame) {
    struct frame_content content = content_of(event, entity_owner);
    struct frame_members members = members_of(topic, event);
    char version[KEY_BYTES_MAX];
    struct key key;
    enum status status;
    content.seq = row->seq;
    content.published_at_ms = row->published_at_ms;
    members.payload_hash = row->payload_hash;
    if (row->payload.data) {
        enum document_kind kind = entity_row(event->entity_kind)->summary;
        status = summary_document_key(kind, event->entity_id, key_init(&key));
        content.kind = slice_of(document_kind_name(kind));
        content.payload = row->payload;
        members.document_version = row->document_version;
        members.first_seq = row->first_seq;
        if (status == STATUS_OK)
            status = stored_version(row->payload, version, &members.projection_version);
    } else {
        status = event_key(event, key_init(&key));
    }
    content.document_key = key_slice(&key);
    return status == STATUS_OK ? make(&content, &members, room, frame) : status;
}

static enum status log_key(const struct store_event *event, struct buffer *out) {
    enum status status = buffer_append_slice(out, slice_of(entity_kind_name(event->entity_kind)));
    if (status == STATUS_OK)
        status = buffer_append_byte(out, ':');
    return status == STATUS_OK ? buffer_append_slice(out, event->entity_id) : status;
}

enum status frame_of_log(const struct store_event *event, const struct owner *entity_owner,
                         struct frame_room *room, struct frame **frame) {
    static const struct frame_text payload_only = {0};
    struct frame_content content = content_of(event, entity_owner);
    const struct owner *owner = &event->owner;
    size_t escaped_bytes_max =
        ESCAPED_BYTES_MAX * (event->entity_id.size + event->type.size + owner->user_id.size +
                             owner->guest_scope.size + owner->org_id.size);
    struct buffer json;
    struct key key;
    buffer_init(&json, LOG_FIXED_BYTES + escaped_bytes_max + event->payload.size);
    enum status status = event_write_json(&json, event);
    if (status == STATUS_OK)
        status = log_key(event, key_init(&key));
    content.seq = event->log_id;
    content.payload = buffer_slice(&json);
    if (status == STATUS_OK) {
        content.document_key = key_slice(&key);
        status = frame_make(room, &content, &payload_only, frame);
    }
    buffer_release(&json);
    return status;
}
