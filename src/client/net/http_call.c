#include "client/net/http_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "client/client_limits.h"
#include "wire/http1_response.h"

#define ID_BYTES        16
#define ID_CHARACTERS   (2 * ID_BYTES)
#define HEAD_BYTES_MAX  (CLIENT_TOKEN_BYTES_MAX + CLIENT_PATH_BYTES_MAX + 4096)
#define CHUNK_BYTES_MAX (CLIENT_OUT_BYTES_MAX / 2)

struct http_call {
    struct http_call_options options;
    struct socket_stream *stream;
    struct buffer request;
    struct answer answer;
    char id[ID_CHARACTERS + 1];
    bool is_sent;
    bool is_body_over;
    bool is_receiving; /* something of the answer has come */
    bool is_over;
    bool is_closed;
    bool is_busy;
};

/* ---- the spare connection ----------------------------------------------------------------- */

void http_spare_close(struct http_spare *spare) {
    socket_stream_close(spare->stream);
    spare->stream = NULL;
}

static void on_spare_received(void *user, struct slice data) {
    (void)data;
    http_spare_close(user);
}

static void on_spare_ended(void *user, const char *reason) {
    (void)reason;
    http_spare_close(user);
}

static const struct socket_events spare_events = {NULL, on_spare_received, on_spare_ended, NULL};

/* The next call may use the connection, if both sides have said all of this one. */
static void keep_stream(struct http_call *call, bool has_rest) {
    struct http_spare *spare = call->options.spare;
    if (!spare || spare->stream || has_rest || !call->answer.keeps_connection ||
        !call->is_body_over || !socket_stream_is_idle(call->stream))
        return;
    spare->stream = call->stream;
    call->stream = NULL;
    socket_stream_hand_over(spare->stream, &spare_events, spare);
}

/* ---- events ------------------------------------------------------------------------------- */

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
    if (has_answer && call->options.has_id && *id && strcmp(id, call->id) != 0) {
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

static void progress(struct http_call *call) {
    if (call->options.progress && !call->is_over && !call->is_closed)
        call->options.progress(call->options.user);
}

static enum status send_head(struct http_call *call) {
    enum status status = socket_stream_send(call->stream, buffer_slice(&call->request));
    if (status != STATUS_OK)
        return status;
    buffer_release(&call->request);
    call->is_sent = true;
    if (!call->is_body_over)
        socket_stream_want_room(call->stream);
    return STATUS_OK;
}

static void on_opened(void *user) {
    struct http_call *call = user;
    call->is_busy = true;
    progress(call);
    if (!call->is_closed && send_head(call) != STATUS_OK)
        finish(call, false, "there is no memory for the request");
    leave(call);
}

static enum status send_piece(struct http_call *call) {
    struct slice piece = {NULL, 0};
    struct buffer chunk;
    bool is_last = false;
    enum status status = call->options.more(call->options.user, &piece, &is_last);
    if (status != STATUS_OK || call->is_closed || (piece.size == 0 && !is_last))
        return status;
    buffer_init(&chunk, CHUNK_BYTES_MAX);
    status = http1_chunk(&chunk, piece);
    if (status == STATUS_OK && is_last)
        status = http1_chunk_end(&chunk);
    if (status == STATUS_OK)
        status = socket_stream_send(call->stream, buffer_slice(&chunk));
    buffer_release(&chunk);
    call->is_body_over = is_last;
    if (status == STATUS_OK && !is_last)
        socket_stream_want_room(call->stream);
    return status;
}

static void on_room(void *user) {
    struct http_call *call = user;
    call->is_busy = true;
    progress(call);
    if (!call->is_over && !call->is_closed && !call->is_body_over && send_piece(call) != STATUS_OK)
        finish(call, false, "the body of the request broke off");
    leave(call);
}

static enum status on_piece(void *user, struct slice piece) {
    struct http_call *call = user;
    return call->options.piece(call->options.user, &call->answer, piece);
}

static void on_received(void *user, struct slice data) {
    struct http_call *call = user;
    size_t used = 0;
    call->is_busy = call->is_receiving = true;
    enum status status = answer_feed(&call->answer, data, &used);
    progress(call);
    if (status != STATUS_OK) {
        finish(call, false, "the server's answer is not HTTP, or too long");
    } else if (call->answer.is_complete && !call->is_over && !call->is_closed) {
        keep_stream(call, used < data.size);
        finish(call, true, "");
    }
    leave(call);
}

static void on_ended(void *user, const char *reason) {
    struct http_call *call = user;
    call->is_busy = true;
    bool is_whole =
        call->answer.parser.status_code >= 200 && answer_end(&call->answer) == STATUS_OK;
    if (call->is_receiving)
        reason = "the server broke off its answer";
    else if (call->is_sent)
        reason = "the server closed the connection";
    finish(call, is_whole, reason);
    leave(call);
}

static const struct socket_events events = {on_opened, on_received, on_ended, on_room};

/* ---- opening ------------------------------------------------------------------------------ */

static enum status make_id(struct http_call *call) {
    unsigned char random[ID_BYTES];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return STATUS_SYSTEM_ERROR;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(call->id + 2 * i, 3, "%02x", random[i]);
    return STATUS_OK;
}

static enum status write_request(struct http_call *call) {
    const struct http_call_options *options = &call->options;
    const struct socket_target *target = options->target;
    struct buffer *out = &call->request;
    bool is_bare = strchr(target->host, ':') == NULL;
    enum status status = options->has_id ? make_id(call) : STATUS_OK;
    if (status == STATUS_OK)
        status = buffer_printf(out, "%s %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: khala\r\n",
                               options->method, options->path, is_bare ? "" : "[", target->host,
                               is_bare ? "" : "]", target->port);
    if (status == STATUS_OK && options->token.size > 0)
        status = buffer_printf(out, "Authorization: Bearer %.*s\r\n", (int)options->token.size,
                               options->token.data);
    if (status == STATUS_OK && options->has_id)
        status = buffer_printf(out, "X-Request-Id: %s\r\n", call->id);
    if (status == STATUS_OK && options->content_type)
        status = buffer_printf(out, "Content-Type: %s\r\n", options->content_type);
    if (status == STATUS_OK && options->is_streamed)
        status = buffer_append_slice(out, SLICE("Transfer-Encoding: chunked\r\n"));
    else if (status == STATUS_OK && options->content_type)
        status = buffer_printf(out, "Content-Length: %zu\r\n", options->body.size);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, options->spare ? SLICE("\r\n")
                                                         : SLICE("Connection: close\r\n\r\n"));
    return status == STATUS_OK ? buffer_append_slice(out, options->body) : status;
}

