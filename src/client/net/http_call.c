#include "client/net/http_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "client/client_limits.h"

#define ID_BYTES       16
#define ID_CHARACTERS  (2 * ID_BYTES)
#define HEAD_BYTES_MAX (CLIENT_TOKEN_BYTES_MAX + 4096)

struct http_call {
    struct http_call_options options;
    struct socket_stream *stream;
    struct buffer request;
    struct answer answer;
    char id[ID_CHARACTERS + 1];
    bool is_over;
    bool is_closed;
    bool is_busy;
};

static void free_call(struct http_call *call) {
    buffer_release(&call->request);
    answer_release(&call->answer);
    free(call);
}

static void finish(struct http_call *call, bool has_answer, const char *reason) {
    if (call->is_over || call->is_closed)
        return;
    call->is_over = true;
    const char *id = answer_header(&call->answer, ANSWER_REQUEST_ID);
    if (has_answer && *id && strcmp(id, call->id) != 0) {
        has_answer = false;
        reason = "the answer belongs to another request";
    }
    call->options.done(call->options.user, has_answer ? &call->answer : NULL, reason);
}

static void leave(struct http_call *call) {
    call->is_busy = false;
    if (call->is_closed)
        free_call(call);
}

static void on_opened(void *user) {
    struct http_call *call = user;
    call->is_busy = true;
    if (socket_stream_send(call->stream, buffer_slice(&call->request)) != STATUS_OK)
        finish(call, false, "there is no memory for the request");
    leave(call);
}

static void on_received(void *user, struct slice data) {
    struct http_call *call = user;
    size_t used = 0;
    call->is_busy = true;
    if (answer_feed(&call->answer, data, &used) != STATUS_OK)
        finish(call, false, "the answer is not HTTP, or too long");
    else if (call->answer.is_complete)
        finish(call, true, "");
    leave(call);
}

static void on_ended(void *user, const char *reason) {
    struct http_call *call = user;
    call->is_busy = true;
    bool is_whole =
        call->answer.parser.status_code >= 200 && answer_end(&call->answer) == STATUS_OK;
    finish(call, is_whole, reason);
    leave(call);
}

static const struct socket_events events = {on_opened, on_received, on_ended};

static enum status write_request(struct http_call *call) {
    const struct http_call_options *options = &call->options;
    const struct socket_target *target = options->target;
    bool is_bare = strchr(target->host, ':') == NULL;
    unsigned char random[ID_BYTES];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return STATUS_SYSTEM_ERROR;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(call->id + 2 * i, 3, "%02x", random[i]);
    enum status status = buffer_printf(
        &call->request,
        "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nAuthorization: Bearer %.*s\r\n"
        "Content-Type: %s\r\nContent-Length: %zu\r\nX-Request-Id: %s\r\nConnection: close\r\n\r\n",
        options->path, is_bare ? "" : "[", target->host, is_bare ? "" : "]", target->port,
        (int)options->token.size, options->token.data, options->content_type, options->body.size,
        call->id);
    return status == STATUS_OK ? buffer_append_slice(&call->request, options->body) : status;
}

enum status http_call_open(struct http_call **call, const struct http_call_options *options) {
    struct http_call *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    buffer_init(&made->request, HEAD_BYTES_MAX + options->body.size);
    answer_init(&made->answer, CLIENT_ANSWER_BYTES_MAX);
    enum status status = write_request(made);
    if (status == STATUS_OK)
        status = socket_stream_open(&made->stream, options->loop, options->holds, options->target,
                                    &events, made);
    if (status == STATUS_OK)
        *call = made;
    else
        free_call(made);
    return status;
}

void http_call_close(struct http_call *call) {
    if (!call)
        return;
    call->is_closed = true;
    socket_stream_close(call->stream);
    if (!call->is_busy)
        free_call(call);
}
