/* The public functions, the loop and the commands of a client.
 *
 * The library speaks HTTP and WebSockets with the server's own code, not with libcurl: the codecs
 * exist, are fuzzed, and read what the server writes. libcurl's WebSockets came with version 7.86
 * and are not in every distribution; its multi interface needs more glue to a libuv loop than the
 * connections of net/ have lines. */
#include <khala/khala.h>

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "client/client_options.h"
#include "client/connection.h"
#include "client/inbox.h"
#include "client/log_follower.h"
#include "client/requester.h"
#include "client/sender.h"
#include "wire/json.h"

static_assert(KHALA_STATE_CLOSED + 1 == CONNECTION_STATE_COUNT, "one for each state of the table");

struct khala {
    struct khala_options options; /* its texts are in texts */
    char *texts;
    struct inbox *inbox;
    uv_loop_t own_loop;
    struct client_net net;
    uv_thread_t thread;
    bool has_thread;
    uv_async_t wake;
    uv_timer_t timer;
    uint64_t timer_at_ms; /* 0: not running */
    struct connection_hooks hooks;
    struct connection connection;
    struct sender_hooks sender_hooks;
    struct sender sender;
    struct requester requester;
    struct log_link log_link;
    struct list logs;             /* followers of the log */
    struct command close_command; /* so that closing needs no memory */
    struct flush_command close_flush;
    uint64_t numbers;     /* the last number of a follower, under the inbox's lock */
    uint64_t close_at_ms; /* the latest; 0: khala_close was not called */
    bool is_flushed;      /* after khala_close, every event has its answer */
    bool is_closing;
};

enum token_user { TOKEN_OF_CONNECTION, TOKEN_OF_SENDER, TOKEN_OF_REQUEST };

struct khala_token {
    struct command command;
    struct inbox *inbox;
    enum token_user token_user;
    uint64_t ask;
    char *text;
    struct client_error error;
    bool is_failed;
};

struct follow_command {
    struct command command;
    struct follower *follower;
};

struct number_command {
    struct command command;
    uint64_t number;
};

const char *khala_version(void) {
    return KHALA_VERSION;
}

static void shut(struct khala *client);
static void on_wait(void *user, uint64_t at_ms);

/* ---- time --------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer) {
    struct khala *client = timer->data;
    client->timer_at_ms = 0;
    connection_tick(&client->connection);
    sender_tick(&client->sender);
    requester_tick(&client->requester);
    log_followers_tick(&client->logs);
    connection_settle(&client->connection);
    if (client->close_at_ms > clock_mono_now_ms())
        on_wait(client, client->close_at_ms);
    else if (client->close_at_ms > 0)
        shut(client);
}

static void on_wait(void *user, uint64_t at_ms) {
    struct khala *client = user;
    uint64_t now = clock_mono_now_ms();
    if (client->is_closing || (client->timer_at_ms > 0 && client->timer_at_ms <= at_ms))
        return;
    client->timer_at_ms = at_ms;
    /* The loop's own time may be old in a long turn. */
    uv_update_time(client->net.loop);
    /* A timer that runs was initialised, and starting it cannot fail. */
    (void)uv_timer_start(&client->timer, on_timer, at_ms > now ? at_ms - now : 0, 0);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static void free_token(struct command *command) {
    struct khala_token *token = container_of(command, struct khala_token, command);
    inbox_let_go(token->inbox);
    free(token->text);
    free(token);
}

static void ask(struct khala *client, uint64_t number, enum token_user token_user) {
    struct khala_token *token = calloc(1, sizeof(*token));
    /* Without memory the question has no answer, and its time limit ends it. */
    if (!token)
        return;
    token->command.kind = COMMAND_TOKEN;
    token->command.free = free_token;
    token->inbox = client->inbox;
    token->ask = number;
    token->token_user = token_user;
    inbox_hold(client->inbox);
    if (client->options.token)
        client->options.token(client->options.user, token);
    else
        khala_token_fail(token, "The client has no token callback.", true);
}

static void on_ask_token(void *user, uint64_t number) {
    ask(user, number, TOKEN_OF_CONNECTION);
}

