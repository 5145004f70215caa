/* The room of a text is checked once for each name, and not at all for numbers, ids and names of
 * members: their bytes are set aside at the beginning. This code runs for every event of a replay,
 * and for every commit of a watched topic. */
#include "hub/frame.h"

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

#include "authority/event_write.h"
#include "base/decimal.h"
#include "base/hex.h"
#include "base/limits.h"
#include "projector/summary.h"
#include "topic/where.h"
#include "wire/json.h"
#include "wire/json_text.h"
#include "wire/put.h"

/* The texts of a frame besides those around its payload. */
#define TEXTS_MAX 6

bool frame_form_of(struct slice name, enum frame_form *form) {
    static const struct slice names[FRAME_FORM_COUNT] = {
        [FRAME_FULL] = SLICE("full"),
        [FRAME_LEAN] = SLICE("lean"),
    };
    for (size_t i = 0; i < FRAME_FORM_COUNT; i++) {
        if (slice_equal(name, names[i])) {
            *form = (enum frame_form)i;
            return true;
        }
    }
    return false;
}

static void list_texts(struct frame_content *content, struct slice *texts[TEXTS_MAX]) {
    texts[0] = &content->kind;
    texts[1] = &content->document_key;
    texts[2] = &content->owner.user_id;
    texts[3] = &content->owner.guest_scope;
    texts[4] = &content->owner.org_id;
    texts[5] = &content->fields;
}

/* Copies a text and moves the end of the copied texts. */
static struct slice put(char **end, struct slice text) {
    struct slice copy = {text.data ? *end : NULL, text.size};
    if (text.data && text.size > 0)
        memcpy(*end, text.data, text.size);
    *end += text.size;
    return copy;
}

/* ---- memory ---- */

struct frame_block {
    atomic_uint references; /* held by its frames and the room that fills it */
    size_t used;
    alignas(max_align_t) char memory[FRAME_BLOCK_BYTES];
};

static void block_unref(struct frame_block *block) {
    unsigned before = atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        free(block);
}

void frame_room_release(struct frame_room *room) {
    if (room->block)
        block_unref(room->block);
    room->block = NULL;
}

/* From the room's block, or from a new one. A frame that would fill a large part of a block gets
 * its own memory. */
static struct frame *allocate(struct frame_room *room, size_t size) {
    struct frame *frame;
    if (!room || size > FRAME_BLOCK_BYTES / 4) {
        frame = malloc(size);
        if (frame)
            frame->block = NULL;
        return frame;
    }
    size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    struct frame_block *block = room->block;
    if (!block || FRAME_BLOCK_BYTES - block->used < size) {
        frame_room_release(room);
        block = malloc(sizeof(*block));
        if (!block)
            return NULL;
        block->used = 0;
        atomic_init(&block->references, 1);
        room->block = block;
    }
    frame = (struct frame *)(void *)(block->memory + block->used);
    block->used += size;
    atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
    frame->block = block;
    return frame;
}

/* ---- frames ---- */

