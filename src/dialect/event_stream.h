/* What the dialects that are event streams share: the link's head, its pieces, its notices.
 * Belongs to the link's loop. The link's state is a struct event_stream, freed by the dialect's
 * state_free. Appends whole pieces to the caller's buffer, all or nothing.
 * Errors: the buffer's own, and what an event may not hold.
 * Only what is durable has an id. */
#ifndef DIALECT_EVENT_STREAM_H
#define DIALECT_EVENT_STREAM_H

#include "delivery/session.h"

#define EVENT_STREAM_BYTES_MAX (128u << 20)

/* The beginning of the state. */
struct event_stream {
    bool is_chunked; /* whether pieces are chunks: not for HTTP/1.0 */
};

/* The exchange becomes a link of that dialect; the state is taken over in any case. NULL: it has
 * been answered. */
struct link *event_stream_make(struct exchange *exchange, const struct dialect *dialect,
                               struct event_stream *state);
/* Has the link's one reader looked at; ends the link where that cannot be. */
void event_stream_begin(struct link *link, struct slice topic,
                        const struct subscription_options *options, const struct page_form *form);
/* The answer to HEAD. */
void event_stream_answer_head(struct exchange *exchange);

/* How a page is written: its frames, and the ranges in which all is hidden; NULL: those are not
 * told. */
struct event_stream_writer {
    enum status (*put)(const struct io_loop *loop, struct frame *frame, struct buffer *out);
    enum status (*pass)(const struct io_loop *loop, uint64_t after, uint64_t through,
                        struct buffer *out);
};

/* For encoders. */
MUST_CHECK enum status event_stream_encode(const struct page *page, const struct io_loop *loop,
                                           bool is_chunked,
                                           const struct event_stream_writer *writer,
                                           struct buffer *out);

/* Notices. */
MUST_CHECK enum status event_stream_tell(const struct link *link, struct buffer *out,
                                         const char *event, struct slice data);
/* The same with the position it stands for; data NULL: none. */
MUST_CHECK enum status event_stream_tell_id(const struct link *link, struct buffer *out,
                                            const char *event, struct slice id, struct slice data);
MUST_CHECK enum status event_stream_end(struct link *link, struct buffer *out);
/* For the dialect's table. */
void event_stream_opened(struct link *link, struct link_opening *opening);
MUST_CHECK enum status event_stream_heartbeat(struct link *link, struct buffer *out);
MUST_CHECK enum status event_stream_leaving(struct link *link, uint64_t retry_after_ms,
                                            struct buffer *out);
MUST_CHECK enum status event_stream_reauth(struct link *link, uint64_t left_ms, struct buffer *out);
MUST_CHECK enum status event_stream_failed(struct link *link, enum status failed,
                                           struct buffer *out);

#endif
