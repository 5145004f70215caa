/* khala_mint: a request to the server's token endpoint, and the token of its answer. */
#include <khala/khala.h>

#include <stdlib.h>
#include <string.h>

#include "client/client_error.h"
#include "client/client_limits.h"

#define PATH "/api/sync/token"

struct mint {
    struct buffer answer;
    void *user;
    void (*answered)(void *user, const char *token, const struct khala_error *error);
};

static enum khala_result on_piece(void *user, unsigned http_status, struct khala_text piece) {
    struct mint *mint = user;
    (void)http_status;
    return buffer_append(&mint->answer, piece.data, piece.size) == STATUS_OK ? KHALA_OK
                                                                             : KHALA_NO_MEMORY;
}

static void settle(struct mint *mint, const char *token, const struct client_error *error) {
    struct khala_error shown = {.code = NULL};
    if (error)
        shown = client_error_shown(error, NULL);
    mint->answered(mint->user, token, error ? &shown : NULL);
}

static void on_answered(void *user, unsigned http_status, const struct khala_error *failure) {
    const struct json_limits limits = {CLIENT_ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field field = {.name = SLICE("token")};
    struct mint *mint = user;
    struct client_error error;
    struct slice text;
    char token[CLIENT_TOKEN_BYTES_MAX];
    if (failure) {
        mint->answered(mint->user, NULL, failure);
    } else if (http_status != 200) {
        error = client_error_of_body(http_status, buffer_slice(&mint->answer));
        settle(mint, NULL, &error);
    } else if (json_read_object(buffer_slice(&mint->answer), &limits, &field, 1) != STATUS_OK ||
               !json_string_slice(field.value, &text) || text.size >= sizeof(token)) {
        error = client_error_make(CLIENT_POLICY_RETRY, "bad_gateway", "The answer has no token.");
        settle(mint, NULL, &error);
    } else {
        memcpy(token, text.data, text.size);
        token[text.size] = '\0';
        settle(mint, token, NULL);
        explicit_bzero(token, sizeof(token));
    }
    buffer_release(&mint->answer);
    free(mint);
}

enum khala_result khala_mint(struct khala *client, const char *key, struct khala_text request,
                             void (*answered)(void *user, const char *token,
                                              const struct khala_error *error),
                             void *user) {
    struct mint *mint = key && *key && answered ? calloc(1, sizeof(*mint)) : NULL;
    if (!mint)
        return key && *key && answered ? KHALA_NO_MEMORY : KHALA_INVALID;
    buffer_init(&mint->answer, CLIENT_ANSWER_BYTES_MAX);
    mint->answered = answered;
    mint->user = user;
    const struct khala_request asked = {.path = PATH,
                                        .key = key,
                                        .content_type = "application/json",
                                        .body = request,
                                        .user = mint,
                                        .piece = on_piece,
                                        .answered = on_answered};
    enum khala_result result = khala_request(client, &asked, NULL);
    if (result != KHALA_OK) {
        buffer_release(&mint->answer);
        free(mint);
    }
    return result;
}
