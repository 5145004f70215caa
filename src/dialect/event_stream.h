/* The common part of the dialects that are event streams: the head, the pieces and the notices.
 * Thread: the loop of the session.
 * Memory: the session's state begins with a struct event_stream, freed by the dialect's state_free.
 * Appends whole pieces to the caller's buffer, all or nothing.
 * Errors: the buffer's, and bytes that an event may not hold.
 * Invariant: only durable events have an id. */
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
typedef enum status event_stream_put(const struct page *page, const struct frame *frame,
                                     enum frame_form form, uint64_t after, struct buffer *out);

/* For the encoders of pages, whose content is an enum frame_form, and which are packed as chunks.
 */
MUST_CHECK enum status event_stream_encode(const struct page *page, const struct page_form *form,
                                           event_stream_put *put, struct buffer *out);

/* ---- messages and notices; some are for the table of a dialect ---- */

MUST_CHECK enum status event_stream_send(struct session *session, struct buffer *out,
                                         const char *event, struct slice data);
/* The same with an id, the position for a client that reconnects; id.data NULL: none. */
MUST_CHECK enum status event_stream_send_id(const struct session *session, struct buffer *out,
                                            const char *event, struct slice id, struct slice data);
MUST_CHECK enum status event_stream_send_last(struct session *session, struct buffer *out,
                                              enum close_code code);
void event_stream_opened(struct session *session, struct session_opening *opening);
MUST_CHECK enum status event_stream_heartbeat(struct session *session, struct buffer *out);
MUST_CHECK enum status event_stream_leaving(struct session *session, uint64_t retry_after_ms,
                                            struct buffer *out);
MUST_CHECK enum status event_stream_failed(struct session *session, enum status reason,
                                           struct buffer *out);

#endif
