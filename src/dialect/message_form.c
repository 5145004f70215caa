#include "dialect/message_form.h"

#include "base/limits.h"

/* The members of this dialect and their commas, with two numbers. */
#define OWN_BYTES_MAX 96

enum status message_write_members(struct buffer *out, const struct frame *frame,
                                  enum frame_form form) {
    struct slice text = frame->forms[form];
    enum status status = buffer_reserve(out, OWN_BYTES_MAX + text.size);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, text);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE(",\"sequence\":"));
    if (status == STATUS_OK)
        status = buffer_append_u64(out, frame->content.seq);
    if (status == STATUS_OK && form == FRAME_FULL)
        status = buffer_append_slice(out, SLICE(",\"published_at\":"));
    if (status == STATUS_OK && form == FRAME_FULL)
        status = buffer_append_u64(out, frame->content.published_at_ms);
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}

enum status message_write(struct buffer *out, const struct frame *frame, enum frame_form form) {
    enum status status = buffer_append_byte(out, '{');
    return status == STATUS_OK ? message_write_members(out, frame, form) : status;
}

enum status message_query_form(const struct exchange *exchange, enum frame_form *form) {
    struct buffer name;
    bool given = false;
    *form = FRAME_FULL;
    buffer_init(&name, FRAME_FORM_BYTES_MAX);
    enum status status = http1_query_find(exchange->request->query, SLICE("form"), &name, &given);
    if (status == STATUS_PAYLOAD_TOO_LARGE ||
        (status == STATUS_OK && given && !frame_form_of(buffer_slice(&name), form)))
        status = STATUS_INVALID_REQUEST;
    buffer_release(&name);
    return status;
}
