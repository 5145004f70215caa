#include "client/sender.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/machine.h"
#include "client/token.h"

#define PATH         "/v1/events:batch"
#define CONTENT_TYPE "application/x-ndjson"

static void wait_until(struct sender *sender, uint64_t at_ms) {
    sender->hooks->wait(sender->hooks->user, at_ms);
}

static void send_next(struct sender *sender);

/* ---- syncing the outbox ------------------------------------------------------------------- */

static void sync_outbox(struct sender *sender);

static void on_synced(uv_fs_t *request) {
    struct sender *sender = request->data;
    const struct khala_error error = {.code = "outbox_failed",
                                      .message = "The outbox could not be synced to its disk."};
    bool is_failed = request->result < 0;
    uv_fs_req_cleanup(request);
    sender->is_syncing = false;
    if (is_failed && sender->options->warned)
        sender->options->warned(sender->options->user, &error);
    if (sender->must_sync)
        sync_outbox(sender);
    socket_let_go(sender->holds); /* last: it may free the sender */
}

/* Events that are added while one sync is in progress share the next one. */
static void sync_outbox(struct sender *sender) {
    sender->must_sync = sender->outbox.fd >= 0;
    if (!sender->must_sync || sender->is_syncing)
        return;
    sender->sync.data = sender;
    /* Without memory for the request, the next event brings the sync. */
    if (uv_fs_fdatasync(sender->loop, &sender->sync, sender->outbox.fd, on_synced) != 0)
        return;
    socket_hold(sender->holds);
    sender->is_syncing = true;
    sender->must_sync = false;
}

/* ---- items -------------------------------------------------------------------------------- */

/* A closed inbox leaves the item to sender_forget. */
static void keep_item(struct command *command) {
    (void)command;
}

static bool is_full(const struct sender *sender) {
    return sender->count >= sender->options->append_items_max ||
           sender->bytes >= sender->options->append_bytes_max;
}

/* The line of an event: the id first if it has none. A line feed of an event is white space. */
static enum khala_result make_line(struct sender *sender, struct slice event,
                                   struct sender_item **item) {
    const struct json_limits limits = {CLIENT_EVENT_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("event_id")}, {.name = SLICE("idempotency_key")}};
    struct json_value object, first_name, first;
    struct slice id = {NULL, 0};
    if (json_parse(event, &limits, &object) != STATUS_OK || object.kind != JSON_KIND_OBJECT ||
        json_read_members(object, fields, 2) != STATUS_OK ||
        (fields[0].present &&
         (!json_string_slice(fields[0].value, &id) || id.size > UUID_TEXT_SIZE)))
        return KHALA_INVALID;
    static const char member[] = "\"event_id\":\"";
    size_t size = object.raw.size + sizeof(member) + UUID_TEXT_SIZE + 4;
    struct sender_item *made = calloc(1, sizeof(*made) + size);
    if (!made)
        return KHALA_NO_MEMORY;
    char *at = made->line;
    *at++ = '{';
    if (id.data) {
        memcpy(made->stored_id, id.data, id.size);
    } else {
        struct uuid uuid = uuid7_next(&sender->ids, clock_now().wall_ms);
        struct json_iterator members = json_iterate(object);
        uuid_format(&uuid, made->stored_id);
        at = stpcpy(stpcpy(at, member), made->stored_id);
        *at++ = '"';
        if (json_next_member(&members, &first_name, &first))
            *at++ = ',';
    }
    for (size_t i = 1; i < object.raw.size; i++)
        *at++ = object.raw.data[i] == '\n' || object.raw.data[i] == '\r' ? ' ' : object.raw.data[i];
    *at++ = '\n';
    made->size = (size_t)(at - made->line);
    if (!fields[1].present)
        memcpy(made->id, made->stored_id, sizeof(made->id));
    made->command = (struct command){.kind = COMMAND_APPEND, .free = keep_item};
    *item = made;
    return KHALA_OK;
}

enum khala_result sender_result(enum status status) {
    if (status == STATUS_OK)
        return KHALA_OK;
    return status == STATUS_OUT_OF_MEMORY ? KHALA_NO_MEMORY : KHALA_FAILED;
}

