/* HTTP/1.1 responses, written into a caller's buffer: begin, fields, one of the ends, the body.
 * Thread: any; the caller gives the Date.
 * Memory: the buffer's, within its maximum.
 * Errors: of a full buffer, of memory, and STATUS_INTERNAL_ERROR for an unclean value. The failure
 * of a part of a head sticks to the buffer; a whole response or chunk is written whole or not at
 * all.
 * Invariant: no input can add a line, because a value with a control character is refused. */
#ifndef WIRE_HTTP1_RESPONSE_H
#define WIRE_HTTP1_RESPONSE_H

#include "wire/http1_request.h"

struct http1_response {
    unsigned http_status;
    bool keep_alive;
    bool to_head;      /* the request was HEAD: all fields, no body */
    struct slice date; /* empty: none is written */
    struct slice content_type;
    struct slice body;
    const struct http1_header *headers; /* further ones, or NULL */
    size_t header_count;
};

/* The status line and, unless the status is 1xx, Connection. */
enum status http1_response_begin(struct buffer *buffer, unsigned http_status, bool keep_alive);
/* The name is ours and a token; an unclean value is STATUS_INTERNAL_ERROR. */
enum status http1_response_header(struct buffer *buffer, struct slice name, struct slice value);
/* Ends the head, when the body's length is known. */
enum status http1_response_end_length(struct buffer *buffer, uint64_t content_length);
/* Ends the head, for a body of http1_chunk and http1_chunk_end. Not for an HTTP/1.0 peer. */
enum status http1_response_end_chunked(struct buffer *buffer);
/* Ends the head without a body's length: 101, 204, 304, or a body that ends with the connection. */
enum status http1_response_end_bare(struct buffer *buffer);
/* Nothing for an empty piece, which would end the body. */
MUST_CHECK enum status http1_chunk(struct buffer *buffer, struct slice piece);
/* A piece that is written into the buffer itself, between these two calls. begin: the size of the
 * buffer before the first. The size of the chunk has leading zeros. */
MUST_CHECK enum status http1_chunk_begin(struct buffer *buffer);
MUST_CHECK enum status http1_chunk_close(struct buffer *buffer, size_t begin);
MUST_CHECK enum status http1_chunk_end(struct buffer *buffer);
/* A whole response. A status without body ignores the given body. */
MUST_CHECK enum status http1_response_write(struct buffer *buffer,
                                            const struct http1_response *response);

#endif
