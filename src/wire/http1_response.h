/* HTTP/1.1 responses in both directions. Written into a caller's buffer: begin, fields, one of the
 * ends, the body. Read as an answer from a stream of bytes, as a client or a node does.
 * Thread: any; the caller gives the Date.
 * Memory: the buffer's, within its maximum; the head of an answer until http1_answer_release.
 * Errors: of a full buffer, of memory, and STATUS_INTERNAL_ERROR for an unclean value. The failure
 * of a part of a head sticks to the buffer; a whole response or chunk is written whole or not at
 * all. STATUS_BAD_REQUEST for bytes that are not an answer, STATUS_HEADERS_TOO_LARGE for a long
 * head; a failed answer stays failed.
 * Invariant: no input can add a line, because a value with a control character is refused; and how
 * a stream is split into pieces does not change its answer. */
#ifndef WIRE_HTTP1_RESPONSE_H
#define WIRE_HTTP1_RESPONSE_H

#include <http_parser.h>

#include "base/limits.h"
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

/* ---- reading ---- */

#define HTTP1_ANSWER_HEADERS_MAX 32

/* The peer of an answer. */
struct http1_peer {
    /* Another node: every field is kept, a head that does not fit is refused, and the body has a
     * length or is in chunks. Without either, the end of the connection would look like its end. */
    bool is_node;
    const struct slice *names; /* of the fields that are kept, if it is no node */
    size_t name_count;
};

enum http1_answer_part {
    HTTP1_ANSWER_HEAD,
    HTTP1_ANSWER_BODY,
    HTTP1_ANSWER_DONE,
    HTTP1_ANSWER_FAILED,
};

/* The fields from http_status on are valid once has_head is true. */
struct http1_answer {
    http_parser parser;
    const struct http1_peer *peer;
    enum http1_answer_part part;
    enum status failure;
    struct buffer head;
    struct buffer *body; /* of the call under way */
    size_t name_begin;   /* of the field under way, in head */
    char last;           /* the last byte of the head so far */
    bool is_value;       /* the last bytes were of a value */
    bool is_skipped;     /* the field under way is not kept */
    bool is_continued;   /* 100 Continue has arrived */
    bool has_head;
    unsigned http_status;
    bool chunked;
    bool is_upgrade;         /* 101: the bytes that follow are of another protocol */
    bool keep_alive;         /* the connection may serve another request; valid at the end */
    uint64_t content_length; /* 0 when chunked or not known */
    struct http1_header headers[HTTP1_ANSWER_HEADERS_MAX]; /* slices of head */
    size_t header_count;
};

/* The peer outlives the answer. */
void http1_answer_init(struct http1_answer *answer, const struct http1_peer *peer);
/* Frees the head, and prepares for another answer of the same peer. */
void http1_answer_release(struct http1_answer *answer);
/* Takes bytes from the front of the input until it is used up, or until the answer is complete, and
 * appends those of the body to body. Informational answers are skipped. */
MUST_CHECK enum status http1_answer_read(struct http1_answer *answer, struct slice *input,
                                         struct buffer *body);
/* The connection has ended, which may complete the answer. */
MUST_CHECK enum status http1_answer_end(struct http1_answer *answer);
static inline bool http1_answer_is_done(const struct http1_answer *answer) {
    return answer->part == HTTP1_ANSWER_DONE;
}
/* The first field of that name that was kept, in any case. */
bool http1_answer_find(const struct http1_answer *answer, struct slice name, struct slice *value);

#endif
