#include "dialect/message_form.h"

#include "base/limits.h"
#include "topic/event_cursor.h"
#include "wire/object_writer.h"

static enum status message_encode(const struct frame_content *content, struct buffer *out) {
    char id[UUID_TEXT_SIZE];
    char cursor_text[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(&content->cursor);
    uuid_format(&content->event_id, id);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), content->topic);
    object_number(&object, SLICE("sequence"), content->seq);
    object_text(&object, SLICE("kind"), content->kind);
    object_json(&object, SLICE("payload"), content->payload);
    object_number(&object, SLICE("published_at"), content->published_at_ms);
    object_text(&object, SLICE("event_id"), (struct slice){id, sizeof(id)});
    object_text(&object, SLICE("cursor"),
                (struct slice){cursor_text, event_cursor_encode(&cursor, cursor_text)});
    return object_end(&object);
}

const struct frame_form message_form = {0, MESSAGE_FORM_BYTES_MAX, message_encode};
