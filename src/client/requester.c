#include "client/requester.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/client_limits.h"
#include "client/client_options.h"

/* ---- making ------------------------------------------------------------------------------- */

static void free_request(struct command *command) {
    struct request *request = container_of(command, struct request, command);
    explicit_bzero(request->texts, request->key_size);
    free(request);
}

struct request *request_make(const struct khala_request *asked, uint64_t number) {
    size_t size = client_text_size(asked->key) + client_text_size(asked->method) +
                  client_text_size(asked->path) + client_text_size(asked->content_type) +
                  asked->body.size;
    struct request *made = calloc(1, sizeof(*made) + size);
    if (!made)
        return NULL;
    char *at = made->texts;
    made->number = number;
    made->key_size = client_text_size(asked->key);
    made->asked = *asked;
    made->asked.key = client_text_copy(&at, asked->key);
    made->asked.method = client_text_copy(&at, asked->method);
    made->asked.path = client_text_copy(&at, asked->path);
    made->asked.content_type = client_text_copy(&at, asked->content_type);
    made->asked.body.data = at;
    if (asked->body.size > 0)
        memcpy(at, asked->body.data, asked->body.size);
    made->command = (struct command){.kind = COMMAND_REQUEST, .free = free_request};
    return made;
}

/* ---- the end ------------------------------------------------------------------------------ */

/* The last call of a request. */
static void settle(struct request *request, const struct client_error *error) {
    struct khala_error shown = {.code = NULL};
    if (error)
        shown = client_error_shown(error, NULL);
    if (list_node_is_linked(&request->node))
        list_remove(&request->node);
    request->asked.answered(request->asked.user, request->http_status, error ? &shown : NULL);
    http_call_close(request->call);
    free_request(&request->command);
}

static void settle_own(struct request *request, const char *code, const char *message) {
    const struct client_error error = client_error_make(CLIENT_POLICY_RETRY, code, message);
    settle(request, &error);
}

/* ---- events of the call ------------------------------------------------------------------- */

static void limit(struct request *request, uint64_t wait_ms) {
    request->until_ms = clock_mono_now_ms() + wait_ms;
    request->requester->wait(request->requester->user, request->until_ms);
}

static void on_progress(void *user) {
    struct request *request = user;
    unsigned silence_ms =
        request->silence_ms ? request->silence_ms : request->requester->options->request_timeout_ms;
    if (!request->is_held)
        limit(request, silence_ms);
}

static enum status on_more(void *user, struct slice *piece, bool *is_last) {
    struct request *request = user;
    struct khala_text text = {NULL, 0};
    enum khala_result result = request->asked.more(request->asked.user, &text, is_last);
    request->is_held = result == KHALA_LATER;
    if (request->is_held)
        request->until_ms = 0;
    request->is_stopped = result != KHALA_OK && !request->is_held;
    if (result != KHALA_OK)
        return request->is_held ? STATUS_OK : STATUS_SYSTEM_ERROR;
    *piece = (struct slice){text.data, text.size};
    return STATUS_OK;
}

static enum status on_piece(void *user, const struct http_answer *answer, struct slice piece) {
    struct request *request = user;
    request->http_status = answer->head.http_status;
    if (!request->asked.piece)
        return STATUS_OK;
    enum khala_result result = request->asked.piece(request->asked.user, request->http_status,
                                                    (struct khala_text){piece.data, piece.size});
    request->is_stopped = result != KHALA_OK;
    return request->is_stopped ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

static void on_done(void *user, const struct http_answer *answer, const char *reason) {
    struct request *request = user;
    if (answer) {
        request->http_status = answer->head.http_status;
        settle(request, NULL);
    } else if (request->is_stopped) {
        settle_own(request, "cancelled", "A callback of the application ended the request.");
    } else {
        settle_own(request,
                   http_call_was_sent(request->call) ? "connection_lost" : "connect_failed",
                   reason);
    }
}

/* ---- */

static void send_request(struct request *request, const char *token) {
    const struct requester *requester = request->requester;
    const struct khala_request *asked = &request->asked;
    const char *implied = asked->content_type ? "POST" : "GET";
    const struct http_call_options options = {.net = requester->net,
                                              .is_kept = true,
                                              .method = asked->method ? asked->method : implied,
                                              .path = asked->path,
                                              .token = slice_of(token),
                                              .content_type = asked->content_type,
                                              .body = {asked->body.data, asked->body.size},
                                              .is_streamed = asked->more != NULL,
                                              .user = request,
                                              .more = on_more,
                                              .piece = on_piece,
                                              .progress = on_progress,
                                              .done = on_done};
    limit(request, requester->options->connect_timeout_ms);
    if (http_call_open(&request->call, &options) != STATUS_OK)
        settle_own(request, "out_of_memory", "There is no memory for the request.");
}

void requester_start(struct requester *requester, struct request *request) {
    request->requester = requester;
    list_push_back(&requester->requests, &request->node);
    if (request->asked.key) {
        send_request(request, request->asked.key);
        return;
    }
    request->is_asking = true;
    limit(request, requester->options->token_timeout_ms);
    requester->ask_token(requester->user, request->number);
}

static struct request *find(const struct requester *requester, uint64_t number) {
    struct list_node *node = list_first(&requester->requests);
    for (; node; node = list_next(&requester->requests, node))
        if (container_of(node, struct request, node)->number == number)
            return container_of(node, struct request, node);
    return NULL;
}

void requester_token(struct requester *requester, uint64_t number, const char *text,
                     const struct client_error *error) {
    struct request *request = find(requester, number);
    if (!request || !request->is_asking)
        return;
    request->is_asking = false;
    if (error)
        settle(request, error);
    else if (!text || !*text || strlen(text) > CLIENT_TOKEN_BYTES_MAX)
        settle_own(request, "token_missing", "The token callback did not answer a token.");
    else
        send_request(request, text);
}

void requester_next(struct requester *requester, uint64_t number) {
    struct request *request = find(requester, number);
    if (!request || !request->is_held)
        return;
    request->is_held = false;
    limit(request, requester->options->request_timeout_ms);
    http_call_more(request->call);
}

void requester_cancel(struct requester *requester, uint64_t number) {
    struct request *request = find(requester, number);
    if (request)
        settle_own(request, "cancelled", "The application cancelled the request.");
}

void requester_tick(struct requester *requester) {
    uint64_t now = clock_mono_now_ms();
    struct list_node *node = list_first(&requester->requests), *next;
    for (; node; node = next) {
        struct request *request = container_of(node, struct request, node);
        next = list_next(&requester->requests, node);
        if (request->until_ms == 0)
            continue;
        if (request->until_ms <= now)
            settle_own(request, "request_timeout",
                       request->is_asking ? "The token callback was too slow."
                                          : "The server sent nothing for too long.");
        else
            requester->wait(requester->user, request->until_ms);
    }
}

void requester_stop(struct requester *requester) {
    struct list_node *node;
    while ((node = list_pop_front(&requester->requests)))
        settle_own(container_of(node, struct request, node), "closed", "The client is closed.");
    outbound_close_idle(&requester->net->group, 0);
}
