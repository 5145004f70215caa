#include "hub/frame_encode.h"

#include "projector/summary.h"
#include "wire/object_writer.h"

/* The brace that an object begins with is not part of a text. */
#define BRACE_BYTES 1

static struct buffer fixed(char *memory, size_t size) {
    return (struct buffer){.data = memory, .capacity = size, .size_max = size};
}

/* The lean members stand together, from seq to the payload, so that they need no copy. */
static enum status write_head(const struct frame_content *content,
                              const struct frame_members *members, struct buffer *out,
                              size_t *lean_begin) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), members->topic);
    *lean_begin = out->size; /* behind the comma, which comes with the next member */
    object_number(&object, SLICE("seq"), content->seq);
    object_text(&object, SLICE("kind"), content->kind);
    object_text(&object, SLICE("doc_key"), content->document_key);
    object_json(&object, SLICE("payload"), SLICE(""));
    return object.status;
}

static void put_range(struct object_writer *object, const struct frame_members *members) {
    char text[64];
    struct buffer range = fixed(text, sizeof(text));
    if (members->first_seq == 0 || members->first_seq >= members->event->seq)
        return;
    enum status status =
        buffer_printf(&range, "[%llu,%llu]", (unsigned long long)members->first_seq,
                      (unsigned long long)members->event->seq);
    if (status == STATUS_OK)
        object_json(object, SLICE("seq_range"), buffer_slice(&range));
    else
        object->status = status;
}

static void put_ids(struct object_writer *object, const struct store_event *event) {
    char id[UUID_TEXT_SIZE];
    char text[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    uuid_format(&event->event_id, id);
    object_text(object, SLICE("event_id"), (struct slice){id, sizeof(id)});
    object_text(object, SLICE("cursor"), (struct slice){text, event_cursor_encode(&cursor, text)});
}

static enum status write_tail(const struct frame_content *content,
                              const struct frame_members *members, struct buffer *out) {
    const struct store_event *event = members->event;
    struct object_writer object = object_begin(out);
    object_hash(&object, SLICE("payload_hash"), members->payload_hash);
    object_number(&object, SLICE("doc_version"), members->document_version);
    object_text(&object, SLICE("entity"), slice_of(entity_kind_name(event->entity_kind)));
    object_text(&object, SLICE("entity_id"), event->entity_id);
    object_number(&object, SLICE("entity_seq"), event->seq);
    put_range(&object, members);
    put_ids(&object, event);
    object_number(&object, SLICE("recorded_at"), event->recorded_at_ms);
    object_json(&object, SLICE("runtime_source"), SLICE(""));
    if (object.status == STATUS_OK)
        object.status = summary_write_source(out, event->entity_kind, event->entity_id, event->seq);
    object_number(&object, SLICE("projected_at"), content->published_at_ms);
    object_text(&object, SLICE("projection_version"), members->projection_version);
    return object.status;
}

enum status frame_encode(const struct frame_content *content, const struct frame_members *members,
                         struct frame_encoding *encoding) {
    struct buffer head = fixed(encoding->head, sizeof(encoding->head));
    struct buffer tail = fixed(encoding->tail, sizeof(encoding->tail));
    size_t lean_begin;
    enum status status = write_head(content, members, &head, &lean_begin);
    if (status == STATUS_OK)
        status = write_tail(content, members, &tail);
    if (status != STATUS_OK)
        return status;
    /* A comma takes the place of the brace between the payload and the tail. */
    tail.data[0] = ',';
    encoding->text = (struct frame_text){
        .head = slice_from(buffer_slice(&head), BRACE_BYTES),
        .lean_begin = lean_begin,
        .tail = buffer_slice(&tail),
    };
    return STATUS_OK;
}