static void on_sender_token(void *user, uint64_t number) {
    ask(user, number, TOKEN_OF_SENDER);
}

static void on_request_token(void *user, uint64_t number) {
    ask(user, number, TOKEN_OF_REQUEST);
}

void khala_token_give(struct khala_token *token, const char *text) {
    size_t size = text ? strlen(text) : 0;
    token->text = calloc(1, size + 1);
    if (token->text && size > 0)
        memcpy(token->text, text, size);
    if (!token->text) {
        token->is_failed = true;
        token->error = client_error_make(CLIENT_POLICY_RETRY, "out_of_memory",
                                         "There is no memory for the token.");
    }
    inbox_post(token->inbox, &token->command);
}

void khala_token_fail(struct khala_token *token, const char *message, bool is_final) {
    token->is_failed = true;
    token->error =
        client_error_make(is_final ? CLIENT_POLICY_FINAL : CLIENT_POLICY_RETRY, "token_failed",
                          message ? message : "The token callback failed.");
    inbox_post(token->inbox, &token->command);
}

/* ---- commands ----------------------------------------------------------------------------- */

static void free_follow(struct command *command) {
    struct follow_command *follow = container_of(command, struct follow_command, command);
    follower_free(follow->follower);
    free(follow);
}

static void free_number(struct command *command) {
    free(container_of(command, struct number_command, command));
}

static void keep_command(struct command *command) {
    (void)command;
}

static uint64_t next_number(void *user) {
    struct khala *client = user;
    uv_mutex_lock(&client->inbox->lock);
    uint64_t number = ++client->numbers;
    uv_mutex_unlock(&client->inbox->lock);
    return number;
}

