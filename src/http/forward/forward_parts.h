/* The parts of forwarding that need no writer: heads, the lines of a batch's answer, the proof of
 * a node.
 * Thread: any; pure functions.
 * Memory: the caller's buffers and arrays.
 * Errors: those of the buffer.
 * Invariant: only fields that hold from end to end are passed on. The writer sees the client's
 * own fields, and the client those of the writer. */
#ifndef HTTP_FORWARD_FORWARD_PARTS_H
#define HTTP_FORWARD_FORWARD_PARTS_H

#include "http/admit/operator_key.h"
#include "wire/http1_response.h"

/* ---- heads ---- */

#define FORWARDED_FIELD SLICE("Khala-Forwarded")
#define PROOF_FIELD     SLICE("Khala-Forwarded-Proof")

struct forward_head {
    const struct http1_request *request;
    struct slice request_id;
    struct slice node_id;
    struct slice proof;
    uint64_t content_length; /* the size of a body that is not chunked */
    bool is_chunked;
    bool expects_continue;
};

MUST_CHECK enum status forward_head_write(struct buffer *out, const struct forward_head *head);
/* Copies the fields of the answer that are passed on. Returns how many. */
size_t forward_head_fields(const struct http1_answer *answer,
                           struct http1_header fields[HTTP1_ANSWER_HEADERS_MAX]);

/* The node that answered has no writer role any more, and stored nothing. */
bool forward_is_not_stored(unsigned http_status, struct slice body);
/* The status whose code the body of a refusal names; STATUS_OK: none. */
enum status forward_refusal(unsigned http_status, struct slice body);
/* The append has an event id or an idempotency key, so it is stored once, however often it is sent.
 */
bool forward_has_identity(struct slice body);

/* ---- the lines of a batch's answer ---- */

enum forward_lines_form { FORWARD_LINES_NONE, FORWARD_LINES_NDJSON, FORWARD_LINES_ARRAY };

/* Only whole lines are passed on, unless one is very long. So when the writer is lost, the answer
 * can end with a line that names the first item of unknown outcome. */
struct forward_lines {
    enum forward_lines_form form;
    bool has_passed;     /* some bytes were passed on */
    bool is_inside;      /* the last byte that was passed on is inside a line */
    uint64_t next_index; /* the first item whose answer was not passed on */
};

/* How many bytes of the text may be passed on: its whole lines, or all if it must go. */
size_t forward_lines_take(struct forward_lines *lines, struct slice text, bool must_go);

/* ---- the proof of a node ---- */

/* Nodes share the operator key. The proof shows that the sender of a forwarded request has the key,
 * without the key. It only exempts a connection from the limits of connections; it admits no
 * request.
 */
#define NODE_PROOF_SIZE (2 * SHA256_BYTES)

/* Writes the proof of this node, with a zero at its end. */
void node_proof_write(const struct operator_key *key, struct slice node_id,
                      char text[NODE_PROOF_SIZE + 1]);
/* Whether the request has a proof that fits its node id and the key or the previous one. */
bool node_proof_check(const struct operator_key *key, const struct http1_request *request);

#endif
