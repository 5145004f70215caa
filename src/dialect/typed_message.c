#include "dialect/typed_message.h"

#include <assert.h>

#include "wire/websocket/ws_frame.h"

#define TAG_BYTES_MAX 64

enum status typed_write(struct buffer *out, const char *tag, struct slice body) {
    assert(body.size >= 2 && body.data[0] == '{');
    enum status status = buffer_reserve(out, TAG_BYTES_MAX + body.size);
    if (status == STATUS_OK)
        status = buffer_printf(out, "{\"type\":\"%s\"%s", tag, body.size > 2 ? "," : "");
    return status == STATUS_OK ? buffer_append_slice(out, slice_from(body, 1)) : status;
}

enum status typed_send(struct session *session, struct buffer *out, const char *tag,
                       struct slice body) {
    struct buffer text;
    buffer_init(&text, body.size + TAG_BYTES_MAX);
    enum status status = typed_write(&text, tag, body);
    if (status == STATUS_OK)
        status = websocket_text(session->delivery, out, buffer_slice(&text),
                                websocket_deflates(session));
    buffer_release(&text);
    return status;
}

enum status typed_send_last(struct session *session, struct buffer *out, const char *tag,
                            struct slice body, enum close_code code, const char *reason) {
    enum status status = typed_send(session, out, tag, body);
    return status == STATUS_OK ? ws_close_write(out, (unsigned)code, slice_of(reason)) : status;
}
