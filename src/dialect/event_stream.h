/* The common part of the dialects that are event streams: the head, the pieces and the notices.
 * Belongs to the session's loop. The session's state is a struct event_stream, freed by the
 * dialect's state_free. Appends whole pieces to the caller's buffer, all or nothing. Errors: the
 * buffer's, and bytes that an event may not hold. Only durable events have an id. */
#ifndef DIALECT_EVENT_STREAM_H
#define DIALECT_EVENT_STREAM_H

#include "delivery/session/session.h"
#include "http/exchange.h"

/* The beginning of the state. */
struct event_stream {
    bool is_chunked; /* whether pieces are chunks: not for HTTP/1.0 */
};

/* Turns the exchange into a session of that dialect. Takes over the state in any case. NULL: the
 * exchange has been answered. */
struct session *event_stream_make(struct exchange *exchange, const struct dialect *dialect,
                                  struct event_stream *state);
/* Opens the one subscriber of the session; ends the session if that fails. */
void event_stream_begin(struct session *session, struct slice topic,
                        const struct subscription_options *options, const struct page_form *form);
/* The answer to HEAD. */
void event_stream_answer_head(struct exchange *exchange);

/* Encodes one frame. after: the frames between it and this one are hidden from the subscriber. */
typedef enum status event_stream_put(const struct page *page, struct frame *frame, uint64_t after,
                                     struct buffer *out);

/* For encoders: the frames of a page. */
MUST_CHECK enum status event_stream_encode(const struct page *page, bool is_chunked,
                                           event_stream_put *put, struct buffer *out);

/* Notices. */
MUST_CHECK enum status event_stream_send(const struct session *session, struct buffer *out,
                                         const char *event, struct slice data);
/* The same with an id, the position for a client that reconnects; id.data NULL: none. */
MUST_CHECK enum status event_stream_send_id(const struct session *session, struct buffer *out,
                                            const char *event, struct slice id, struct slice data);
MUST_CHECK enum status event_stream_end(struct session *session, struct buffer *out);
/* For the dialect's table. */
void event_stream_opened(struct session *session, struct session_opening *opening);
MUST_CHECK enum status event_stream_heartbeat(struct session *session, struct buffer *out);
MUST_CHECK enum status event_stream_leaving(struct session *session, uint64_t retry_after_ms,
                                            struct buffer *out);
MUST_CHECK enum status event_stream_reauth(struct session *session, uint64_t left_ms,
                                           struct buffer *out);
MUST_CHECK enum status event_stream_failed(struct session *session, enum status failed,
                                           struct buffer *out);

#endif
