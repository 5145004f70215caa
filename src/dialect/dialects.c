#include "dialect/dialects.h"

#include <stdio.h>

#include "base/decimal.h"
#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/session_events.h"
#include "http/conn_outlet.h"
#include "wire/object_writer.h"
#include "wire/put.h"

/* ---- upgrades ---- */

struct session *upgrade_to_session(struct exchange *exchange, struct session_options options) {
    struct delivery_loop *delivery = conn_loop(exchange->conn)->delivery;
    struct subscription_quota *quota = delivery->shared->subscription_quota;
    struct subscription_count count = {0};
    struct quota_refusal refusal = {0};
    enum status status = STATUS_OK;
    options.delivery = delivery;
    options.outlet = conn_outlet(exchange->conn);
    options.name = exchange_request_id(exchange);
    if (options.dialect->has_one_topic)
        status = subscription_quota_set(quota, &count, options.principal, 1, &refusal);
    if (status != STATUS_OK) {
        if (options.dialect->state_free)
            options.dialect->state_free(options.dialect_state);
        char text[QUOTA_REFUSAL_BYTES_MAX];
        struct buffer details = buffer_over(text, sizeof(text));
        struct exchange_error error = {.status = status};
        if (status == STATUS_QUOTA_EXCEEDED && quota_refusal_write(&refusal, &details) == STATUS_OK)
            error.details = buffer_slice(&details);
        exchange_answer_error(exchange, &error);
        return NULL;
    }
    struct session *session = session_new(&options);
    if (session) {
        session->subscriptions = count;
        conn_attach(exchange->conn, session);
    } else {
        subscription_quota_lower(quota, &count, 0);
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
    }
    return session;
}

/* ---- messages ---- */

char *message_put_after(char *at, const struct frame *frame, enum frame_form form, uint64_t after) {
    if (form == FRAME_LEAN && after + 1 == frame->content.seq)
        return at;
    at = PUT_LITERAL(at, "\"after\":");
    at = decimal_write_u64(at, after);
    *at++ = ',';
    return at;
}

char *message_put_end(char *at, const struct frame *frame, enum frame_form form) {
    if (form == FRAME_FULL) {
        at = PUT_LITERAL(at, ",\"sequence\":");
        at = decimal_write_u64(at, frame->content.seq);
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

/* ---- positions in the log ---- */

void log_position_ask(const struct log_position *position, struct subscription_options *options) {
    const struct query_cursor *asked = &position->asked;
    options->has_since = asked->given && asked->is_since;
    options->since_ms = asked->cursor.timestamp_ms;
    options->has_event_cursor = asked->given && !asked->is_since;
    options->event_cursor = asked->cursor;
}

struct query_cursor log_position_now(const struct log_position *position,
                                     const struct session *session) {
    static const struct uuid none;
    const struct subscriber *subscriber = session_first(session);
    struct query_cursor asked = position->asked;
    /* A time may be later than the last event. It is a position only after the store was read. */
    asked.given &= !asked.is_since;
    const struct uuid *cursor = subscriber ? &subscriber->subscription.log->cursor : &none;
    if (uuid_compare(cursor, &none) == 0)
        return asked;
    struct event_cursor at = event_cursor_of(cursor);
    /* Events that are hidden in the millisecond of the cursor do not move the position back. */
    if (asked.given && event_cursor_compare(&at, &asked.cursor) < 0)
        return asked;
    return (struct query_cursor){.given = true, .cursor = at};
}

void log_position_put_slow(const struct log_position *position, const struct session *session,
                           struct object_writer *object) {
    const struct subscriber *subscriber = session_first(session);
    struct query_cursor now = log_position_now(position, session);
    if (subscriber)
        object_number(object, SLICE("lag"), subscription_own_lag(&subscriber->subscription));
    object_number(object, SLICE("strikes"), session_strike_count(session));
    object_number(object, SLICE("max_strikes"), session->delivery->shared->options.strikes_max);
    object_json(object, SLICE("resume_after"), SLICE(""));
    query_cursor_write(object->out, &now);
    object_number(object, SLICE("reconnect_after_ms"), io_loop_backoff_ms(session->delivery->io));
}

void log_position_reason(const struct log_position *position, const struct session *session,
                         char text[124]) {
    char cursor[EVENT_CURSOR_SIZE_MAX];
    struct query_cursor now = log_position_now(position, session);
    text[0] = '\0';
    if (!now.given)
        return;
    int size = (int)event_cursor_encode(&now.cursor, cursor);
    (void)snprintf(text, 124, "resume_after %.*s", size, cursor);
}
