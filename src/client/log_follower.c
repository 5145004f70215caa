/* A follower asks for the event stream after its position and reads it until it ends. Each event
 * moves the position after the application got it. A stream that ends or is refused is opened again
 * after a back-off, unless the refusal is final. */
#include "client/log_follower.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/client_limits.h"
#include "client/client_options.h"
#include "client/machine.h"
#include "wire/http1_request.h"

#define PATH              "/events"
#define PROTOCOL_VERSION  "khala.ws.v1"
#define SCHEMA_VERSION    "1"
#define CURSOR_BYTES_MAX  512
#define REFUSAL_BYTES_MAX (64u << 10)

static void connect_stream(struct log_follower *follower);

/* ---- making and the end ------------------------------------------------------------------- */

static void free_follower(struct log_follower *follower) {
    sse_decoder_release(&follower->decoder);
    buffer_release(&follower->position);
    buffer_release(&follower->refusal);
    free(follower);
}

static void free_command(struct command *command) {
    free_follower(container_of(command, struct log_follower, command));
}

/* The last call of a follower. */
static void finish(struct log_follower *follower, const struct client_error *error) {
    struct khala_error shown = {.code = NULL};
    if (error)
        shown = client_error_shown(error, NULL);
    if (list_node_is_linked(&follower->node))
        list_remove(&follower->node);
    if (follower->follow.ended)
        follower->follow.ended(follower->follow.user, error ? &shown : NULL);
    free_follower(follower);
}

static void retry(struct log_follower *follower, const struct client_error *error) {
    const struct khala_options *options = follower->link->options;
    struct khala_error shown = client_error_shown(error, NULL);
    int64_t hint_ms =
        error->retry_after_ms > follower->hint_ms ? error->retry_after_ms : follower->hint_ms;
    uint64_t wait_ms = back_off_ms(follower->attempts++, hint_ms, back_off_chance(),
                                   options->back_off_base_ms, options->back_off_max_ms);
    follower->retry_at_ms = clock_mono_now_ms() + wait_ms;
    follower->link->wait(follower->link->user, follower->retry_at_ms);
    shown.retry_ms = wait_ms < UINT_MAX ? (unsigned)wait_ms : UINT_MAX;
    if (options->warned)
        options->warned(options->user, &shown);
}

/* ---- events of the stream ----------------------------------------------------------------- */

static enum status set_position(struct log_follower *follower, struct slice cursor) {
    follower->has_start = false;
    buffer_clear(&follower->position);
    return buffer_append_slice(&follower->position, cursor);
}

static enum status take_event(struct log_follower *follower, const struct sse_message *message) {
    char cursor[CURSOR_BYTES_MAX];
    if (message->id.size == 0 || message->id.size >= sizeof(cursor))
        return STATUS_INVALID_MESSAGE;
    /* A server that sends an event again. */
    if (slice_equal(message->id, buffer_slice(&follower->position)))
        return STATUS_OK;
    memcpy(cursor, message->id.data, message->id.size);
    cursor[message->id.size] = '\0';
    follower->follow.event(follower->follow.user, cursor,
                           (struct khala_text){message->data.data, message->data.size});
    return set_position(follower, message->id);
}

