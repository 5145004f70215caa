/* The whole log as an event stream, by event cursor. */
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/dialect.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_log.h"
#include "delivery/session/subscriber.h"
#include "dialect/event_stream.h"
#include "dialect/handlers.h"
#include "dialect/log_position.h"
#include "dialect/page_forms.h"
#include "hub/frame_row.h"
#include "wire/sse.h"

struct log_stream {
    struct event_stream stream; /* first */
    struct log_position position;
};

/* ---- forms ---- */

static enum status put_frame(const struct page *page, struct frame *frame, uint64_t after,
                             struct buffer *out) {
    char id[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(&frame->content.cursor);
    size_t size = event_cursor_encode(&cursor, id);
    (void)page;
    (void)after;
    return sse_event(out, &(struct sse_event){.id = {id, size}, .data = frame->content.payload});
}

static enum status encode_chunked(const struct page *page, void *tools, struct buffer *out) {
    (void)tools;
    return event_stream_encode(page, true, put_frame, out);
}

static enum status encode_bare(const struct page *page, void *tools, struct buffer *out) {
    (void)tools;
    return event_stream_encode(page, false, put_frame, out);
}

static const struct page_form chunked_form = {PAGE_FORM_LOG_SSE, EVENT_STREAM_BYTES_MAX,
                                              encode_chunked};
static const struct page_form bare_form = {PAGE_FORM_LOG_SSE_BARE, EVENT_STREAM_BYTES_MAX,
                                           encode_bare};

const struct page_form *log_sse_form(bool is_chunked) {
    return is_chunked ? &chunked_form : &bare_form;
}

/* ---- notices ---- */

static enum status send_slow(struct session *session, struct buffer *out) {
    const struct log_stream *state = session->dialect_state;
    struct buffer details, body;
    buffer_init(&details, 1024);
    buffer_init(&body, 2048);
    session_log_error(session, STATUS_SLOW_CONSUMER);
    enum status status = log_position_slow(&state->position, session, &details);
    if (status == STATUS_OK)
        status = buffer_append_slice(&body, SLICE("{\"code\":\"slow_consumer\","));
    if (status == STATUS_OK)
        status = buffer_append_slice(&body, slice_from(buffer_slice(&details), 1));
    if (status == STATUS_OK)
        status = event_stream_send(session, out, "slow_consumer", buffer_slice(&body));
    if (status == STATUS_OK)
        status = event_stream_end(session, out);
    buffer_release(&body);
    buffer_release(&details);
    return status;
}

/* An event without a message, whose id is the position in the log. */
static enum status send_position(struct session *session, const char *event,
                                 const struct query_cursor *position, struct buffer *out) {
    char id[EVENT_CURSOR_SIZE_MAX];
    size_t id_size = event_cursor_encode(&position->cursor, id);
    struct buffer body;
    buffer_init(&body, 256);
    enum status status = buffer_append_slice(&body, SLICE("{\"after_cursor\":"));
    if (status == STATUS_OK)
        status = query_cursor_write(&body, position);
    if (status == STATUS_OK)
        status = buffer_append_byte(&body, '}');
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
        subscriber->driver.subscription.sent_seq == subscriber_position(subscriber))
        return status;
    struct query_cursor now = log_position_now(&state->position, session);
    return now.given ? send_position(session, "progress", &now, out) : STATUS_OK;
}

/* The first position of a client that gave none, or a time. Without an id, it would reconnect at
 * the head, or at a later time, and miss the events between. */
static enum status send_begin(struct session *session) {
    const struct log_stream *state = session->dialect_state;
    return send_position(session, "bootstrap", &state->position.asked, &session->replies);
}

static bool wants(const void *user, const struct frame_content *content) {
    return log_position_is_before(user, content);
}

static const struct dialect log_sse_dialect = {
    .label = LABEL_DIALECT_AUDIT_SSE,
    .opened = event_stream_opened,
    .restarts_stale = true,
    .failed = event_stream_failed,
    .reauth = event_stream_reauth,
    .heartbeat = heartbeat,
    .slow = send_slow,
    .leaving = event_stream_leaving,
    .state_free = free,
};

/* ---- asking ---- */

static bool read_query(struct exchange *exchange, struct query_cursor *query, bool *from_head) {
    if (!query_after_cursor(exchange, query))
        return false;
    enum status status = query_from_head(exchange, from_head);
    if (status == STATUS_OK && *from_head && query->given)
        status = STATUS_INVALID_CURSOR;
    if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    return status == STATUS_OK;
}

/* The id of a client that reconnects takes precedence over the position in its first query. */
static bool read_cursor(struct exchange *exchange, struct query_cursor *query, bool *from_head) {
    struct slice last_id;
    struct buffer memory;
    buffer_init(&memory, QUERY_CURSOR_BYTES_MAX);
    enum status status = query_last_event_id(exchange, &memory, &last_id);
    bool is_read = status == STATUS_OK;
    if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    else if (last_id.size > 0)
        is_read = header_cursor_read(exchange, "Last-Event-ID", last_id, query);
    else
        is_read = read_query(exchange, query, from_head);
    buffer_release(&memory);
    return is_read;
}

/* False: the exchange has been answered. */
static bool read_position(struct exchange *exchange, struct log_position *position,
                          bool *gets_begin) {
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    struct query_cursor query = {.given = false};
    bool from_head = false;
    if (!read_cursor(exchange, &query, &from_head))
        return false;
    if (query.given)
        log_position_set(position, &query.cursor, now_ms);
    else if (from_head)
        log_position_set_head(position, now_ms);
    *gets_begin = from_head || query.is_since;
    return true;
}

static void begin(struct session *session, bool gets_begin, enum grant_view view) {
    struct log_stream *state = session->dialect_state;
    struct subscription_options options = {
        .view = view,
        .has_event_cursor = state->position.asked.given,
        .event_cursor = state->position.asked.cursor,
        .wants = state->position.is_future ? wants : NULL,
        .wants_user = &state->position,
    };
    if (gets_begin && send_begin(session) != STATUS_OK)
        session_close(session);
    else
        event_stream_begin(session, SLICE(LOG_TOPIC), &options,
                           log_sse_form(state->stream.is_chunked));
}

void handle_log_sse(struct exchange *exchange) {
    struct log_stream *state;
    struct log_position position = {0};
    bool gets_begin = false;
    enum grant_view view = exchange->view;
    if (!read_position(exchange, &position, &gets_begin))
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
    struct session *session = event_stream_make(exchange, &log_sse_dialect, &state->stream);
    if (session && session_is_connected(session))
        begin(session, gets_begin, view);
}