enum khala_result sender_make_item(struct sender *sender, struct slice event,
                                   struct sender_item **item) {
    uv_mutex_lock(sender->lock);
    enum khala_result result = is_full(sender) ? KHALA_FULL : make_line(sender, event, item);
    sender->was_full = sender->was_full || result == KHALA_FULL;
    if (result == KHALA_OK) {
        const struct slice line = {(*item)->line, (*item)->size - 1};
        result = sender_result(outbox_file_add(&sender->outbox, line));
        if (result != KHALA_OK)
            free(*item);
    }
    if (result == KHALA_OK) {
        sender->count++;
        sender->bytes += (*item)->size;
    }
    uv_mutex_unlock(sender->lock);
    return result;
}

/* The outbox keeps an event that the closed client has not sent. */
static void uncount(struct sender *sender, const struct sender_item *item, bool is_answered,
                    bool *has_room) {
    uv_mutex_lock(sender->lock);
    sender->count--;
    sender->bytes -= item->size;
    if (is_answered)
        outbox_file_done(&sender->outbox, slice_of(item->stored_id), sender->count == 0);
    *has_room = sender->was_full && !is_full(sender);
    if (*has_room)
        sender->was_full = false;
    uv_mutex_unlock(sender->lock);
}

void sender_forget(struct sender *sender, struct sender_item *item) {
    bool has_room;
    uncount(sender, item, true, &has_room);
    free(item);
}

static void end_flushes(struct sender *sender) {
    struct list_node *node;
    while (sender->queue_count == 0 && (node = list_pop_front(&sender->flushes))) {
        struct flush_command *flush = container_of(node, struct flush_command, node);
        flush->done(flush->user);
        free(flush);
    }
}

/* The last call of an item. */
static void settle(struct sender *sender, struct sender_item *item,
                   const struct khala_answer *answer, bool is_kept) {
    bool has_room = false;
    for (size_t i = 0; i < sender->batch_count; i++)
        if (sender->batch[i] == item)
            sender->batch[i] = NULL;
    if (list_node_is_linked(&item->node))
        list_remove(&item->node);
    sender->queue_count--;
    sender->queue_bytes -= item->size;
    uncount(sender, item, !is_kept, &has_room);
    if (item->answered)
        item->answered(item->user, answer);
    free(item);
    if (has_room && sender->options->room)
        sender->options->room(sender->options->user);
    end_flushes(sender);
}

static void settle_error(struct sender *sender, struct sender_item *item,
                         const struct client_error *error, bool is_kept) {
    const struct khala_error shown = client_error_shown(error, NULL);
    const struct khala_answer answer = {.error = &shown, .event_id = item->stored_id};
    settle(sender, item, &answer, is_kept);
}

static void settle_all(struct sender *sender, const struct client_error *error) {
    struct list_node *node;
    while ((node = list_pop_front(&sender->queue)))
        settle_error(sender, container_of(node, struct sender_item, node), error, true);
    end_flushes(sender);
}

/* ---- a batch ------------------------------------------------------------------------------ */

static void end_call(struct sender *sender) {
    http_call_close(sender->call);
    sender->call = NULL;
    sender->until_ms = 0;
}

static void fail(struct sender *sender, const struct client_error *error) {
    end_call(sender);
    sender->is_failed = true;
    sender->error = *error;
    settle_all(sender, &sender->error);
}

static void retry(struct sender *sender, const struct client_error *error) {
    const struct khala_error shown = client_error_shown(error, NULL);
    if (sender->options->warned)
        sender->options->warned(sender->options->user, &shown);
    sender->retry_at_ms =
        clock_mono_now_ms() + back_off_ms(sender->attempts++, error->retry_after_ms,
                                          back_off_chance(), sender->options->back_off_base_ms,
                                          sender->options->back_off_max_ms);
    wait_until(sender, sender->retry_at_ms);
}

static size_t unanswered(const struct sender *sender) {
    size_t count = 0;
    for (size_t i = 0; i < sender->batch_count; i++)
        count += sender->batch[i] != NULL;
    return count;
}

