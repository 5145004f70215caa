/* Reads the answer to one HTTP/1.1 request from a stream of bytes, as a client between nodes. An
 * answer without a length is refused: the end of its connection would look the same as the end of
 * its body.
 * Thread: its connection's.
 * Memory: a head of at most HTTP1_ANSWER_HEAD_BYTES_MAX until http1_answer_release.
 * Errors: STATUS_BAD_REQUEST for bytes that no khala server sends, STATUS_HEADERS_TOO_LARGE for a
 * long head. A failed answer stays failed.
 * Invariant: the result does not depend on how the stream was split into pieces. */
#ifndef WIRE_HTTP1_ANSWER_H
#define WIRE_HTTP1_ANSWER_H

#include "base/limits.h"
#include "wire/http1_request.h"

#define HTTP1_ANSWER_HEADERS_MAX 32

enum http1_answer_part {
    HTTP1_ANSWER_HEAD,
    HTTP1_ANSWER_BODY, /* its length is known */
    HTTP1_ANSWER_CHUNK_SIZE,
    HTTP1_ANSWER_CHUNK_SIZE_LF,
    HTTP1_ANSWER_CHUNK_DATA,
    HTTP1_ANSWER_CHUNK_CR,
    HTTP1_ANSWER_CHUNK_LF,
    HTTP1_ANSWER_LAST_CR,
    HTTP1_ANSWER_LAST_LF,
    HTTP1_ANSWER_DONE,
    HTTP1_ANSWER_FAILED,
};

/* The fields after head are valid once has_head is true. */
struct http1_answer {
    enum http1_answer_part part;
    enum status failure;
    struct buffer head;
    uint64_t bytes_left; /* rest of the body, or of the current chunk */
    unsigned digit_count;
    bool is_continued; /* 100 Continue has arrived */
    bool has_head;
    unsigned http_status;
    bool chunked;
    uint64_t content_length; /* 0 when chunked */
    bool keep_alive;
    struct http1_header headers[HTTP1_ANSWER_HEADERS_MAX]; /* slices of head */
    size_t header_count;
};

void http1_answer_init(struct http1_answer *answer);
void http1_answer_release(struct http1_answer *answer);
/* Takes bytes from the front of the input until it is used up, or until the answer is complete,
 * and appends those of the body to body. Informational answers are skipped. */
MUST_CHECK enum status http1_answer_read(struct http1_answer *answer, struct slice *input,
                                         struct buffer *body);
static inline bool http1_answer_is_done(const struct http1_answer *answer) {
    return answer->part == HTTP1_ANSWER_DONE;
}
/* The first field of that name, in any case. */
bool http1_answer_find(const struct http1_answer *answer, struct slice name, struct slice *value);

#endif
