/* The whole log as an event stream, by event cursor. */
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/subscriber.h"
#include "dialect/dialects.h"
#include "dialect/event_stream.h"
#include "hub/frame.h"
#include "wire/object_writer.h"
#include "wire/sse.h"

struct log_stream {
    struct event_stream stream; /* first */
    struct log_position position;
    bool announces_start; /* an event "bootstrap" announces the start */
};

/* ---- forms ---- */

static enum status put_frame(const struct page *page, const struct frame *frame,
                             enum frame_form form, uint64_t after, struct buffer *out) {
    char id[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(&frame->content.cursor);
    size_t size = event_cursor_encode(&cursor, id);
    (void)page;
    (void)form;
    (void)after;
    return sse_event(out, &(struct sse_event){.id = {id, size}, .data = frame->content.payload});
}

static enum status encode(const struct page *page, const struct page_form *form, void *user,
                          struct buffer *out) {
    (void)user;
    return event_stream_encode(page, form, put_frame, out);
}

static const struct page_form forms[][2] = {
    {{EVENT_STREAM_BYTES_MAX, encode, FRAME_FULL, false},
     {EVENT_STREAM_BYTES_MAX, encode, FRAME_FULL, true}},
};

/* ---- notices ---- */

static enum status send_slow(struct session *session, struct buffer *out) {
    const struct log_stream *state = session->dialect_state;
    struct buffer body;
    buffer_init(&body, 2048);
    session_log_error(session, STATUS_SLOW_CONSUMER);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), SLICE("slow_consumer"));
    log_position_put_slow(&state->position, session, &object);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = event_stream_send(session, out, "slow_consumer", buffer_slice(&body));
    if (status == STATUS_OK)
        status = event_stream_send_last(session, out, CLOSE_SLOW_CONSUMER);
    buffer_release(&body);
    return status;
}

/* An event without a message, whose id is the position in the log. */
static enum status send_position(struct session *session, const char *event,
                                 const struct query_cursor *position, struct buffer *out) {
    char id[EVENT_CURSOR_SIZE_MAX];
    size_t id_size = event_cursor_encode(&position->cursor, id);
    struct buffer body;
    buffer_init(&body, 256);
    buffer_append_slice(&body, SLICE("{\"after_cursor\":"));
    query_cursor_write(&body, position);
    enum status status = buffer_append_byte(&body, '}');
    if (status == STATUS_OK)
        status = event_stream_send_id(session, out, event, (struct slice){id, id_size},
                                      buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* The comment keeps the connection open. The event moves the position of the client past events
 * that are hidden from it. */
static enum status heartbeat(struct session *session, struct buffer *out) {
    const struct log_stream *state = session->dialect_state;
    const struct subscriber *subscriber = session_first(session);
    enum status status = event_stream_heartbeat(session, out);
    if (status != STATUS_OK || !subscriber || !subscriber_has_position(subscriber) ||
        subscriber->subscription.sent_seq == subscriber_position(subscriber))
        return status;
    struct query_cursor now = log_position_now(&state->position, session);
    return now.given ? send_position(session, "progress", &now, out) : STATUS_OK;
}

/* The first position of a client that begins at the head or at a time, or whose cursor was stale.
 * Without an id, it would reconnect at a later head or time and miss events, or with the stale
 * cursor. */
static enum status send_bootstrap(struct subscriber *subscriber, struct buffer *out) {
    struct session *session = subscriber->session;
    const struct log_stream *state = session->dialect_state;
    struct query_cursor now = log_position_now(&state->position, session);
    if (!state->announces_start)
        return STATUS_OK;
    if (!now.given) {
        struct uuid first = uuid7_first(0);
        now = (struct query_cursor){.given = true, .cursor = event_cursor_of(&first)};
    }
    return send_position(session, "bootstrap", &now, out);
}

/* An event cursor has no epoch, and the log no floor, so there is one reason. */
static enum status send_stale(struct subscriber *subscriber, struct buffer *out) {
    struct session *session = subscriber->session;
    struct log_stream *state = session->dialect_state;
    const struct continuity *continuity = subscription_continuity(&subscriber->subscription);
    char reasons[64];
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    session_log_error(session, STATUS_STALE_CURSOR);
    int size = snprintf(reasons, sizeof(reasons), "[\"%s\"]", reason_code(continuity->reasons[0]));
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), slice_of(status_code(STATUS_STALE_CURSOR)));
    object_text(&object, SLICE("message"), slice_of(status_message(STATUS_STALE_CURSOR)));
    object_json(&object, SLICE("full_resync_required"), SLICE("true"));
    object_json(&object, SLICE("reason_codes"), (struct slice){reasons, (size_t)size});
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = event_stream_send(session, out, "stale_cursor", buffer_slice(&body));
    buffer_release(&body);
    state->position.asked.given = false;
    state->announces_start = true;
    return status;
}

