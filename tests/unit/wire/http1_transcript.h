/* Runs a stream of bytes through an HTTP/1.1 parser, cut into pieces, and writes down what came
 * out: two cuts of one stream must give one transcript. Unit tests and the fuzz target share it. */
#ifndef HTTP1_TRANSCRIPT_H
#define HTTP1_TRANSCRIPT_H

#include <stdio.h>
#include <stdlib.h>

#include "wire/http1.h"

struct http1_run {
    struct slice input;
    const struct http1_limits *limits;
    uint64_t body_bytes_max;
    /* Size of the next piece, at least 1; NULL for all in one. */
    size_t (*cut)(void *user);
    void *user;
    /* Out. */
    struct buffer text;
    enum status status;
    unsigned request_count;
    size_t memory_bytes_max;
};

#define HTTP1_REQUIRE(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline void http1_require_clean(struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        HTTP1_REQUIRE((byte >= ' ' && byte != 0x7f) || byte == '\t');
    }
}

static inline void http1_run_head(struct http1_run *run, const struct http1_request *request) {
    HTTP1_REQUIRE(request != NULL);
    HTTP1_REQUIRE(!request->chunked || request->content_length == 0);
    HTTP1_REQUIRE(request->has_body == (request->chunked || request->content_length > 0));
    HTTP1_REQUIRE(request->host.size > 0 || request->version_minor == 0);
    HTTP1_REQUIRE(request->path.size > 0);
    HTTP1_REQUIRE(
        buffer_printf(&run->text, "HEAD %d 1.%u %.*s|%.*s|%.*s|%.*s %s%s%s%s%s%llu\n",
                      request->method, request->version_minor, (int)request->target.size,
                      request->target.data, (int)request->host.size, request->host.data,
                      (int)request->path.size, request->path.data, (int)request->query.size,
                      request->query.data, request->has_body ? "body " : "",
                      request->chunked ? "chunked " : "", request->keep_alive ? "keep " : "",
                      request->upgrade ? "upgrade " : "", request->expect_continue ? "expect " : "",
                      (unsigned long long)request->content_length) == STATUS_OK);
    http1_require_clean(request->target);
    for (size_t i = 0; i < request->header_count; i++) {
        http1_require_clean(request->headers[i].name);
        http1_require_clean(request->headers[i].value);
        HTTP1_REQUIRE(buffer_printf(&run->text, "%.*s=%.*s\n", (int)request->headers[i].name.size,
                                    request->headers[i].name.data,
                                    (int)request->headers[i].value.size,
                                    request->headers[i].value.data) == STATUS_OK);
    }
}

/* False when the stream is over for this parser. */
static inline bool http1_run_event(struct http1_run *run, struct http1_parser *parser,
                                   struct http1_event event, bool *in_body) {
    switch (event.kind) {
    case HTTP1_EVENT_MORE:
        return true;
    case HTTP1_EVENT_HEAD:
        http1_run_head(run, http1_parser_request(parser));
        if (http1_parser_request(parser)->upgrade)
            return false;
        run->status = http1_allow_body(parser, run->body_bytes_max);
        return run->status == STATUS_OK;
    case HTTP1_EVENT_BODY:
        HTTP1_REQUIRE(event.piece.size > 0);
        if (!*in_body)
            HTTP1_REQUIRE(buffer_append(&run->text, "BODY ", 5) == STATUS_OK);
        HTTP1_REQUIRE(buffer_append_slice(&run->text, event.piece) == STATUS_OK);
        *in_body = true;
        return true;
    case HTTP1_EVENT_DONE:
        HTTP1_REQUIRE(buffer_append(&run->text, "\nDONE\n", 6) == STATUS_OK);
        *in_body = false;
        run->request_count++;
        http1_finish(parser);
        HTTP1_REQUIRE(http1_parser_bytes(parser) == 0);
        return true;
    }
    return false;
}

/* Drives one piece to HTTP1_EVENT_MORE; the rest is what the parser did not take. */
static inline bool http1_run_piece(struct http1_run *run, struct http1_parser *parser,
                                   struct slice *rest, bool *in_body) {
    for (;;) {
        struct http1_event event;
        run->status = http1_next(parser, rest, &event);
        if (http1_parser_bytes(parser) > run->memory_bytes_max)
            run->memory_bytes_max = http1_parser_bytes(parser);
        if (run->status != STATUS_OK || !http1_run_event(run, parser, event, in_body))
            return false;
        if (event.kind == HTTP1_EVENT_MORE) {
            HTTP1_REQUIRE(rest->size == 0);
            return true;
        }
    }
}

static inline void http1_run(struct http1_run *run) {
    struct http1_parser parser;
    struct slice input = run->input;
    bool in_body = false;
    bool goes_on = true;
    http1_parser_init(&parser, run->limits);
    buffer_init(&run->text, 1 << 22);
    while (goes_on && input.size > 0) {
        size_t size = run->cut ? run->cut(run->user) : input.size;
        size = size < input.size ? size : input.size;
        /* A block of its own, gone right after: reading past it or keeping it shows. */
        char *block = malloc(size);
        HTTP1_REQUIRE(block != NULL);
        memcpy(block, input.data, size);
        struct slice rest = {block, size};
        goes_on = http1_run_piece(run, &parser, &rest, &in_body);
        HTTP1_REQUIRE(rest.data >= block && rest.data + rest.size == block + size);
        input = slice_from(input, size - rest.size);
        free(block);
    }
    if (run->status != STATUS_OK) {
        struct http1_event event;
        struct slice more = SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        HTTP1_REQUIRE(http1_next(&parser, &more, &event) == run->status);
        HTTP1_REQUIRE(event.kind == HTTP1_EVENT_MORE);
    } else {
        HTTP1_REQUIRE(buffer_printf(&run->text, "LEFT %zu\n", input.size) == STATUS_OK);
    }
    HTTP1_REQUIRE(buffer_printf(&run->text, "STATUS %d\n", run->status) == STATUS_OK);
    http1_parser_release(&parser);
    HTTP1_REQUIRE(http1_parser_bytes(&parser) == 0);
}

#endif
