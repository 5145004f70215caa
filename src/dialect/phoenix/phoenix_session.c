#include "dialect/phoenix/phoenix_session.h"

#include "base/limits.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_log.h"
#include "dialect/phoenix/phoenix_form.h"
#include "dialect/websocket.h"
#include "wire/object_writer.h"

enum status phoenix_send_push(struct session *session, struct slice event, struct slice payload) {
    struct buffer text;
    buffer_init(&text, PHOENIX_PAYLOAD_BYTES_MAX + PHOENIX_ENVELOPE_BYTES_MAX);
    enum status status = phoenix_write_push(&text, PHOENIX_NULL, PHOENIX_CHANNEL, event, payload);
    if (status == STATUS_OK)
        status = websocket_send(session, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

enum status phoenix_send_reply(struct session *session, const struct phoenix_address *to, bool ok,
                               struct slice response) {
    struct buffer text;
    buffer_init(&text, PHOENIX_REPLY_BYTES_MAX);
    enum status status = phoenix_write_reply(&text, to, ok, response);
    if (status == STATUS_OK)
        status = websocket_send(session, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

enum status phoenix_send_error_body(struct session *session, const struct phoenix_address *to,
                                    enum status error, struct slice body) {
    session_log_error(session, error);
    return phoenix_send_reply(session, to, false, body);
}

enum status phoenix_send_fault(struct session *session, const struct phoenix_address *to,
                               enum status error, const char *message) {
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), slice_of(status_code(error)));
    object_text(&object, SLICE("message"), slice_of(message ? message : status_message(error)));
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_send_error_body(session, to, error, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

enum status phoenix_send_error(struct session *session, const struct phoenix_address *to,
                               enum status error) {
    return phoenix_send_fault(session, to, error, NULL);
}

struct phoenix_address phoenix_request_address(const struct phoenix_request *request) {
    return (struct phoenix_address){
        request->has_join_ref ? (struct slice){request->join_ref, request->join_ref_size}
                              : PHOENIX_NULL,
        request->has_ref ? (struct slice){request->ref, request->ref_size} : PHOENIX_NULL,
        PHOENIX_CHANNEL};
}

void phoenix_request_init(struct phoenix_request *request, const struct session *session,
                          const struct phoenix_address *to) {
    request->principal = session->principal;
    request->has_join_ref = to->join_ref.data != NULL;
    request->has_ref = to->ref.data != NULL;
    request->join_ref_size = to->join_ref.size;
    request->ref_size = to->ref.size;
    if (request->has_join_ref)
        memcpy(request->join_ref, to->join_ref.data, to->join_ref.size);
    if (request->has_ref)
        memcpy(request->ref, to->ref.data, to->ref.size);
}

/* Without a reply the client would wait for ever, so the session ends. */
void phoenix_settle(struct session *session, enum status status) {
    if (status == STATUS_OK)
        session_flush(session);
    else
        session_end(session, STATUS_INTERNAL_ERROR);
}

void phoenix_request_refuse(struct session *session, struct phoenix_request *request,
                            enum status error, const char *message) {
    struct phoenix_address to = phoenix_request_address(request);
    enum status status = phoenix_send_fault(session, &to, error, message);
    request->call.free(&request->call);
    phoenix_settle(session, status);
}