static enum status on_message(void *user, const struct sse_message *message) {
    const struct json_limits limits = {CLIENT_MESSAGE_BYTES_MAX, JSON_DEPTH_MAX};
    struct log_follower *follower = user;
    struct json_field start = {.name = SLICE("after_cursor")}, code = {.name = SLICE("code")};
    struct json_field reasons = {.name = SLICE("reason_codes")};
    struct json_value body;
    struct slice cursor;
    if (json_parse(message->data, &limits, &body) != STATUS_OK || body.kind != JSON_KIND_OBJECT)
        return STATUS_INVALID_JSON;
    if (slice_equal(message->event, SLICE("message")))
        return take_event(follower, message);
    if (slice_equal(message->event, SLICE("progress")))
        return set_position(follower, message->id);
    if (slice_equal(message->event, SLICE("bootstrap"))) {
        /* The start that the server chose for from_head, since or a stale cursor. */
        bool has_start = json_read_members(body, &start, 1) == STATUS_OK && start.present &&
                         json_string_slice(start.value, &cursor);
        return has_start ? set_position(follower, cursor) : STATUS_OK;
    }
    if (slice_equal(message->event, SLICE("stale_cursor"))) {
        char reason[CLIENT_CODE_BYTES_MAX] = "";
        if (json_read_members(body, &reasons, 1) == STATUS_OK && reasons.present)
            client_error_first_reason(reasons.value, reason);
        buffer_clear(&follower->position);
        follower->has_start = false;
        if (follower->follow.reset)
            follower->follow.reset(follower->follow.user, reason);
    } else if (slice_equal(message->event, SLICE("error")) &&
               json_read_members(body, &code, 1) == STATUS_OK && code.present &&
               json_string_is(code.value, slice_of(status_code(STATUS_TOKEN_EXPIRED)))) {
        follower->is_expired = true;
    }
    return STATUS_OK;
}

static void on_retry(void *user, uint64_t delay_ms) {
    struct log_follower *follower = user;
    follower->hint_ms =
        delay_ms < CLIENT_HINT_MS_MAX ? (int64_t)delay_ms : (int64_t)CLIENT_HINT_MS_MAX;
}

static const struct sse_handlers handlers = {on_message, on_retry};

/* ---- the request -------------------------------------------------------------------------- */

static enum khala_result on_piece(void *user, unsigned http_status, struct khala_text piece) {
    struct log_follower *follower = user;
    struct slice data = {piece.data, piece.size};
    if (follower->is_over)
        return KHALA_CLOSED;
    if (http_status != 200)
        return buffer_append_slice(&follower->refusal, data) == STATUS_OK ? KHALA_OK : KHALA_FAILED;
    follower->attempts = follower->refusals = 0;
    enum status status = sse_decoder_feed(&follower->decoder, data);
    /* A heartbeat counts too: the application knows that the stream lives. */
    if (status == STATUS_OK && follower->follow.heard)
        follower->follow.heard(follower->follow.user);
    return status == STATUS_OK ? KHALA_OK : KHALA_FAILED;
}

static void on_answered(void *user, unsigned http_status, const struct khala_error *error) {
    struct log_follower *follower = user;
    follower->request_number = 0;
    if (follower->is_over) {
        finish(follower, NULL);
    } else if (!error && http_status != 200) {
        struct client_error refusal =
            client_error_of_body(http_status, buffer_slice(&follower->refusal));
        bool is_final = refusal.policy == CLIENT_POLICY_FINAL ||
                        refusal.policy == CLIENT_POLICY_TOPIC_FINAL ||
                        (refusal.policy == CLIENT_POLICY_REAUTHENTICATE &&
                         ++follower->refusals >= CLIENT_REFUSALS_MAX);
        if (is_final)
            finish(follower, &refusal);
        else
            retry(follower, &refusal);
    } else if (follower->is_expired) {
        connect_stream(follower);
    } else {
        bool is_rubbish = error && strcmp(error->code, "cancelled") == 0;
        const struct client_error lost =
            client_error_make(CLIENT_POLICY_RETRY,
                              is_rubbish ? "invalid_message"
                              : error    ? error->code
                                         : "connection_lost",
                              is_rubbish ? "the server sent something that is not an event"
                              : error    ? error->message
                                         : "the stream ended");
        if (error && error->is_final)
            finish(follower, &lost);
        else
            retry(follower, &lost);
    }
}

static void append_value(struct buffer *out, const char *name, struct slice value) {
    buffer_printf(out, "&%s=", name);
    http1_percent_encode(out, value);
}

