/* Reads HTTP/1.1 requests from a stream of bytes with http-parser, and is stricter than it.
 * Thread: its connection's.
 * Memory: none between requests; during one, a head of at most head_bytes_max and an array of its
 * fields.
 * Errors: a status for each error of the peer; a failed parser stays failed with that status.
 * Invariant: the events of a stream do not depend on how the stream was split into pieces. */
#ifndef WIRE_HTTP1_H
#define WIRE_HTTP1_H

#include "wire/http1_request.h"

/* A line counts without its CRLF, a head with everything up to and with its blank line. */
struct http1_limits {
    size_t line_bytes_max;
    size_t head_bytes_max;
    unsigned header_count_max;
};

#define HTTP1_HEAD_BYTES_LIMIT 65536
#define HTTP1_LIMITS_DEFAULT   ((struct http1_limits){8192, 16384, 64})

enum http1_event_kind {
    HTTP1_EVENT_MORE, /* the input is used up and the request is not over */
    HTTP1_EVENT_HEAD, /* http1_parser_request is set; the rest of the input is not touched */
    HTTP1_EVENT_BODY, /* a piece of the body, inside the input */
    HTTP1_EVENT_DONE, /* the whole request was read */
};

struct http1_event {
    enum http1_event_kind kind;
    struct slice piece;
};

enum http1_parser_state {
    HTTP1_READS_HEAD,
    HTTP1_READS_BODY,
    HTTP1_IS_DONE,
    HTTP1_FAILED,
};

struct http1_message;

struct http1_parser {
    const struct http1_limits *limits;
    struct http1_message *message; /* NULL between requests */
    enum http1_parser_state state;
    enum status failure;
    unsigned blank_line_count;
};

/* The limits outlive the parser. */
void http1_parser_init(struct http1_parser *parser, const struct http1_limits *limits);
/* Returns from any state to that of init. */
void http1_parser_release(struct http1_parser *parser);

/* Reads the next event and removes its bytes from the front of the input. Call until
 * HTTP1_EVENT_MORE; for backpressure, do not call. A request without body is DONE with no
 * further input. After HEAD of an upgrade the rest of the input belongs to the next protocol:
 * release the parser instead of calling on. */
MUST_CHECK enum status http1_next(struct http1_parser *parser, struct slice *input,
                                  struct http1_event *event);

/* The request, from HEAD until http1_finish; else NULL. */
const struct http1_request *http1_parser_request(const struct http1_parser *parser);
/* After HEAD: how long a body may be; without this, none may come. Answers
 * STATUS_PAYLOAD_TOO_LARGE at once for a longer Content-Length, so ask before 100 Continue. */
MUST_CHECK enum status http1_allow_body(struct http1_parser *parser, uint64_t body_bytes_max);
/* After DONE, when the request is answered: returns its memory and is ready for the next. */
void http1_finish(struct http1_parser *parser);
/* Memory held besides the struct itself. */
size_t http1_parser_bytes(const struct http1_parser *parser);

#endif