/* What follows a batch that had an error. */
static void handle_error(struct sender *sender, const struct client_error *error) {
    size_t left = unanswered(sender);
    if (error->policy == CLIENT_POLICY_REAUTHENTICATE) {
        sender->token_until_ms = 0;
        sender->refusals++;
    }
    if (error->policy == CLIENT_POLICY_FINAL || sender->refusals >= CLIENT_APPEND_REFUSALS_MAX) {
        fail(sender, error);
    } else if (error->http_status == 413 && left > 1) {
        sender->items_max = left / 2;
        send_next(sender);
    } else if (error->policy == CLIENT_POLICY_TOPIC_FINAL) {
        /* A refusal of the whole batch, such as 403: no later attempt can succeed. */
        for (size_t i = 0; i < sender->batch_count; i++)
            if (sender->batch[i])
                settle_error(sender, sender->batch[i], error, false);
        send_next(sender);
    } else {
        retry(sender, error);
    }
}

static void take_refusal(struct sender *sender, struct sender_item *item, struct slice line,
                         struct json_value error, unsigned http_status) {
    struct client_error refusal = client_error_read(error, 0, http_status);
    const struct khala_error shown = client_error_shown(&refusal, NULL);
    const struct khala_answer answer = {
        .error = &shown, .event_id = item->stored_id, .json = {line.data, line.size}};
    settle(sender, item, &answer, false);
}

