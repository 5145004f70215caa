#include "dialect/message_form.h"

#include "base/decimal.h"
#include "base/limits.h"
#include "wire/put.h"

char *message_put_end(char *at, const struct frame *frame, enum frame_form form) {
    at = PUT_LITERAL(at, ",\"sequence\":");
    at = decimal_write_u64(at, frame->content.seq);
    if (form == FRAME_FULL) {
        at = PUT_LITERAL(at, ",\"published_at\":");
        at = decimal_write_u64(at, frame->content.published_at_ms);
    }
    *at++ = '}';
    return at;
}

enum status message_write(struct buffer *out, const struct frame *frame, enum frame_form form) {
    struct slice text = frame->forms[form];
    enum status status = buffer_reserve(out, 1 + text.size + MESSAGE_END_BYTES_MAX);
    if (status != STATUS_OK)
        return status;
    char *at = out->data + out->size;
    *at++ = '{';
    at = message_put_end(put_slice(at, text), frame, form);
    out->size = (size_t)(at - out->data);
    return STATUS_OK;
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