/* A client that began at a time has no bootstrap of its subscription. */
static void opened(struct session *session, struct session_opening *opening) {
    struct subscriber *subscriber = opening->subscribers[0];
    const struct subscription *subscription = &subscriber->subscription;
    if (subscription->state == SUBSCRIPTION_OPEN && !subscription->is_bootstrap)
        session_send(session, send_bootstrap(subscriber, &session->replies));
    event_stream_opened(session, opening);
}

const struct dialect log_sse_dialect = {
    .label = LABEL_DIALECT_AUDIT_SSE,
    .has_one_topic = true,
    .forms = forms,
    .opened = opened,
    .bootstrap = send_bootstrap,
    .stale = send_stale,
    .restarts_stale = true,
    .failed = event_stream_failed,
    .reauth = notice_reauth,
    .heartbeat = heartbeat,
    .slow = send_slow,
    .leaving = event_stream_leaving,
    .state_free = free,
    .names = {.reauth = "reauth_required"},
    .notice_bytes_max = NOTICE_BYTES_MAX,
    .send = event_stream_send,
};

/* ---- asking ---- */

/* The id of a client that reconnects takes precedence over the position in its first query. */
static bool read_cursor(struct exchange *exchange, struct query_cursor *query, bool *from_head) {
    struct slice last_id;
    struct buffer memory;
    buffer_init(&memory, QUERY_CURSOR_BYTES_MAX);
    enum status status = query_last_event_id(exchange, &memory, &last_id);
    bool is_answered = false;
    if (status == STATUS_OK && last_id.size > 0) {
        is_answered = !header_cursor_read(exchange, "Last-Event-ID", last_id, query);
    } else if (status == STATUS_OK) {
        is_answered = !query_after_cursor(exchange, query);
        if (!is_answered)
            status = query_from_head(exchange, from_head);
        if (!is_answered && status == STATUS_OK && *from_head && query->given)
            status = STATUS_INVALID_CURSOR;
    }
    if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    buffer_release(&memory);
    return status == STATUS_OK && !is_answered;
}

void handle_log_sse(struct exchange *exchange) {
    struct log_stream *state;
    struct log_position position = {0};
    bool from_head = false;
    enum grant_view view = exchange->view;
    if (!read_cursor(exchange, &position.asked, &from_head))
        return;
    if (atomic_load(&exchange->http->is_draining)) {
        exchange_answer_status(exchange, STATUS_SHUTTING_DOWN);
        return;
    }
    if (exchange_is_head(exchange)) {
        event_stream_answer_head(exchange);
        return;
    }
    state = calloc(1, sizeof(*state));
    if (!state) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    state->position = position;
    state->announces_start = from_head || position.asked.is_since;
    struct session *session = event_stream_make(exchange, &log_sse_dialect, &state->stream);
    if (!session || !session_is_connected(session))
        return;
    struct subscription_options options = {
        .view = view,
        .from_head = state->announces_start && !position.asked.is_since,
    };
    log_position_ask(&state->position, &options);
    event_stream_begin(session, SLICE(LOG_TOPIC), &options, &forms[0][state->stream.is_chunked]);
}