/* One line of the answer. Sets the error of the first item that is to be sent again. */
static void take_line(struct sender *sender, struct slice line, struct client_error *error,
                      bool *has_error) {
    enum { INDEX, STATUS, EVENT, ERROR, DEDUPLICATED, COUNT };
    const struct json_limits limits = {CLIENT_ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[COUNT] = {{.name = SLICE("index")},
                                       {.name = SLICE("status")},
                                       {.name = SLICE("event")},
                                       {.name = SLICE("error")},
                                       {.name = SLICE("deduplicated")}};
    struct json_field id = {.name = SLICE("event_id")};
    uint64_t index, status;
    /* The answer broke off; a missing line is asked for again. */
    if (json_read_object(line, &limits, fields, COUNT) != STATUS_OK ||
        !json_u64(fields[INDEX].value, CLIENT_BATCH_ITEMS_MAX, &index) ||
        !json_u64(fields[STATUS].value, 999, &status) || index >= sender->batch_count ||
        !sender->batch[index])
        return;
    struct sender_item *item = sender->batch[index];
    /* An idempotency key may answer an earlier event. Any other id is not of this item. */
    if (fields[EVENT].value.kind == JSON_KIND_OBJECT && *item->id &&
        (json_read_members(fields[EVENT].value, &id, 1) != STATUS_OK ||
         !json_string_is(id.value, slice_of(item->id))))
        return;
    if (status == 429 || status >= 500 || status == 424) {
        if (!*has_error)
            *error = client_error_read(fields[ERROR].value, 0, (unsigned)status);
        error->policy = CLIENT_POLICY_RETRY;
        *has_error = true;
    } else if (status == 200 && fields[EVENT].value.kind == JSON_KIND_OBJECT) {
        const struct khala_answer answer = {
            .event_id = item->stored_id,
            .event = {fields[EVENT].value.raw.data, fields[EVENT].value.raw.size},
            .deduplicated = fields[DEDUPLICATED].value.kind == JSON_KIND_TRUE,
            .json = {line.data, line.size}};
        settle(sender, item, &answer, false);
    } else if (status != 200) {
        take_refusal(sender, item, line, fields[ERROR].value, (unsigned)status);
    }
}

static void take_answers(struct sender *sender, struct slice text) {
    struct client_error error =
        client_error_make(CLIENT_POLICY_RETRY, "answer_incomplete", "The answer was incomplete.");
    bool has_error = false;
    size_t before = unanswered(sender);
    while (text.size > 0) {
        const char *end = memchr(text.data, '\n', text.size);
        struct slice line = {text.data, end ? (size_t)(end - text.data) : text.size};
        take_line(sender, line, &error, &has_error);
        text = slice_from(text, end ? line.size + 1 : line.size);
    }
    size_t left = unanswered(sender);
    if (left < before)
        sender->attempts = sender->refusals = 0;
    if (left > 0)
        handle_error(sender, &error);
    else
        send_next(sender);
}

static void on_done(void *user, const struct answer *answer, const char *reason) {
    struct sender *sender = user;
    struct http_call *call = sender->call;
    struct client_error error =
        client_error_make(CLIENT_POLICY_RETRY,
                          http_call_was_sent(call) ? "connection_lost" : "connect_failed", reason);
    sender->call = NULL;
    sender->until_ms = 0;
    bool is_expected = answer && answer_status(answer) == 200 &&
                       strncmp(answer_header(answer, ANSWER_CONTENT_TYPE), CONTENT_TYPE,
                               strlen(CONTENT_TYPE)) == 0;
    if (is_expected) {
        take_answers(sender, buffer_slice(&answer->body));
    } else {
        if (answer)
            error = client_error_of_answer(answer);
        handle_error(sender, &error);
    }
    http_call_close(call);
}

static enum status write_batch(struct sender *sender, struct buffer *body) {
    size_t bytes = 0;
    enum status status = STATUS_OK;
    struct list_node *node = list_first(&sender->queue);
    sender->batch_count = 0;
    for (; node && status == STATUS_OK && sender->batch_count < sender->items_max;
         node = list_next(&sender->queue, node)) {
        struct sender_item *item = container_of(node, struct sender_item, node);
        if (bytes > 0 && bytes + item->size > sender->options->batch_bytes_max)
            break;
        status = buffer_append(body, item->line, item->size);
        bytes += item->size;
        sender->batch[sender->batch_count++] = item;
    }
    return status;
}

static void send_batch(struct sender *sender) {
    const char *own_path = sender->options->append_path;
    struct buffer body;
    buffer_init(&body, CLIENT_BATCH_BYTES_MAX + CLIENT_EVENT_BYTES_MAX + 4096);
    enum status status = write_batch(sender, &body);
    if (status == STATUS_OK) {
        const struct http_call_options options = {.loop = sender->loop,
                                                  .holds = sender->holds,
                                                  .target = sender->target,
                                                  .method = "POST",
                                                  .has_id = true,
                                                  .path = own_path ? own_path : PATH,
                                                  .token = buffer_slice(&sender->token),
                                                  .content_type = CONTENT_TYPE,
                                                  .body = buffer_slice(&body),
                                                  .user = sender,
                                                  .done = on_done};
        status = http_call_open(&sender->call, &options);
    }
    buffer_release(&body);
    if (status == STATUS_OK) {
        sender->until_ms = clock_mono_now_ms() + sender->options->request_timeout_ms;
        wait_until(sender, sender->until_ms);
        return;
    }
    const struct client_error error = client_error_make(CLIENT_POLICY_RETRY, "out_of_memory",
                                                        "There is no memory for a request.");
    retry(sender, &error);
}

static void send_next(struct sender *sender) {
    sender->send_at_ms = 0;
    if (sender->queue_count == 0 || sender->call || sender->is_asking || sender->retry_at_ms > 0 ||
        sender->is_failed)
        return;
    if (sender->token_until_ms > clock_mono_now_ms()) {
        send_batch(sender);
        return;
    }
    sender->is_asking = true;
    sender->until_ms = clock_mono_now_ms() + sender->options->token_timeout_ms;
    wait_until(sender, sender->until_ms);
    sender->hooks->ask_token(sender->hooks->user, ++sender->asks);
}

void sender_token(struct sender *sender, uint64_t ask, const char *text,
                  const struct client_error *error) {
    struct client_error own = client_error_make(CLIENT_POLICY_RETRY, "token_missing",
                                                "The token callback did not answer a token.");
    uint64_t life_ms = UINT32_MAX;
    if (!sender->is_asking || ask != sender->asks)
        return;
    sender->is_asking = false;
    sender->until_ms = 0;
    buffer_clear(&sender->token);
    if (!error &&
        (!text || !*text || buffer_append_slice(&sender->token, slice_of(text)) != STATUS_OK))
        error = &own;
    if (error && error->policy == CLIENT_POLICY_FINAL) {
        fail(sender, error);
    } else if (error) {
        retry(sender, error);
    } else {
        (void)token_life_ms(buffer_slice(&sender->token), clock_now().wall_ms, &life_ms);
        sender->token_until_ms = clock_mono_now_ms() + life_ms / 4 * 3 + 1;
        send_next(sender);
    }
}

void sender_add(struct sender *sender, struct sender_item *item) {
    list_push_back(&sender->queue, &item->node);
    sender->queue_count++;
    sender->queue_bytes += item->size;
    sync_outbox(sender);
    if (sender->is_failed) {
        settle_error(sender, item, &sender->error, true);
    } else if (sender->queue_count >= sender->options->batch_items_max ||
               sender->queue_bytes >= sender->options->batch_bytes_max) {
        send_next(sender);
    } else if (sender->send_at_ms == 0) {
        sender->send_at_ms = clock_mono_now_ms() + sender->options->batch_ms;
        wait_until(sender, sender->send_at_ms);
    }
}

void sender_flush(struct sender *sender, struct flush_command *flush) {
    list_push_back(&sender->flushes, &flush->node);
    end_flushes(sender);
    send_next(sender);
}

void sender_tick(struct sender *sender) {
    uint64_t now = clock_mono_now_ms();
    const struct client_error late = client_error_make(
        CLIENT_POLICY_RETRY, "request_timeout", "The server or the token callback was too slow.");
    if (sender->until_ms > 0 && sender->until_ms <= now) {
        end_call(sender);
        sender->is_asking = false;
        retry(sender, &late);
    }
    if (sender->retry_at_ms > 0 && sender->retry_at_ms <= now) {
        sender->retry_at_ms = 0;
        send_next(sender);
    }
    if (sender->send_at_ms > 0 && sender->send_at_ms <= now)
        send_next(sender);
    const uint64_t waits[] = {sender->until_ms, sender->retry_at_ms, sender->send_at_ms};
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        if (waits[i] > 0)
            wait_until(sender, waits[i]);
}

/* ---- opening ------------------------------------------------------------------------------ */

static enum status restore(void *user, struct slice event) {
    struct sender *sender = user;
    struct sender_item *item = NULL;
    if (make_line(sender, event, &item) != KHALA_OK)
        return STATUS_OUT_OF_MEMORY;
    sender->count++;
    sender->bytes += item->size;
    list_push_back(&sender->queue, &item->node);
    sender->queue_count++;
    sender->queue_bytes += item->size;
    sender->send_at_ms = 1; /* as soon as the loop runs */
    return STATUS_OK;
}

enum status sender_init(struct sender *sender, const struct khala_options *options,
                        const struct sender_hooks *hooks, uv_mutex_t *lock,
                        const struct socket_target *target) {
    sender->options = options;
    sender->hooks = hooks;
    sender->lock = lock;
    sender->target = target;
    sender->outbox.fd = -1;
    sender->items_max = options->batch_items_max;
    list_init(&sender->queue);
    list_init(&sender->flushes);
    buffer_init(&sender->token, CLIENT_TOKEN_BYTES_MAX);
    enum status status = uuid7_generator_init(&sender->ids, NULL);
    if (status == STATUS_OK && options->outbox)
        status = outbox_file_open(&sender->outbox, options->outbox, sender, restore);
    return status;
}

void sender_attach(struct sender *sender, uv_loop_t *loop, struct socket_holds *holds) {
    sender->loop = loop;
    sender->holds = holds;
}

void sender_stop(struct sender *sender) {
    const struct client_error error =
        client_error_make(CLIENT_POLICY_FINAL, "closed", "The client is closed.");
    sender->retry_at_ms = sender->send_at_ms = 0;
    sender->is_asking = false;
    fail(sender, &error);
}

void sender_release(struct sender *sender) {
    struct list_node *node;
    if (!sender->lock)
        return;
    while ((node = list_pop_front(&sender->queue)))
        free(container_of(node, struct sender_item, node));
    outbox_file_close(&sender->outbox);
    buffer_release(&sender->token);
}
