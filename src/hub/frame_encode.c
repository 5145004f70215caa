/* The room of a text is checked once for each name, and not at all for numbers, ids and names of
 * members: their bytes are set aside at the beginning. This code runs for every event of a replay,
 * and for every commit of a watched topic. */
#include "hub/frame_encode.h"

#include "base/decimal.h"
#include "base/hex.h"
#include "wire/json.h"
#include "wire/json_text.h"
#include "wire/put.h"

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

/* A name that has been written before, as JSON. */
static void put_copy(struct text *text, struct slice json) {
    if (json.size > text->names_left) {
        text->status = STATUS_PAYLOAD_TOO_LARGE;
        return;
    }
    text->at = put_slice(text->at, json);
    text->names_left -= json.size;
}

/* The lean members stand together, from seq to the payload, so that they need no copy. */
static enum status put_head(const struct frame_content *content,
                            const struct frame_members *members, struct frame_encoding *encoding) {
    struct text text = text_begin(encoding->head, sizeof(encoding->head));
    text.at = PUT_LITERAL(text.at, "\"topic\":");
    put_name(&text, members->topic);
    *text.at++ = ',';
    encoding->text.lean_begin = (size_t)(text.at - encoding->head);
    text.at = PUT_LITERAL(text.at, "\"seq\":");
    put_number(&text, &text.seq, content->seq);
    text.at = PUT_LITERAL(text.at, ",\"kind\":");
    put_name(&text, content->kind);
    text.at = PUT_LITERAL(text.at, ",\"doc_key\":");
    put_name(&text, content->document_key);
    text.at = PUT_LITERAL(text.at, ",\"payload\":");
    encoding->text.head = (struct slice){encoding->head, (size_t)(text.at - encoding->head)};
    return text.status;
}

static char *put_ids(char *at, const struct store_event *event) {
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    at = PUT_LITERAL(at, ",\"event_id\":\"");
    uuid_format(&event->event_id, at);
    at = PUT_LITERAL(at + UUID_TEXT_SIZE, "\",\"cursor\":\"");
    at += event_cursor_encode(&cursor, at);
    *at++ = '"';
    return at;
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
    if (members->first_seq == 0 || members->first_seq >= event->seq)
        return id;
    text->at = PUT_LITERAL(text->at, ",\"seq_range\":[");
    text->at = decimal_write_u64(text->at, members->first_seq);
    *text->at++ = ',';
    text->at = decimal_write_u64(text->at, event->seq);
    *text->at++ = ']';
    return id;
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
    put_copy(text, id);
    if (is_id_first)
        put_source_seq(text, event);
    *text->at++ = '}';
}

static enum status put_tail(const struct frame_content *content,
                            const struct frame_members *members, struct frame_encoding *encoding) {
    struct text text = text_begin(encoding->tail, sizeof(encoding->tail));
    text.at = PUT_LITERAL(text.at, ",\"payload_hash\":\"sha256:");
    hex_write(text.at, members->payload_hash, SHA256_BYTES);
    text.at = PUT_LITERAL(text.at + 2 * SHA256_BYTES, "\",\"doc_version\":");
    put_number(&text, &text.seq, members->document_version);
    struct slice id = put_entity(&text, members);
    text.at = put_ids(text.at, members->event);
    text.at = PUT_LITERAL(text.at, ",\"recorded_at\":");
    put_number(&text, &text.time, members->event->recorded_at_ms);
    put_source(&text, members->event, id);
    text.at = PUT_LITERAL(text.at, ",\"projected_at\":");
    put_number(&text, &text.time, content->published_at_ms);
    text.at = PUT_LITERAL(text.at, ",\"projection_version\":");
    put_name(&text, members->projection_version);
    encoding->text.tail = (struct slice){encoding->tail, (size_t)(text.at - encoding->tail)};
    return text.status;
}

enum status frame_encode(const struct frame_content *content, const struct frame_members *members,
                         struct frame_encoding *encoding) {
    enum status status = put_head(content, members, encoding);
    return status == STATUS_OK ? put_tail(content, members, encoding) : status;
}