/* Appends path and query with a NUL. The failure is that of the buffer. */
static enum status write_path(const struct log_follower *follower, struct buffer *out) {
    const char *build = follower->link->options->client_build_id;
    const struct khala_follow_log *follow = &follower->follow;
    buffer_append_slice(
        out, SLICE(PATH "?protocol_version=" PROTOCOL_VERSION "&schema_version=" SCHEMA_VERSION));
    if (build)
        append_value(out, "client_build_id", slice_of(build));
    if (follower->position.size > 0)
        append_value(out, "after_cursor", buffer_slice(&follower->position));
    else if (follower->has_start && follow->from_head)
        append_value(out, "from", SLICE("head"));
    else if (follower->has_start && follow->since)
        append_value(out, "since", slice_of(follow->since));
    return buffer_append_byte(out, '\0');
}

static void connect_stream(struct log_follower *follower) {
    const struct log_link *link = follower->link;
    struct buffer path;
    struct request *request = NULL;
    follower->is_expired = false;
    follower->hint_ms = -1;
    buffer_clear(&follower->refusal);
    sse_decoder_restart(&follower->decoder);
    buffer_init(&path, CLIENT_PATH_BYTES_MAX);
    if (write_path(follower, &path) == STATUS_OK) {
        const struct khala_request asked = {
            .path = path.data, .user = follower, .piece = on_piece, .answered = on_answered};
        follower->request_number = link->next_number(link->user);
        request = request_make(&asked, follower->request_number);
    }
    buffer_release(&path);
    if (request) {
        request->silence_ms = CLIENT_LOG_SILENCE_MS;
        requester_start(link->requester, request);
        return;
    }
    const struct client_error error = client_error_make(CLIENT_POLICY_RETRY, "out_of_memory",
                                                        "There is no memory for the request.");
    follower->request_number = 0;
    retry(follower, &error);
}

/* ---- */

struct log_follower *log_follower_make(const struct khala_follow_log *follow, uint64_t number) {
    struct log_follower *made = calloc(1, sizeof(*made) + client_text_size(follow->since));
    if (!made)
        return NULL;
    made->follow = *follow;
    made->number = number;
    made->has_start = !follow->after;
    made->hint_ms = -1;
    made->command = (struct command){.kind = COMMAND_FOLLOW_LOG, .free = free_command};
    buffer_init(&made->position, CURSOR_BYTES_MAX);
    buffer_init(&made->refusal, REFUSAL_BYTES_MAX);
    sse_decoder_init(&made->decoder, &handlers, made, CLIENT_MESSAGE_BYTES_MAX);
    if (follow->since) {
        memcpy(made->texts, follow->since, client_text_size(follow->since));
        made->follow.since = made->texts;
    }
    if (follow->after &&
        buffer_append_slice(&made->position, slice_of(follow->after)) != STATUS_OK) {
        free_follower(made);
        return NULL;
    }
    made->follow.after = NULL;
    return made;
}

void log_follower_start(struct list *followers, struct log_follower *follower,
                        const struct log_link *link) {
    follower->link = link;
    list_push_back(followers, &follower->node);
    connect_stream(follower);
}

static void end(struct log_follower *follower) {
    follower->is_over = true;
    if (follower->request_number > 0)
        requester_cancel(follower->link->requester, follower->request_number);
    else
        finish(follower, NULL);
}

void log_follower_end(const struct list *followers, uint64_t number) {
    struct list_node *node = list_first(followers), *next;
    for (; node; node = next) {
        struct log_follower *follower = container_of(node, struct log_follower, node);
        next = list_next(followers, node);
        if (follower->number == number)
            end(follower);
    }
}

void log_followers_tick(const struct list *followers) {
    uint64_t now = clock_mono_now_ms();
    struct list_node *node = list_first(followers), *next;
    for (; node; node = next) {
        struct log_follower *follower = container_of(node, struct log_follower, node);
        next = list_next(followers, node);
        if (follower->retry_at_ms == 0)
            continue;
        if (follower->retry_at_ms <= now) {
            follower->retry_at_ms = 0;
            connect_stream(follower);
        } else {
            follower->link->wait(follower->link->user, follower->retry_at_ms);
        }
    }
}

void log_followers_stop(struct list *followers) {
    struct list_node *node;
    while ((node = list_pop_front(followers)))
        end(container_of(node, struct log_follower, node));
}
