/* The head of an HTTP/1.1 request as the parser returns it, and lookups in it.
 * Thread: any.
 * Memory: slices point into the parser's head and live until the request is finished.
 * Errors: STATUS_BAD_REQUEST of decoding, which then leaves its output unchanged.
 * Invariant: every name is a token; no value holds a control character other than HTAB, or outer
 * blanks. */
#ifndef WIRE_HTTP1_REQUEST_H
#define WIRE_HTTP1_REQUEST_H

#include <stdint.h>

#include "base/buffer.h"

enum http1_method {
    HTTP1_METHOD_GET,
    HTTP1_METHOD_HEAD,
    HTTP1_METHOD_POST,
    HTTP1_METHOD_PUT,
    HTTP1_METHOD_PATCH,
    HTTP1_METHOD_DELETE,
    HTTP1_METHOD_OPTIONS,
    HTTP1_METHOD_OTHER,
};

struct http1_header {
    struct slice name;
    struct slice value;
};

struct http1_request {
    enum http1_method method;
    unsigned version_minor; /* 0, or 1 for every later one */
    struct slice target;    /* as sent */
    struct slice path;      /* "*" for the server as a whole; else begins with '/', still encoded */
    struct slice query;     /* behind the first '?', still encoded; empty when there is none */
    struct slice host;      /* the name with its port; empty only in HTTP/1.0 */
    struct http1_header *headers;
    size_t header_count;
    uint64_t content_length; /* 0 when chunked or without body */
    bool chunked;
    bool has_body;
    bool keep_alive;
    bool upgrade;         /* HTTP/1.1, Connection: upgrade, an Upgrade field, no body */
    bool expect_continue; /* the peer waits for 100 Continue before it sends the body */
};

/* Sets path and query from the request's target and, in absolute form, host. False for a target
 * that the method does not allow, or whose host differs from the Host field. */
bool http1_request_split_target(struct http1_request *request);

/* The first field of that name, in any case. */
bool http1_header_find(const struct http1_request *request, struct slice name, struct slice *value);
/* Whether a comma-separated field, over all its lines, lists the token; both in any case. */
bool http1_header_has_token(const struct http1_request *request, struct slice name,
                            struct slice token);

/* Appends the text with every byte encoded that has a meaning in a path or a query. */
enum status http1_percent_encode(struct buffer *out, struct slice text);
/* Appends the decoded text. A bad escape or a NUL is STATUS_BAD_REQUEST. */
MUST_CHECK enum status http1_percent_decode(struct slice text, struct buffer *decoded);
/* Appends the decoded value of a query parameter ('+' is a space). A bad escape or a NUL
 * anywhere in the query is STATUS_BAD_REQUEST, and so is the parameter given twice: two readers
 * could choose differently. */
MUST_CHECK enum status http1_query_find(struct slice query, struct slice name, struct buffer *value,
                                        bool *found);

/* Takes the next parameter from the query and appends its decoded name. False: none is left. A name
 * that does not decode or does not fit is STATUS_BAD_REQUEST. */
MUST_CHECK enum status http1_query_next(struct slice *query, struct buffer *name, bool *found);

#endif
