#include "client/minter.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/client_limits.h"

#define PATH "/api/sync/token"

static void free_mint(struct command *command) {
    struct mint *mint = container_of(command, struct mint, command);
    explicit_bzero(mint->texts, strlen(mint->texts));
    free(mint);
}

struct mint *mint_make(const char *key, struct khala_text body) {
    size_t key_size = strlen(key) + 1;
    struct mint *mint = calloc(1, sizeof(*mint) + key_size + body.size);
    if (!mint)
        return NULL;
    memcpy(mint->texts, key, key_size);
    if (body.size > 0)
        memcpy(mint->texts + key_size, body.data, body.size);
    mint->body_size = body.size;
    mint->command = (struct command){.kind = COMMAND_MINT, .free = free_mint};
    return mint;
}

/* The last call of a question. */
static void settle(struct mint *mint, const char *token, const struct client_error *error) {
    struct khala_error shown = {.code = NULL};
    if (error)
        shown = (struct khala_error){error->code, error->message, NULL, error->http_status};
    if (list_node_is_linked(&mint->node))
        list_remove(&mint->node);
    mint->answered(mint->user, token, error ? &shown : NULL);
    http_call_close(mint->call);
    free_mint(&mint->command);
}

static void settle_own(struct mint *mint, const char *code, const char *message) {
    const struct client_error error = client_error_make(CLIENT_POLICY_RETRY, code, message);
    settle(mint, NULL, &error);
}

static void on_done(void *user, const struct answer *answer, const char *reason) {
    const struct json_limits limits = {CLIENT_ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field field = {.name = SLICE("token")};
    struct mint *mint = user;
    struct slice text;
    char token[CLIENT_TOKEN_BYTES_MAX];
    if (!answer) {
        settle_own(mint, "connection_lost", reason);
    } else if (answer_status(answer) != 200) {
        const struct client_error error = client_error_of_answer(answer);
        settle(mint, NULL, &error);
    } else if (json_read_object(buffer_slice(&answer->body), &limits, &field, 1) != STATUS_OK ||
               !json_string_slice(field.value, &text) || text.size >= sizeof(token)) {
        settle_own(mint, "bad_gateway", "The answer has no token.");
    } else {
        memcpy(token, text.data, text.size);
        token[text.size] = '\0';
        settle(mint, token, NULL);
    }
}

void minter_ask(struct minter *minter, struct mint *mint) {
    size_t key_size = strlen(mint->texts);
    const struct http_call_options options = {.loop = minter->loop,
                                              .holds = minter->holds,
                                              .target = minter->target,
                                              .path = PATH,
                                              .token = {mint->texts, key_size},
                                              .content_type = "application/json",
                                              .body = {mint->texts + key_size + 1, mint->body_size},
                                              .user = mint,
                                              .done = on_done};
    list_push_back(&minter->mints, &mint->node);
    if (http_call_open(&mint->call, &options) != STATUS_OK) {
        settle_own(mint, "out_of_memory", "There is no memory for the request.");
        return;
    }
    mint->until_ms = clock_mono_now_ms() + minter->options->request_timeout_ms;
    minter->wait(minter->user, mint->until_ms);
}

void minter_tick(struct minter *minter) {
    uint64_t now = clock_mono_now_ms();
    struct list_node *node = list_first(&minter->mints), *next;
    for (; node; node = next) {
        struct mint *mint = container_of(node, struct mint, node);
        next = list_next(&minter->mints, node);
        if (mint->until_ms <= now)
            settle_own(mint, "request_timeout", "The server was too slow.");
        else
            minter->wait(minter->user, mint->until_ms);
    }
}

void minter_stop(struct minter *minter) {
    struct list_node *node;
    while ((node = list_pop_front(&minter->mints)))
        settle_own(container_of(node, struct mint, node), "closed", "The client is closed.");
}