/* How the server is to deliver. The filter goes into a message as it is. */
static bool is_delivery_valid(const struct khala_follow *follow) {
    const struct json_limits limits = {CLIENT_WHERE_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value where;
    bool is_form_valid =
        !follow->form || strcmp(follow->form, "lean") == 0 || strcmp(follow->form, "full") == 0;
    bool is_where_valid =
        !follow->where || (json_parse(slice_of(follow->where), &limits, &where) == STATUS_OK &&
                           where.kind == JSON_KIND_OBJECT);
    return is_form_valid && is_where_valid && follow->conflate_ms <= CLIENT_CONFLATE_MS_MAX;
}

enum khala_result khala_follow(struct khala *client, const struct khala_follow *follow,
                               uint64_t *number) {
    if (!follow->topic || !*follow->topic || strlen(follow->topic) > CLIENT_TOPIC_BYTES_MAX ||
        !follow->frame || (follow->since && (follow->from_head || !*follow->since)) ||
        !is_delivery_valid(follow))
        return KHALA_INVALID;
    struct follow_command *made = calloc(1, sizeof(*made));
    if (!made || follower_make(&made->follower, follow, &client->connection.link,
                               &client->options) != STATUS_OK) {
        free(made);
        return KHALA_NO_MEMORY;
    }
    uint64_t given = next_number(client);
    made->follower->number = given;
    if (number)
        *number = given;
    made->command = (struct command){.kind = COMMAND_FOLLOW, .free = free_follow};
    return inbox_post(client->inbox, &made->command) ? KHALA_OK : KHALA_CLOSED;
}

enum khala_result khala_follow_log(struct khala *client, const struct khala_follow_log *follow,
                                   uint64_t *number) {
    int starts = (follow->after != NULL) + follow->from_head + (follow->since != NULL);
    if (!follow->event || starts > 1)
        return KHALA_INVALID;
    uint64_t given = next_number(client);
    struct log_follower *made = log_follower_make(follow, given);
    if (!made)
        return KHALA_NO_MEMORY;
    if (number)
        *number = given;
    return inbox_post(client->inbox, &made->command) ? KHALA_OK : KHALA_CLOSED;
}

enum khala_result khala_append(struct khala *client, struct khala_text event,
                               void (*answered)(void *user, const struct khala_answer *answer),
                               void *user) {
    struct sender_item *item = NULL;
    enum khala_result result =
        sender_make_item(&client->sender, (struct slice){event.data, event.size}, &item);
    if (result != KHALA_OK)
        return result;
    item->answered = answered;
    item->user = user;
    if (inbox_post(client->inbox, &item->command))
        return KHALA_OK;
    sender_forget(&client->sender, item);
    return KHALA_CLOSED;
}

static void free_flush(struct command *command) {
    free(container_of(command, struct flush_command, command));
}

enum khala_result khala_flush(struct khala *client, void (*done)(void *user), void *user) {
    struct flush_command *made = calloc(1, sizeof(*made));
    if (!made)
        return KHALA_NO_MEMORY;
    made->command = (struct command){.kind = COMMAND_FLUSH, .free = free_flush};
    made->user = user;
    made->done = done;
    return inbox_post(client->inbox, &made->command) ? KHALA_OK : KHALA_CLOSED;
}

/* A text that begins no other line of the request's head. */
static bool is_line(const char *text, size_t size_max) {
    return !text || (strlen(text) <= size_max && !strpbrk(text, "\r\n"));
}

enum khala_result khala_request(struct khala *client, const struct khala_request *request,
                                uint64_t *number) {
    if (!request->path || request->path[0] != '/' || !request->answered ||
        strchr(request->path, ' ') || !is_line(request->path, CLIENT_PATH_BYTES_MAX) ||
        !is_line(request->key, CLIENT_TOKEN_BYTES_MAX) || !is_line(request->method, 32) ||
        !is_line(request->content_type, 256) ||
        ((request->body.size > 0 || request->more) && !request->content_type))
        return KHALA_INVALID;
    uint64_t given = next_number(client);
    struct request *made = request_make(request, given);
    if (!made)
        return KHALA_NO_MEMORY;
    if (number)
        *number = given;
    return inbox_post(client->inbox, &made->command) ? KHALA_OK : KHALA_CLOSED;
}

static enum khala_result post_number(struct khala *client, enum command_kind kind,
                                     uint64_t number) {
    struct number_command *made = calloc(1, sizeof(*made));
    if (!made)
        return KHALA_NO_MEMORY;
    made->number = number;
    made->command = (struct command){.kind = kind, .free = free_number};
    return inbox_post(client->inbox, &made->command) ? KHALA_OK : KHALA_CLOSED;
}

enum khala_result khala_next(struct khala *client, uint64_t number) {
    return post_number(client, COMMAND_NEXT, number);
}

enum khala_result khala_unfollow(struct khala *client, uint64_t number) {
    return post_number(client, COMMAND_UNFOLLOW, number);
}

enum khala_result khala_cancel(struct khala *client, uint64_t number) {
    return post_number(client, COMMAND_CANCEL, number);
}

enum khala_result khala_wake(struct khala *client) {
    return post_number(client, COMMAND_WAKE, 0);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct khala *client = handle->data;
    client_net_let_go(&client->net);
}

static void run_command(struct khala *client, struct command *command);

/* Commands that came too late end as they do in a closed client. */
static void shut(struct khala *client) {
    struct command *command;
    connection_give(&client->connection, CONNECTION_INPUT_STOP);
    sender_stop(&client->sender);
    inbox_close(client->inbox);
    client->is_closing = true;
    while ((command = inbox_take(client->inbox)))
        run_command(client, command);
    log_followers_stop(&client->logs);
    requester_stop(&client->requester);
    connection_settle(&client->connection);
    uv_close((uv_handle_t *)&client->timer, on_handle_closed);
    uv_close((uv_handle_t *)&client->wake, on_handle_closed);
}

static void on_close_flushed(void *user) {
    struct khala *client = user;
    client->is_flushed = true;
    /* The client is shut by the next wake-up, because the sender is busy with the last answer. */
    if (!client->is_closing)
        uv_async_send(&client->wake);
}

static void run_number(struct khala *client, const struct number_command *command) {
    struct follower *follower = connection_find(&client->connection, command->number);
    if (command->command.kind == COMMAND_CANCEL)
        requester_cancel(&client->requester, command->number);
    else if (!follower && command->command.kind == COMMAND_NEXT)
        requester_next(&client->requester, command->number);
    else if (!follower)
        log_follower_end(&client->logs, command->number);
    else if (command->command.kind == COMMAND_NEXT)
        follower_next(follower);
    else if (follower->is_over)
        follower_abandon(follower);
    else
        follower_give(follower, TOPIC_INPUT_STOP, NULL);
}

static void run_command(struct khala *client, struct command *command) {
    /* The sender, the requester and the followers of the log keep their commands. */
    bool is_kept = command->kind == COMMAND_FOLLOW_LOG || command->kind == COMMAND_APPEND ||
                   command->kind == COMMAND_FLUSH || command->kind == COMMAND_REQUEST;
    switch (command->kind) {
    case COMMAND_FOLLOW: {
        struct follow_command *follow = container_of(command, struct follow_command, command);
        connection_add(&client->connection, follow->follower);
        follow->follower = NULL;
        break;
    }
    case COMMAND_FOLLOW_LOG:
        log_follower_start(&client->logs, container_of(command, struct log_follower, command),
                           &client->log_link);
        break;
    case COMMAND_UNFOLLOW:
    case COMMAND_NEXT:
    case COMMAND_CANCEL:
        run_number(client, container_of(command, struct number_command, command));
        break;
    case COMMAND_TOKEN: {
        const struct khala_token *token = container_of(command, struct khala_token, command);
        const struct client_error *error = token->is_failed ? &token->error : NULL;
        if (token->token_user == TOKEN_OF_CONNECTION)
            connection_token(&client->connection, token->ask, token->text, error);
        else if (token->token_user == TOKEN_OF_SENDER)
            sender_token(&client->sender, token->ask, token->text, error);
        else
            requester_token(&client->requester, token->ask, token->text, error);
        break;
    }
    case COMMAND_WAKE:
        connection_give(&client->connection, CONNECTION_INPUT_WAKE);
        break;
    case COMMAND_APPEND:
        sender_add(&client->sender, container_of(command, struct sender_item, command));
        break;
    case COMMAND_FLUSH:
        sender_flush(&client->sender, container_of(command, struct flush_command, command));
        break;
    case COMMAND_REQUEST:
        requester_start(&client->requester, container_of(command, struct request, command));
        break;
    case COMMAND_CLOSE:
        if (client->is_closing)
            break;
        /* Topics end at once. Events have until close_timeout_ms to get their answers. */
        connection_give(&client->connection, CONNECTION_INPUT_STOP);
        log_followers_stop(&client->logs);
        client->close_at_ms = clock_mono_now_ms() + client->options.close_timeout_ms;
        on_wait(client, client->close_at_ms);
        sender_flush(&client->sender, &client->close_flush);
        break;
    }
    if (!is_kept)
        command->free(command);
}

static void on_wake(uv_async_t *wake) {
    struct khala *client = wake->data;
    struct command *command;
    while (!client->is_closing && (command = inbox_take(client->inbox))) {
        run_command(client, command);
    }
    if (client->is_closing)
        return;
    connection_settle(&client->connection);
    if (client->is_flushed)
        shut(client);
}

static void on_finished(void *user) {
    struct khala *client = user;
    /* Closing frees it without a wake-up. */
    if (!client->is_closing)
        uv_async_send(&client->wake);
}

/* ---- opening and closing ------------------------------------------------------------------ */

static void free_client(struct khala *client) {
    connection_release(&client->connection);
    sender_release(&client->sender);
    if (client->inbox)
        inbox_let_go(client->inbox);
    free(client->texts);
    free(client);
}

/* The loop holds nothing of the client any more. */
static void on_emptied(void *user) {
    struct khala *client = user;
    assert(client->is_closing);
    if (client->has_thread)
        return; /* the loop ends now, and khala_close frees the client */
    void (*closed)(void *) = client->options.closed;
    void *closed_user = client->options.user;
    free_client(client);
    if (closed)
        closed(closed_user);
}

static void run_thread(void *user) {
    struct khala *client = user;
    (void)uv_run(client->net.loop, UV_RUN_DEFAULT);
}

/* The handles of the client. On failure, nothing is left on the loop. */
static enum khala_result begin(struct khala *client) {
    uv_loop_t *loop = client->options.loop ? client->options.loop : &client->own_loop;
    client->wake.data = client->timer.data = client;
    enum status status = client_net_open(&client->net, loop, client->options.ca_file);
    if (status != STATUS_OK)
        return status == STATUS_OUT_OF_MEMORY ? KHALA_NO_MEMORY : KHALA_FAILED;
    /* The loop has its descriptor for wake-ups since its beginning, and libuv documents no failure
     * of a timer. */
    int error = uv_async_init(loop, &client->wake, on_wake);
    assert(error == 0);
    error = uv_timer_init(loop, &client->timer);
    assert(error == 0);
    client_net_hold(&client->net);
    client_net_hold(&client->net);
    inbox_open(client->inbox, &client->wake);
    /* The events of the outbox are sent at once. */
    if (client->sender.send_at_ms > 0)
        on_wait(client, clock_mono_now_ms());
    return KHALA_OK;
}

static enum khala_result start(struct khala *client) {
    if (!client->options.loop) {
        if (uv_loop_init(&client->own_loop) != 0)
            return KHALA_FAILED;
        client->has_thread = true;
    }
    client->requester = (struct requester){.net = &client->net,
                                           .options = &client->options,
                                           .user = client,
                                           .wait = on_wait,
                                           .ask_token = on_request_token};
    list_init(&client->requester.requests);
    client->log_link = (struct log_link){.requester = &client->requester,
                                         .options = &client->options,
                                         .user = client,
                                         .wait = on_wait,
                                         .next_number = next_number};
    list_init(&client->logs);
    enum khala_result result = begin(client);
    if (result == KHALA_OK) {
        if (!client->has_thread || uv_thread_create(&client->thread, run_thread, client) == 0)
            return KHALA_OK;
        shut(client);
        result = KHALA_FAILED;
    }
    if (client->has_thread) {
        (void)uv_run(&client->own_loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&client->own_loop);
    }
    return result;
}

enum khala_result khala_open(struct khala **client, const struct khala_options *options) {
    struct outbound_target target;
    if (!options->url || !strstr(options->url, "://") ||
        !outbound_target_read(&target, slice_of(options->url)))
        return KHALA_INVALID;
    struct khala *made = calloc(1, sizeof(*made));
    if (!made)
        return KHALA_NO_MEMORY;
    made->net = (struct client_net){.target = target, .user = made, .emptied = on_emptied};
    made->hooks = (struct connection_hooks){
        .user = made, .ask_token = on_ask_token, .wait = on_wait, .finished = on_finished};
    made->close_command = (struct command){.kind = COMMAND_CLOSE, .free = keep_command};
    made->close_flush = (struct flush_command){
        .command = {.free = keep_command}, .user = made, .done = on_close_flushed};
    connection_init(&made->connection, &made->options, &made->hooks, &made->net);
    enum khala_result result =
        client_options_copy(&made->options, &made->texts, options) ? KHALA_OK : KHALA_NO_MEMORY;
    if (result == KHALA_OK && inbox_make(&made->inbox) != STATUS_OK)
        result = KHALA_NO_MEMORY;
    made->sender_hooks =
        (struct sender_hooks){.user = made, .ask_token = on_sender_token, .wait = on_wait};
    if (result == KHALA_OK)
        result = sender_result(sender_init(&made->sender, &made->options, &made->sender_hooks,
                                           &made->inbox->lock, &made->net));
    if (result == KHALA_OK)
        result = start(made);
    if (result == KHALA_OK)
        *client = made;
    else
        free_client(made);
    return result;
}

void khala_close(struct khala *client) {
    if (!client)
        return;
    bool has_thread = client->has_thread;
    inbox_drain(client->inbox, &client->close_command);
    if (!has_thread)
        return;
    void (*closed)(void *) = client->options.closed;
    void *user = client->options.user;
    int error = uv_thread_join(&client->thread);
    assert(error == 0);
    error = uv_loop_close(&client->own_loop);
    assert(error == 0);
    free_client(client);
    if (closed)
        closed(user);
}
