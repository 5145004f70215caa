/* Reads an event stream (WHATWG HTML, section 9.2) that arrives in pieces of any size.
 * Belongs to one thread. Memory: one line and one event, each at most bytes_max; returned with
 * sse_decoder_release.
 * STATUS_PAYLOAD_TOO_LARGE for a line or an event beyond that, STATUS_OUT_OF_MEMORY, and any error
 * of a handler; do not feed the decoder after an error.
 * Lines after the last blank line of an interrupted stream are no event. */
#ifndef WIRE_SSE_DECODER_H
#define WIRE_SSE_DECODER_H

#include "base/buffer.h"

/* All of it lives during the call. */
struct sse_message {
    struct slice event; /* "message" where the stream names none */
    struct slice id;    /* the last one given, by this event or one before; may be empty */
    struct slice data;
};

struct sse_handlers {
    enum status (*on_message)(void *user, const struct sse_message *message);
    void (*on_retry)(void *user, uint64_t delay_ms); /* may be NULL */
};

struct sse_decoder {
    const struct sse_handlers *handlers;
    void *user;
    struct buffer line;
    struct buffer event;
    struct buffer data;
    struct buffer id;
    size_t begun;  /* bytes of the byte order mark read so far */
    bool after_cr; /* an LF that follows ends no line */
};

void sse_decoder_init(struct sse_decoder *decoder, const struct sse_handlers *handlers, void *user,
                      size_t bytes_max);
void sse_decoder_release(struct sse_decoder *decoder);
/* Starts a new stream, on another connection. */
void sse_decoder_restart(struct sse_decoder *decoder);
MUST_CHECK enum status sse_decoder_feed(struct sse_decoder *decoder, struct slice piece);

#endif
