#include "http/conn_http.h"

#include <stdlib.h>

struct conn_http *conn_http_new(const struct http1_limits *limits) {
    struct conn_http *http = calloc(1, sizeof(*http));
    if (!http)
        return NULL;
    http1_parser_init(&http->parser, limits);
    buffer_init(&http->unread, CONN_UNREAD_BYTES_MAX);
    buffer_init(&http->out, CONN_OUT_BYTES_MAX);
    return http;
}

void conn_http_release_input(struct conn_http *http) {
    if (!http)
        return;
    http1_parser_release(&http->parser);
    buffer_release(&http->unread);
}

void conn_http_free(struct conn_http *http) {
    conn_http_release_input(http);
    if (http)
        buffer_release(&http->out);
    free(http);
}
