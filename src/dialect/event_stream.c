#include "dialect/event_stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_events.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"
#include "dialect/dialects.h"
#include "http/cors.h"
#include "wire/http1_response.h"
#include "wire/sse.h"

/* ---- pieces ---- */

static enum status put_piece(const struct session *session, struct buffer *out,
                             struct slice piece) {
    const struct event_stream *state = session->dialect_state;
    return state->is_chunked ? http1_chunk(out, piece) : buffer_append_slice(out, piece);
}

enum status event_stream_encode(const struct page *page, const struct page_form *form,
                                event_stream_put *put, struct buffer *out) {
    uint64_t after = page->batch.after_seq;
    size_t begin = out->size;
    enum status status = form->is_packed ? http1_chunk_begin(out) : STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < page->batch.count; i++) {
        const struct frame *frame = page->batch.frames[i];
        status = put(page, frame, (enum frame_form)form->content, after, out);
        after = frame->content.seq;
    }
    return status == STATUS_OK && form->is_packed ? http1_chunk_close(out, begin) : status;
}

/* ---- notices ---- */

enum status event_stream_send_id(const struct session *session, struct buffer *out,
                                 const char *event, struct slice id, struct slice data) {
    struct buffer piece;
    buffer_init(&piece, EVENT_STREAM_BYTES_MAX);
    enum status status =
        sse_event(&piece, &(struct sse_event){.id = id, .event = slice_of(event), .data = data});
    if (status == STATUS_OK)
        status = put_piece(session, out, buffer_slice(&piece));
    buffer_release(&piece);
    return status;
}

enum status event_stream_send(struct session *session, struct buffer *out, const char *event,
                              struct slice data) {
    return event_stream_send_id(session, out, event, (struct slice){NULL, 0}, data);
}

enum status event_stream_heartbeat(struct session *session, struct buffer *out) {
    struct buffer piece;
    buffer_init(&piece, 64);
    enum status status = sse_comment(&piece, SLICE(" heartbeat"));
    if (status == STATUS_OK)
        status = put_piece(session, out, buffer_slice(&piece));
    buffer_release(&piece);
    return status;
}

enum status event_stream_send_last(struct session *session, struct buffer *out,
                                   enum close_code code) {
    const struct event_stream *state = session->dialect_state;
    (void)code;
    return state->is_chunked ? http1_chunk_end(out) : STATUS_OK;
}

/* Clients reconnect by themselves, with their last id. */
enum status event_stream_leaving(struct session *session, uint64_t retry_after_ms,
                                 struct buffer *out) {
    struct buffer piece;
    buffer_init(&piece, 64);
    enum status status = sse_retry(&piece, retry_after_ms);
    if (status == STATUS_OK)
        status = put_piece(session, out, buffer_slice(&piece));
    if (status == STATUS_OK)
        status = event_stream_send_last(session, out, CLOSE_RESTARTING);
    buffer_release(&piece);
    return status;
}

/* Not followed by the last chunk, so that no client takes the answer to be complete. */
enum status event_stream_failed(struct session *session, enum status reason, struct buffer *out) {
    char body[96];
    int size = snprintf(body, sizeof(body), "{\"code\":\"%s\"}", status_code(reason));
    session_log_error(session, reason);
    return event_stream_send(session, out, "error", (struct slice){body, (size_t)size});
}

/* A stale or failed position is reported when the turn of the subscriber comes. */
void event_stream_opened(struct session *session, struct session_opening *opening) {
    (void)session;
    subscriber_start(opening->subscribers[0]);
}

/* ---- beginning ---- */

struct session *event_stream_make(struct exchange *exchange, const struct dialect *dialect,
                                  struct event_stream *state) {
    static const struct http1_header headers[] = {
        {SLICE("Content-Type"), SLICE("text/event-stream")},
        {SLICE("Cache-Control"), SLICE("no-cache, no-transform")},
        {SLICE("X-Accel-Buffering"), SLICE("no")}, /* proxies hold streams back otherwise */
    };
    struct http1_header cors[CORS_HEADERS_MAX];
    struct http1_header request_id;
    size_t cors_count =
        cors_headers(&exchange->http->gate, exchange->request, exchange->match.route, cors);
    struct session *session = NULL;
    struct buffer head, piece;
    buffer_init(&head, UPGRADE_HEAD_BYTES_MAX);
    buffer_init(&piece, 64);
    state->is_chunked = exchange->request->version_minor > 0;
    http1_response_begin(&head, 200, false);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        http1_response_header(&head, headers[i].name, headers[i].value);
    for (size_t i = 0; i < cors_count; i++)
        http1_response_header(&head, cors[i].name, cors[i].value);
    if (exchange_id_header(exchange, &request_id))
        http1_response_header(&head, request_id.name, request_id.value);
    if (state->is_chunked)
        http1_response_end_chunked(&head);
    else
        http1_response_end_bare(&head);
    buffer_note(&head, sse_retry(&piece, io_loop_backoff_ms(exchange->loop)));
    if (state->is_chunked)
        buffer_note(&head, http1_chunk(&head, buffer_slice(&piece)));
    else
        buffer_append_slice(&head, buffer_slice(&piece));
    if (buffer_status(&head) == STATUS_OK) {
        session =
            upgrade_to_session(exchange, (struct session_options){.dialect = dialect,
                                                                  .principal = exchange->principal,
                                                                  .dialect_state = state,
                                                                  .head = buffer_slice(&head)});
    } else {
        dialect->state_free(state);
        exchange_answer_status(exchange, buffer_status(&head));
    }
    buffer_release(&piece);
    buffer_release(&head);
    return session;
}

void event_stream_begin(struct session *session, struct slice topic,
                        const struct subscription_options *options, const struct page_form *form) {
    struct subscriber *subscriber = NULL;
    enum status status = subscriber_new(session, topic, options, &subscriber);
    if (status == STATUS_OK) {
        subscriber->form = form;
        status = session_open_one(session, subscriber);
    }
    /* The head waits for the first event, so that both leave in one piece. */
    if (status != STATUS_OK)
        session_close(session);
}

void event_stream_answer_head(struct exchange *exchange) {
    static const struct exchange_stream no_stream = {0};
    exchange->stream = &no_stream;
    exchange_begin(exchange, 200, SLICE("text/event-stream"));
    exchange_end(exchange, (struct slice){NULL, 0});
}