/* Sends over the spare connection, which may have ended without notice yet. */
static bool use_spare(struct http_call *call) {
    struct http_spare *spare = call->options.spare;
    if (!spare || !spare->stream)
        return false;
    call->stream = spare->stream;
    spare->stream = NULL;
    socket_stream_hand_over(call->stream, &events, call);
    if (send_head(call) == STATUS_OK)
        return true;
    socket_stream_close(call->stream);
    call->stream = NULL;
    return false;
}

enum status http_call_open(struct http_call **call, const struct http_call_options *options) {
    struct http_call *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    made->is_body_over = !options->is_streamed;
    buffer_init(&made->request, HEAD_BYTES_MAX + options->body.size);
    answer_init(&made->answer, CLIENT_ANSWER_BYTES_MAX);
    if (options->piece) {
        made->answer.user = made;
        made->answer.piece = on_piece;
    }
    enum status status = write_request(made);
    made->options.token = made->options.body = (struct slice){NULL, 0};
    if (status == STATUS_OK && !use_spare(made))
        status = socket_stream_open(&made->stream, options->loop, options->holds, options->target,
                                    &events, made);
    if (status == STATUS_OK)
        *call = made;
    else
        free_call(made);
    return status;
}

void http_call_more(struct http_call *call) {
    if (call->is_sent && !call->is_body_over && !call->is_over && call->stream)
        socket_stream_want_room(call->stream);
}

bool http_call_was_sent(const struct http_call *call) {
    return call->is_sent;
}

const char *http_call_id(const struct http_call *call) {
    return call->id;
}

void http_call_close(struct http_call *call) {
    if (!call)
        return;
    call->is_closed = true;
    socket_stream_close(call->stream);
    call->stream = NULL;
    if (!call->is_busy)
        free_call(call);
}
