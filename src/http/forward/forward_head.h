/* The heads of a forwarded request and of its answer: only fields that hold from end to end.
 * Any thread; pure functions.
 * Memory: the caller's buffer and array.
 * Errors: those of the buffer.
 * The writer sees the client's own fields, and the client those of the writer. */
#ifndef HTTP_FORWARD_FORWARD_HEAD_H
#define HTTP_FORWARD_FORWARD_HEAD_H

#include "wire/http1_response.h"

#define FORWARDED_FIELD SLICE("Khala-Forwarded")
#define PROOF_FIELD     SLICE("Khala-Forwarded-Proof")

struct forward_head {
    const struct http1_request *request;
    struct slice request_id;
    struct slice node_id;
    struct slice proof;
    uint64_t content_length; /* of the body, if it is not chunked */
    bool is_chunked;
    bool expects_continue;
};

MUST_CHECK enum status forward_head_write(struct buffer *out, const struct forward_head *head);
/* Copies the fields of the answer that are passed on. Returns how many. */
size_t forward_head_fields(const struct http1_answer *answer,
                           struct http1_header fields[HTTP1_ANSWER_HEADERS_MAX]);

#endif
