#include "client/http_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "client/client_limits.h"

#define ID_BYTES        16
#define ID_CHARACTERS   (2 * ID_BYTES)
#define HEAD_BYTES_MAX  (CLIENT_TOKEN_BYTES_MAX + CLIENT_PATH_BYTES_MAX + 4096)
#define CHUNK_BYTES_MAX (CLIENT_OUT_BYTES_MAX / 2)

struct http_call {
    struct http_call_options options;
    struct outbound *outbound; /* NULL: none, or no more */
    struct buffer request;
    struct http_answer answer;
    char id[ID_CHARACTERS + 1];
    bool is_sent;
    bool is_body_over;
    bool is_receiving; /* something of the answer has come */
    bool is_over;
    bool is_closed;
    bool is_busy;
};

static const struct slice fields[] = {SLICE("retry-after"), SLICE("x-request-id"),
                                      SLICE("content-type"), SLICE("sec-websocket-accept")};

const struct http1_peer http_answer_peer = {
    .names = fields,
    .name_count = sizeof(fields) / sizeof(fields[0]),
};

struct slice http_answer_field(const struct http_answer *answer, struct slice name) {
    struct slice value = SLICE("");
    (void)http1_answer_find(&answer->head, name, &value);
    return value;
}

/* ---- events ------------------------------------------------------------------------------- */

static void free_call(struct http_call *call) {
    buffer_release(&call->request);
    http1_answer_release(&call->answer.head);
    buffer_release(&call->answer.body);
    free(call);
}

static void finish(struct http_call *call, bool has_answer, const char *reason) {
    if (call->is_over || call->is_closed)
        return;
    call->is_over = true;
    struct slice id = http_answer_field(&call->answer, SLICE("x-request-id"));
    if (has_answer && call->options.has_id && id.size > 0 && !slice_equal(id, slice_of(call->id))) {
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
    enum status status = outbound_send(call->outbound, buffer_slice(&call->request));
    if (status != STATUS_OK)
        return status;
    buffer_release(&call->request);
    call->is_sent = true;
    if (!call->is_body_over)
        outbound_want_room(call->outbound);
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
        status = outbound_send(call->outbound, buffer_slice(&chunk));
    buffer_release(&chunk);
    call->is_body_over = is_last;
    if (status == STATUS_OK && !is_last)
        outbound_want_room(call->outbound);
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

/* Keeps the connection if both sides have said all of this call, and none is kept. */
static void end_connection(struct http_call *call, bool has_rest) {
    struct outbound *outbound = call->outbound;
    bool is_kept = call->options.is_kept && !has_rest && call->answer.head.keep_alive &&
                   call->is_body_over && outbound_is_clear(outbound) &&
                   list_is_empty(&call->options.net->group.idle);
    call->outbound = NULL;
    if (is_kept)
        outbound_keep(outbound);
    else
        outbound_close(outbound);
}

/* Reads the input, and hands the body on, unless the answer holds it. */
static enum status read_answer(struct http_call *call, struct slice *input) {
    struct http_answer *answer = &call->answer;
    enum status status = http1_answer_read(&answer->head, input, &answer->body);
    if (status != STATUS_OK || !call->options.piece || answer->body.size == 0)
        return status;
    status = call->options.piece(call->options.user, answer, buffer_slice(&answer->body));
    buffer_clear(&answer->body);
    return status;
}

static void on_received(void *user, struct slice data) {
    struct http_call *call = user;
    call->is_busy = call->is_receiving = true;
    enum status status = read_answer(call, &data);
    progress(call);
    if (status != STATUS_OK) {
        finish(call, false, "the server's answer is not HTTP, or too long");
    } else if (http1_answer_is_done(&call->answer.head) && !call->is_over && !call->is_closed) {
        end_connection(call, data.size > 0);
        finish(call, true, "");
    }
    leave(call);
}

static void on_lost(void *user, const char *reason) {
    struct http_call *call = user;
    call->outbound = NULL;
    call->is_busy = true;
    bool is_whole = call->answer.head.has_head && http1_answer_end(&call->answer.head) == STATUS_OK;
    if (call->is_receiving)
        reason = "the server broke off its answer";
    else if (call->is_sent)
        reason = "the server closed the connection";
    finish(call, is_whole, reason);
    leave(call);
}

static const struct outbound_events events = {on_opened, on_received, on_lost, on_room};

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
    const struct outbound_target *target = &options->net->target;
    struct buffer *out = &call->request;
    bool is_bare = strchr(target->host, ':') == NULL;
    enum status status = options->has_id ? make_id(call) : STATUS_OK;
    if (status == STATUS_OK)
        status = buffer_printf(out, "%s %s HTTP/1.1\r\nHost: %s%s%s:%u\r\nUser-Agent: khala\r\n",
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
        status = buffer_append_slice(out, options->is_kept ? SLICE("\r\n")
                                                           : SLICE("Connection: close\r\n\r\n"));
    return status == STATUS_OK ? buffer_append_slice(out, options->body) : status;
}

/* Sends over a kept connection, which may have ended without notice yet. */
static bool use_kept(struct http_call *call) {
    struct client_net *net = call->options.net;
    if (call->options.is_kept)
        call->outbound = outbound_reuse(&net->group, &net->target, &events, call);
    if (!call->outbound || send_head(call) == STATUS_OK)
        return call->outbound;
    outbound_close(call->outbound);
    call->outbound = NULL;
    return false;
}

enum status http_call_open(struct http_call **call, const struct http_call_options *options) {
    struct http_call *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    made->is_body_over = !options->is_streamed;
    buffer_init(&made->request, HEAD_BYTES_MAX + options->body.size);
    http1_answer_init(&made->answer.head, &http_answer_peer);
    buffer_init(&made->answer.body, CLIENT_ANSWER_BYTES_MAX);
    enum status status = write_request(made);
    made->options.token = made->options.body = (struct slice){NULL, 0};
    if (status == STATUS_OK && !use_kept(made))
        status = client_net_connect(options->net, &made->outbound, &events, made);
    if (status == STATUS_OK)
        *call = made;
    else
        free_call(made);
    return status;
}

void http_call_more(struct http_call *call) {
    if (call->is_sent && !call->is_body_over && !call->is_over && call->outbound)
        outbound_want_room(call->outbound);
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
    outbound_close(call->outbound);
    call->outbound = NULL;
    if (!call->is_busy)
        free_call(call);
}