enum status frame_make(struct frame_room *room, const struct frame_content *content,
                       const struct frame_text *text, struct frame **frame) {
    struct frame_content copy = *content;
    struct slice *texts[TEXTS_MAX];
    size_t text_size = text->head.size + content->payload.size + text->tail.size;
    size_t size = sizeof(**frame) + text_size;
    assert(text->lean_begin <= text->head.size);
    list_texts(&copy, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        size += texts[i]->size;
    struct frame *made = allocate(room, size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    char *end = made->texts;
    (void)put(&end, text->head);
    copy.payload = put(&end, content->payload);
    made->forms[FRAME_LEAN] = (struct slice){made->texts + text->lean_begin,
                                             (size_t)(end - made->texts) - text->lean_begin};
    (void)put(&end, text->tail);
    made->forms[FRAME_FULL] = (struct slice){made->texts, text_size};
    for (size_t i = 0; i < TEXTS_MAX; i++)
        *texts[i] = put(&end, *texts[i]);
    made->content = copy;
    made->first_seq = copy.seq;
    made->committed_ns = 0;
    made->bytes = size;
    atomic_init(&made->references, 1);
    *frame = made;
    return STATUS_OK;
}

#define REMOVED_FIXED_BYTES 256

struct frame *frame_removed(const struct frame *frame) {
    struct frame_content content = frame->content;
    struct frame *made = NULL;
    /* The topic stands before the lean members. */
    struct slice topic = {frame->forms[FRAME_FULL].data,
                          (size_t)(frame->forms[FRAME_LEAN].data - frame->forms[FRAME_FULL].data)};
    struct buffer head;
    buffer_init(&head,
                REMOVED_FIXED_BYTES + topic.size + json_string_bytes(frame->content.document_key));
    content.kind = SLICE("removed");
    content.payload = (struct slice){NULL, 0};
    content.fields = (struct slice){NULL, 0};
    buffer_append_slice(&head, topic);
    buffer_append_slice(&head, SLICE("\"seq\":"));
    buffer_append_u64(&head, content.seq);
    buffer_append_slice(&head, SLICE(",\"kind\":\"removed\",\"doc_key\":"));
    buffer_note(&head, json_write_string(&head, content.document_key));
    buffer_append_slice(&head, SLICE(",\"doc_version\":"));
    buffer_append_u64(&head, content.document_version);
    const struct frame_text text = {.head = buffer_slice(&head), .lean_begin = topic.size};
    if (buffer_status(&head) == STATUS_OK && frame_make(NULL, &content, &text, &made) == STATUS_OK)
        made->committed_ns = frame->committed_ns;
    buffer_release(&head);
    return made;
}

/* A text inside the frame, in the copy. */
static void move_text(struct slice *text, const struct frame *frame, struct frame *copy) {
    if (text->data)
        text->data = copy->texts + (text->data - frame->texts);
}

struct frame *frame_copy(const struct frame *frame) {
    struct slice *texts[TEXTS_MAX];
    struct frame *copy = malloc(frame->bytes);
    if (!copy)
        return NULL;
    copy->content = frame->content;
    copy->first_seq = frame->first_seq;
    copy->committed_ns = frame->committed_ns;
    copy->block = NULL;
    copy->bytes = frame->bytes;
    memcpy(copy->texts, frame->texts, frame->bytes - sizeof(*frame));
    atomic_init(&copy->references, 1);
    list_texts(&copy->content, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        move_text(texts[i], frame, copy);
    move_text(&copy->content.payload, frame, copy);
    for (size_t i = 0; i < FRAME_FORM_COUNT; i++) {
        copy->forms[i] = frame->forms[i];
        move_text(&copy->forms[i], frame, copy);
    }
    return copy;
}

struct frame *frame_ref(struct frame *frame) {
    atomic_fetch_add_explicit(&frame->references, 1, memory_order_relaxed);
    return frame;
}

void frame_unref(struct frame *frame) {
    unsigned before = atomic_fetch_sub_explicit(&frame->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    if (frame->block)
        block_unref(frame->block);
    else
        free(frame);
}

/* ---- the text of a frame ---- */

/* Everything besides names: members, numbers, hash, id and cursor. */
#define FIXED_BYTES_MAX 1024
_Static_assert(FRAME_HEAD_BYTES_MAX > FIXED_BYTES_MAX && FRAME_TAIL_BYTES_MAX > FIXED_BYTES_MAX,
               "there is room for names");

/* A number and its text. */
struct digits {
    uint64_t number;
    size_t size; /* 0: none */
    char text[DECIMAL_U64_SIZE_MAX];
};

struct text {
    char *at;
    size_t names_left; /* bytes for names that are not written yet */
    enum status status;
    struct digits seq; /* the last ones: an event has its seq four times, and its time twice */
    struct digits time;
};

static struct text text_begin(char *memory, size_t size) {
    return (struct text){.at = memory, .names_left = size - FIXED_BYTES_MAX};
}

static void put_number(struct text *text, struct digits *last, uint64_t number) {
    if (last->size == 0 || last->number != number) {
        last->number = number;
        last->size = (size_t)(decimal_write_u64(last->text, number) - last->text);
    }
    /* All of it, because a copy of a fixed size is a few instructions. */
    memcpy(text->at, last->text, sizeof(last->text));
    text->at += last->size;
}

/* A name as a JSON string, or null where it is absent. Most names need no escape. */
static void put_name(struct text *text, struct slice name) {
    if (!name.data) {
        text->at = PUT_LITERAL(text->at, "null");
        return;
    }
    struct buffer out = buffer_over(text->at, text->names_left);
    const char *end = name.data + name.size;
    if (name.size + 2 <= text->names_left && json_text_skip_unescaped(name.data, end) == end) {
        *out.data = '"';
        *put_slice(out.data + 1, name) = '"';
        out.size = name.size + 2;
    } else if (text->status == STATUS_OK) {
        text->status = json_write_string(&out, name);
    }
    text->at += out.size;
    text->names_left -= out.size;
}

/* Returns the entity's id as it was written. */
static struct slice put_entity(struct text *text, const struct frame_members *members) {
    const struct store_event *event = members->event;
    text->at = PUT_LITERAL(text->at, ",\"entity\":\"");
    text->at = put_slice(text->at, slice_of(entity_kind_name(event->entity_kind)));
    text->at = PUT_LITERAL(text->at, "\",\"entity_id\":");
    struct slice id = {text->at, 0};
    put_name(text, event->entity_id);
    id.size = (size_t)(text->at - id.data);
    text->at = PUT_LITERAL(text->at, ",\"entity_seq\":");
    put_number(text, &text->seq, event->seq);
    return id;
}

/* The key and the version, and the range of events if the frame covers several of them. */
static void put_document(struct text *text, const struct frame_content *content,
                         const struct frame_members *members) {
    uint64_t last_seq = members->event->seq;
    text->at = PUT_LITERAL(text->at, "\"doc_key\":");
    put_name(text, content->document_key);
    text->at = PUT_LITERAL(text->at, ",\"doc_version\":");
    put_number(text, &text->seq, content->document_version);
    *text->at++ = ',';
    if (members->first_seq == 0 || members->first_seq >= last_seq)
        return;
    text->at = PUT_LITERAL(text->at, "\"seq_range\":[");
    text->at = decimal_write_u64(text->at, members->first_seq);
    *text->at++ = ',';
    text->at = decimal_write_u64(text->at, last_seq);
    text->at = PUT_LITERAL(text->at, "],");
}

static void put_source_seq(struct text *text, const struct store_event *event) {
    text->at = PUT_LITERAL(text->at, ",\"seq\":");
    put_number(text, &text->seq, event->seq);
}

/* Canonical JSON sorts the members, as summary_write_source does. */
static void put_source(struct text *text, const struct store_event *event, struct slice id) {
    const struct entity_row *row = entity_row(event->entity_kind);
    bool is_id_first = strcmp(row->id_member, "seq") < 0;
    text->at = PUT_LITERAL(text->at, ",\"runtime_source\":{\"entity\":\"");
    text->at = put_slice(text->at, slice_of(row->name));
    *text->at++ = '"';
    if (!is_id_first)
        put_source_seq(text, event);
    text->at = PUT_LITERAL(text->at, ",\"");
    text->at = put_slice(text->at, slice_of(row->id_member));
    text->at = PUT_LITERAL(text->at, "\":");
    if (id.size <= text->names_left) {
        text->at = put_slice(text->at, id);
        text->names_left -= id.size;
    } else {
        text->status = STATUS_PAYLOAD_TOO_LARGE;
    }
    if (is_id_first)
        put_source_seq(text, event);
    *text->at++ = '}';
}

enum status frame_encode(const struct frame_content *content, const struct frame_members *members,
                         struct frame_encoding *encoding) {
    const struct store_event *event = members->event;
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    /* The lean members stand together, from seq to the payload, so that they need no copy. The key
     * of an event says nothing that its topic and seq do not say, so it stands before them. */
    struct text text = text_begin(encoding->head, sizeof(encoding->head));
    text.at = PUT_LITERAL(text.at, "\"topic\":");
    put_name(&text, members->topic);
    *text.at++ = ',';
    if (!members->is_document)
        put_document(&text, content, members);
    encoding->text.lean_begin = (size_t)(text.at - encoding->head);
    text.at = PUT_LITERAL(text.at, "\"seq\":");
    put_number(&text, &text.seq, content->seq);
    text.at = PUT_LITERAL(text.at, ",\"kind\":");
    put_name(&text, content->kind);
    text.at = PUT_LITERAL(text.at, ",\"event_id\":\"");
    uuid_format(&event->event_id, text.at);
    text.at = PUT_LITERAL(text.at + UUID_TEXT_SIZE, "\",\"recorded_at\":");
    put_number(&text, &text.time, event->recorded_at_ms);
    *text.at++ = ',';
    if (members->is_document)
        put_document(&text, content, members);
    text.at = PUT_LITERAL(text.at, "\"payload\":");
    encoding->text.head = (struct slice){encoding->head, (size_t)(text.at - encoding->head)};
    if (text.status != STATUS_OK)
        return text.status;
    text = text_begin(encoding->tail, sizeof(encoding->tail));
    text.at = PUT_LITERAL(text.at, ",\"payload_hash\":\"sha256:");
    hex_write(text.at, members->payload_hash, SHA256_BYTES);
    text.at = PUT_LITERAL(text.at + 2 * SHA256_BYTES, "\"");
    struct slice id = put_entity(&text, members);
    text.at = PUT_LITERAL(text.at, ",\"cursor\":\"");
    text.at += event_cursor_encode(&cursor, text.at);
    *text.at++ = '"';
    put_source(&text, event, id);
    text.at = PUT_LITERAL(text.at, ",\"projected_at\":");
    put_number(&text, &text.time, content->published_at_ms);
    text.at = PUT_LITERAL(text.at, ",\"projection_version\":");
    put_name(&text, members->projection_version);
    encoding->text.tail = (struct slice){encoding->tail, (size_t)(text.at - encoding->tail)};
    return text.status;
}

/* ---- frames of stored rows ---- */

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
    buffer_append_slice(out, slice_of(prefix));
    buffer_append_slice(out, event->entity_id);
    buffer_append_byte(out, ':');
    return buffer_append_u64(out, event->seq);
}

static struct frame_content content_of(const struct store_event *event,
                                       const struct owner *entity_owner) {
    return (struct frame_content){
        .seq = event->seq,
        .kind = event->type,
        .payload = event->payload,
        .cursor = event->cursor,
        .published_at_ms = event->recorded_at_ms,
        .entity_ref = event->entity_ref,
        .document_version = event->seq,
        .owner = frame_owner(event, entity_owner),
    };
}

static struct frame_members members_of(const struct frame_topic *topic,
                                       const struct store_event *event) {
    return (struct frame_members){
        .topic = topic->name,
        .event = event,
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

/* Reads from the document of a row the version that it was projected under (data NULL: it names
 * none; the version in use may be another one by now), and the record of its fields. */
static enum status read_document(const struct store_journal_row *row, char text[KEY_BYTES_MAX],
                                 struct slice *version, struct buffer *record) {
    const struct json_limits limits = {SUMMARY_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field members[WHERE_FIELD_COUNT + 1] = {
        [WHERE_FIELD_COUNT] = {.name = SLICE("projection_version")}};
    const struct json_field *named = &members[WHERE_FIELD_COUNT];
    struct buffer out = buffer_over(text, KEY_BYTES_MAX);
    struct where_fields fields;
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++)
        members[i].name = where_field_name((enum where_field)i);
    enum status status = json_read_object(row->payload, &limits, members, WHERE_FIELD_COUNT + 1);
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++)
        fields.values[i] =
            members[i].present ? members[i].value : (struct json_value){.kind = JSON_KIND_NULL};
    *version = (struct slice){NULL, 0};
    if (status == STATUS_OK && named->present && named->value.kind == JSON_KIND_STRING) {
        status = json_string_decode(named->value, &out);
        *version = buffer_slice(&out);
    }
    if (status == STATUS_OK)
        status = where_record_complete(record, row->fields_before, &fields);
    return status == STATUS_OK ? STATUS_OK : STATUS_INTERNAL_ERROR;
}

enum status frame_of_row(const struct frame_topic *topic, const struct store_journal_row *row,
                         const struct store_event *event, const struct owner *entity_owner,
                         struct frame_room *room, struct frame **frame) {
    struct frame_content content = content_of(event, entity_owner);
    struct frame_members members = members_of(topic, event);
    char version[KEY_BYTES_MAX];
    struct key key;
    struct buffer record;
    enum status status;
    buffer_init(&record, WHERE_RECORD_BYTES_MAX);
    content.seq = row->seq;
    content.published_at_ms = row->published_at_ms;
    members.payload_hash = row->payload_hash;
    if (row->payload.data) {
        enum document_kind kind = entity_row(event->entity_kind)->summary;
        status = summary_document_key(kind, event->entity_id, key_init(&key));
        content.kind = slice_of(document_kind_name(kind));
        content.payload = row->payload;
        members.is_document = true;
        content.document_version = row->document_version;
        members.first_seq = row->first_seq;
        if (status == STATUS_OK)
            status = read_document(row, version, &members.projection_version, &record);
        content.fields = buffer_slice(&record);
    } else {
        status = event_key(event, key_init(&key));
    }
    content.document_key = key_slice(&key);
    if (status == STATUS_OK)
        status = make(&content, &members, room, frame);
    buffer_release(&record);
    return status;
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
    struct buffer *name = key_init(&key);
    buffer_append_slice(name, slice_of(entity_kind_name(event->entity_kind)));
    buffer_append_byte(name, ':');
    enum status status = buffer_append_slice(name, event->entity_id);
    if (status == STATUS_OK)
        status = event_write_json(&json, event);
    content.seq = event->log_id;
    content.payload = buffer_slice(&json);
    if (status == STATUS_OK) {
        content.document_key = key_slice(&key);
        status = frame_make(room, &content, &payload_only, frame);
    }
    buffer_release(&json);
    return status;
}
