#include "client/exchange.h"

#include <khala/khala.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define SILENCE_MS_MAX 60000
#define CONNECT_MS_MAX 10000
#define MESSAGE_MAX    512

struct exchange {
    uv_loop_t loop;
    struct khala *client;
    const struct exchange_request *request;
    uint64_t number;
    uv_poll_t stop;
    bool is_stopping;
    bool is_done;
    enum status callback_status;
    unsigned http_status;
    bool is_failed;
    char message[MESSAGE_MAX];
};

const char *exchange_error(const struct exchange *exchange) {
    return exchange->message;
}

/* ---- callbacks ---------------------------------------------------------------------------- */

static enum khala_result take_status(struct exchange *exchange, enum status status) {
    exchange->callback_status = status;
    return status == STATUS_OK ? KHALA_OK : KHALA_FAILED;
}

static enum khala_result on_more(void *user, struct khala_text *piece, bool *is_last) {
    struct exchange *exchange = user;
    struct slice next = {NULL, 0};
    enum status status = STATUS_OK;
    /* An empty piece is no news for the server, so it is not sent. */
    while (status == STATUS_OK && next.size == 0 && !*is_last)
        status = exchange->request->next(exchange->request->user, &next, is_last);
    *piece = (struct khala_text){next.data, next.size};
    return take_status(exchange, status);
}

static enum khala_result on_piece(void *user, unsigned http_status, struct khala_text piece) {
    struct exchange *exchange = user;
    if (!exchange->request->on_body)
        return KHALA_OK;
    return take_status(exchange,
                       exchange->request->on_body(exchange->request->user, http_status,
                                                  (struct slice){piece.data, piece.size}));
}

static void on_answered(void *user, unsigned http_status, const struct khala_error *error) {
    struct exchange *exchange = user;
    exchange->is_done = true;
    exchange->is_failed = error != NULL;
    exchange->http_status = http_status;
    if (error && exchange->callback_status == STATUS_OK)
        snprintf(exchange->message, sizeof(exchange->message), "%s", error->message);
}

static void on_stop(uv_poll_t *stop, int error, int events) {
    struct exchange *exchange = stop->data;
    (void)error;
    (void)events;
    uv_poll_stop(stop);
    exchange->is_stopping = true;
    /* Without memory the request ends by its time limit. */
    (void)khala_cancel(exchange->client, exchange->number);
}

/* ---- a request ---------------------------------------------------------------------------- */

static enum status watch_stop(struct exchange *exchange, int stop_fd) {
    exchange->stop.data = exchange;
    if (uv_poll_init(&exchange->loop, &exchange->stop, stop_fd) != 0)
        return STATUS_SYSTEM_ERROR;
    return uv_poll_start(&exchange->stop, UV_READABLE, on_stop) == 0 ? STATUS_OK
                                                                     : STATUS_SYSTEM_ERROR;
}

static void on_watch_closed(uv_handle_t *handle) {
    handle->data = NULL;
}

static void unwatch_stop(struct exchange *exchange) {
    if (!exchange->stop.data)
        return;
    uv_close((uv_handle_t *)&exchange->stop, on_watch_closed);
    while (exchange->stop.data)
        (void)uv_run(&exchange->loop, UV_RUN_NOWAIT);
}

static enum status send_request(struct exchange *exchange, const struct exchange_request *request) {
    const struct khala_request asked = {.method = request->method,
                                        .path = request->target,
                                        .key = request->key ? request->key : "",
                                        .content_type = request->content_type,
                                        .body = {request->body.data, request->body.size},
                                        .user = exchange,
                                        .more = request->next ? on_more : NULL,
                                        .piece = on_piece,
                                        .answered = on_answered};
    enum khala_result result = khala_request(exchange->client, &asked, &exchange->number);
    if (result == KHALA_INVALID)
        return STATUS_INVALID_REQUEST;
    return result == KHALA_OK ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status exchange_run(struct exchange *exchange, const struct exchange_request *request,
                         unsigned *http_status) {
    exchange->request = request;
    exchange->callback_status = STATUS_OK;
    exchange->is_done = exchange->is_stopping = exchange->is_failed = false;
    exchange->message[0] = '\0';
    exchange->http_status = 0;
    enum status status = request->stop_fd > 0 ? watch_stop(exchange, request->stop_fd) : STATUS_OK;
    if (status == STATUS_OK)
        status = send_request(exchange, request);
    while (status == STATUS_OK && !exchange->is_done)
        (void)uv_run(&exchange->loop, UV_RUN_ONCE);
    unwatch_stop(exchange);
    *http_status = exchange->http_status;
    if (status != STATUS_OK || exchange->is_stopping)
        return status == STATUS_OK ? STATUS_SHUTTING_DOWN : status;
    if (exchange->callback_status != STATUS_OK)
        return exchange->callback_status;
    return exchange->is_failed ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

/* ---- opening ------------------------------------------------------------------------------ */

enum status exchange_open(struct exchange **exchange, const char *url, const char *ca_file) {
    struct exchange *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    if (uv_loop_init(&made->loop) != 0) {
        free(made);
        return STATUS_SYSTEM_ERROR;
    }
    const struct khala_options options = {.url = url,
                                          .ca_file = ca_file,
                                          .loop = &made->loop,
                                          .connect_timeout_ms = CONNECT_MS_MAX,
                                          .request_timeout_ms = SILENCE_MS_MAX};
    enum khala_result result = khala_open(&made->client, &options);
    if (result == KHALA_OK) {
        *exchange = made;
        return STATUS_OK;
    }
    int error = uv_loop_close(&made->loop);
    assert(error == 0);
    free(made);
    return result == KHALA_INVALID ? STATUS_INVALID_REQUEST : STATUS_SYSTEM_ERROR;
}

void exchange_close(struct exchange *exchange) {
    if (!exchange)
        return;
    khala_close(exchange->client);
    (void)uv_run(&exchange->loop, UV_RUN_DEFAULT);
    int error = uv_loop_close(&exchange->loop);
    assert(error == 0);
    free(exchange);
}
