/* What a connection needs for requests and answers. It is freed when the connection becomes a
 * session, because most connections of a busy server are idle sessions.
 * Belongs to its connection's thread.
 * Memory: between requests no buffer.
 * NULL for one that cannot be made.
 * Bytes that arrive before the answer to an earlier request are at most CONN_UNREAD_BYTES_MAX. */
#ifndef HTTP_CONN_HTTP_H
#define HTTP_CONN_HTTP_H

#include "base/limits.h"
#include "wire/http1.h"

#define CONN_UNREAD_BYTES_MAX LOOP_READ_BYTES

struct conn_http {
    struct http1_parser parser;
    struct buffer unread;    /* bytes after the request that is being handled */
    struct buffer out;       /* the one bounded slot of bytes to be written */
    size_t fresh_body_bytes; /* of a streamed body, since its deadline was set */
    size_t unread_bytes;     /* of the answer, when its deadline was set */
    uint64_t written_bytes;  /* of all answers */
    unsigned chunk_zeros;    /* sent since the last chunk, to learn whether the peer is gone */
};

/* The limits outlive it. */
struct conn_http *conn_http_new(const struct http1_limits *limits);
/* These two accept NULL. No further request is read; the answer may still be sent. */
void conn_http_release_input(struct conn_http *http);
void conn_http_free(struct conn_http *http);

#endif
