#include "client/blocking_http.h"

#include <khala/khala.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define SILENCE_MS_MAX 60000
#define CONNECT_MS_MAX 10000
#define MESSAGE_MAX    512

struct blocking_http {
    uv_loop_t loop;
    struct khala *client;
    const struct blocking_request *request;
    uint64_t number;
    uv_poll_t stop;
    bool is_stopping;
    bool is_done;
    enum status callback_status;
    unsigned http_status;
    bool is_failed;
    char message[MESSAGE_MAX];
};

const char *blocking_http_error(const struct blocking_http *http) {
    return http->message;
}

/* ---- callbacks ---------------------------------------------------------------------------- */

static enum khala_result take_status(struct blocking_http *http, enum status status) {
    http->callback_status = status;
    return status == STATUS_OK ? KHALA_OK : KHALA_FAILED;
}

static enum khala_result on_more(void *user, struct khala_text *piece, bool *is_last) {
    struct blocking_http *http = user;
    struct slice next = {NULL, 0};
    enum status status = STATUS_OK;
    /* An empty piece is no news for the server, so it is not sent. */
    while (status == STATUS_OK && next.size == 0 && !*is_last)
        status = http->request->next(http->request->user, &next, is_last);
    *piece = (struct khala_text){next.data, next.size};
    return take_status(http, status);
}

static enum khala_result on_piece(void *user, unsigned http_status, struct khala_text piece) {
    struct blocking_http *http = user;
    if (!http->request->on_body)
        return KHALA_OK;
    return take_status(http, http->request->on_body(http->request->user, http_status,
                                                    (struct slice){piece.data, piece.size}));
}

static void on_answered(void *user, unsigned http_status, const struct khala_error *error) {
    struct blocking_http *http = user;
    http->is_done = true;
    http->is_failed = error != NULL;
    http->http_status = http_status;
    if (error && http->callback_status == STATUS_OK)
        snprintf(http->message, sizeof(http->message), "%s", error->message);
}

static void on_stop(uv_poll_t *stop, int error, int events) {
    struct blocking_http *http = stop->data;
    (void)error;
    (void)events;
    uv_poll_stop(stop);
    http->is_stopping = true;
    /* Without memory the request ends by its time limit. */
    (void)khala_cancel(http->client, http->number);
}

/* ---- a request ---------------------------------------------------------------------------- */

static void on_watch_closed(uv_handle_t *handle) {
    handle->data = NULL;
}

enum status blocking_http_run(struct blocking_http *http, const struct blocking_request *request,
                              unsigned *http_status) {
    const struct khala_request asked = {.method = request->method,
                                        .path = request->target,
                                        .key = request->key ? request->key : "",
                                        .content_type = request->content_type,
                                        .body = {request->body.data, request->body.size},
                                        .user = http,
                                        .more = request->next ? on_more : NULL,
                                        .piece = on_piece,
                                        .answered = on_answered};
    enum status status = STATUS_OK;
    http->request = request;
    http->callback_status = STATUS_OK;
    http->is_done = http->is_stopping = http->is_failed = false;
    http->message[0] = '\0';
    http->http_status = 0;
    if (request->stop_fd > 0) {
        bool is_watched = uv_poll_init(&http->loop, &http->stop, request->stop_fd) == 0;
        if (is_watched)
            http->stop.data = http;
        if (!is_watched || uv_poll_start(&http->stop, UV_READABLE, on_stop) != 0)
            status = STATUS_SYSTEM_ERROR;
    }
    if (status == STATUS_OK) {
        enum khala_result result = khala_request(http->client, &asked, &http->number);
        if (result != KHALA_OK)
            status = result == KHALA_INVALID ? STATUS_INVALID_REQUEST : STATUS_OUT_OF_MEMORY;
    }
    while (status == STATUS_OK && !http->is_done)
        (void)uv_run(&http->loop, UV_RUN_ONCE);
    if (http->stop.data)
        uv_close((uv_handle_t *)&http->stop, on_watch_closed);
    while (http->stop.data)
        (void)uv_run(&http->loop, UV_RUN_NOWAIT);
    *http_status = http->http_status;
    if (status != STATUS_OK || http->is_stopping)
        return status == STATUS_OK ? STATUS_SHUTTING_DOWN : status;
    if (http->callback_status != STATUS_OK)
        return http->callback_status;
    return http->is_failed ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

/* ---- opening ------------------------------------------------------------------------------ */

enum status blocking_http_open(struct blocking_http **http, const char *url, const char *ca_file) {
    struct blocking_http *made = calloc(1, sizeof(*made));
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
        *http = made;
        return STATUS_OK;
    }
    int error = uv_loop_close(&made->loop);
    assert(error == 0);
    free(made);
    return result == KHALA_INVALID ? STATUS_INVALID_REQUEST : STATUS_SYSTEM_ERROR;
}

void blocking_http_close(struct blocking_http *http) {
    if (!http)
        return;
    khala_close(http->client);
    (void)uv_run(&http->loop, UV_RUN_DEFAULT);
    int error = uv_loop_close(&http->loop);
    assert(error == 0);
    free(http);
}
