#include "cli/subscriber.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/settings.h"
#include "topic/topic_table.h"

#define MINT            "{\"scopes\":[\"" SCOPE_READ_ALL_NAME "\"]}"
#define MINT_REPLAY_ALL "{\"scopes\":[\"" SCOPE_READ_ALL_NAME "\",\"runtime.replay_all\"]}"

/* ---- the end ------------------------------------------------------------------------------ */

static void close_all(struct subscriber *subscriber) {
    uv_handle_t *const handles[] = {(uv_handle_t *)&subscriber->signals[0],
                                    (uv_handle_t *)&subscriber->signals[1],
                                    (uv_handle_t *)&subscriber->prepare};
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
        if (handles[i]->data && !uv_is_closing(handles[i]))
            uv_close(handles[i], NULL);
    if (subscriber->issuer != subscriber->client)
        khala_close(subscriber->issuer);
    khala_close(subscriber->client);
    subscriber->client = subscriber->issuer = NULL;
}

void subscriber_end(struct subscriber *subscriber, const struct khala_error *error) {
    if (subscriber->is_over)
        return;
    subscriber->is_over = true;
    subscriber->has_error = error != NULL;
    /* The server's answer says more than the failed callback. */
    if (error && strcmp(error->code, "token_failed") == 0 && *subscriber->mint_error.message)
        subscriber->error = subscriber->mint_error;
    else if (error)
        remote_error_set(&subscriber->error, error);
    close_all(subscriber);
}

static void on_signal(uv_signal_t *signal, int number) {
    (void)number;
    subscriber_end(signal->data, NULL);
}

static void on_prepare(uv_prepare_t *prepare) {
    struct subscriber *subscriber = prepare->data;
    static const struct khala_error unwritable = {
        .code = "", .message = "cannot write to standard output", .is_final = true};
    /* A reader of the output sees each event as soon as it arrives. */
    bool is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (is_written && subscriber->before_wait)
        subscriber->before_wait(subscriber);
    if (!is_written)
        subscriber_end(subscriber, &unwritable);
}

/* ---- tokens ------------------------------------------------------------------------------- */

struct minting {
    struct subscriber *subscriber;
    struct khala_token *token;
};

static void on_minted(void *user, const char *token, const struct khala_error *error) {
    struct minting *minting = user;
    if (error) {
        unsigned http_status = error->http_status;
        bool is_refused =
            http_status >= 400 && http_status < 500 && http_status != 429 && http_status != 408;
        remote_error_set(&minting->subscriber->mint_error, error);
        khala_token_fail(minting->token, error->message, is_refused);
    } else {
        khala_token_give(minting->token, token);
    }
    free(minting);
}

static void on_token(void *user, struct khala_token *token) {
    struct subscriber *subscriber = user;
    const char *request = subscriber->replay_all ? MINT_REPLAY_ALL : MINT;
    struct minting *minting = subscriber->issuer ? malloc(sizeof(*minting)) : NULL;
    if (minting)
        *minting = (struct minting){subscriber, token};
    if (minting &&
        khala_mint(subscriber->issuer, subscriber->key,
                   (struct khala_text){request, strlen(request)}, on_minted, minting) == KHALA_OK)
        return;
    free(minting);
    khala_token_fail(token, status_message(STATUS_OUT_OF_MEMORY), false);
}

/* ---- opening ------------------------------------------------------------------------------ */

const char *subscriber_build_id(const struct subscriber_options *options) {
    return options->client_build_id ? options->client_build_id : KHALA_BUILD_ID;
}

static int open_client(struct khala **client, const struct khala_options *options) {
    enum khala_result result = khala_open(client, options);
    if (result == KHALA_INVALID)
        return cli_fail(EXIT_CODE_USAGE, "'%s' is not http://HOST[:PORT] or https://HOST[:PORT]",
                        options->url);
    return result == KHALA_OK
               ? EXIT_CODE_DONE
               : cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(STATUS_SYSTEM_ERROR));
}

static void close_loop(struct subscriber *subscriber) {
    (void)uv_run(&subscriber->loop, UV_RUN_DEFAULT);
    int error = uv_loop_close(&subscriber->loop);
    assert(error == 0);
    explicit_bzero(subscriber->key, sizeof(subscriber->key));
}

int subscriber_open(struct subscriber *subscriber, const struct subscriber_options *options,
                    const struct khala_options *client) {
    static const int numbers[] = {SIGINT, SIGTERM};
    char bound[REMOTE_URL_BYTES_MAX];
    struct khala_options own = *client;
    const char *issuer = settings_variable("KHALA_OPERATOR_URL");
    if (options->operator_url || !issuer || !*issuer)
        issuer = options->operator_url;
    subscriber->replay_all = options->replay_all;
    int code = remote_key(&options->remote, subscriber->key);
    if (code != EXIT_CODE_DONE)
        return code;
    if (uv_loop_init(&subscriber->loop) != 0)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(STATUS_SYSTEM_ERROR));
    own.url = remote_url(&options->remote, bound);
    own.ca_file = remote_ca_file(&options->remote);
    own.loop = &subscriber->loop;
    own.user = subscriber;
    own.client_build_id = subscriber_build_id(options);
    own.token = on_token;
    code = open_client(&subscriber->client, &own);
    subscriber->issuer = subscriber->client;
    if (code == EXIT_CODE_DONE && issuer) {
        const struct khala_options minting = {
            .url = issuer, .ca_file = own.ca_file, .loop = own.loop};
        subscriber->issuer = NULL;
        code = open_client(&subscriber->issuer, &minting);
    }
    if (code == EXIT_CODE_DONE) {
        uv_prepare_init(&subscriber->loop, &subscriber->prepare);
        subscriber->prepare.data = subscriber;
        uv_prepare_start(&subscriber->prepare, on_prepare);
    }
    for (size_t i = 0; code == EXIT_CODE_DONE && i < 2; i++) {
        bool is_begun = uv_signal_init(&subscriber->loop, &subscriber->signals[i]) == 0;
        if (is_begun)
            subscriber->signals[i].data = subscriber;
        if (!is_begun || uv_signal_start(&subscriber->signals[i], on_signal, numbers[i]) != 0)
            code = cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(STATUS_SYSTEM_ERROR));
    }
    if (code != EXIT_CODE_DONE) {
        close_all(subscriber);
        close_loop(subscriber);
    }
    return code;
}

int subscriber_run(struct subscriber *subscriber) {
    close_loop(subscriber);
    if (subscriber->has_error)
        return remote_error_print(&subscriber->error);
    return EXIT_CODE_DONE;
}
