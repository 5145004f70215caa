/* Server-sent events (WHATWG HTML, section 9.2): writes the lines of an event stream, and reads a
 * stream that arrives in pieces of any size.
 * Thread: any for writing; one at a time for a decoder.
 * Memory: writing goes into the caller's buffer. A decoder holds one line and one event, each at
 * most bytes_max, until sse_decoder_release.
 * Errors: STATUS_INVALID_MESSAGE for a field that would break its line, STATUS_PAYLOAD_TOO_LARGE,
 * STATUS_OUT_OF_MEMORY, and any error of a handler. Do not feed a decoder after an error.
 * Invariant: a failed write leaves the buffer as it was. Lines after the last blank line of an
 * interrupted stream are no event. */
#ifndef WIRE_SSE_H
#define WIRE_SSE_H

#include "base/buffer.h"

struct sse_event {
    /* data NULL: no id line, the client keeps the last one. Empty: the client clears it. */
    struct slice id;
    /* Empty: an event of the default type, "message". */
    struct slice event;
    /* UTF-8. Any of LF, CRLF and CR ends a line; the client sees LF for each. */
    struct slice data;
};

MUST_CHECK enum status sse_event(struct buffer *out, const struct sse_event *event);
/* An event of the default type with an id and one line of data, which the caller writes between
 * this and SSE_LINE_END. Neither the id nor the data has a line end or NUL. Writes
 * SSE_LINE_BEGIN_BYTES besides the id and returns the end. */
char *sse_put_line_begin(char *at, struct slice id);
#define SSE_LINE_BEGIN_BYTES (sizeof("id: \ndata: ") - 1)
#define SSE_LINE_END         "\n\n"
/* A comment, which clients skip: keeps idle connections open. */
MUST_CHECK enum status sse_comment(struct buffer *out, struct slice text);
MUST_CHECK enum status sse_retry(struct buffer *out, uint64_t delay_ms);

/* ---- reading ---------------------------------------------------------------------------- */

/* All of it lives during the call. */
struct sse_message {
    struct slice event; /* "message" if the stream names none */
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
