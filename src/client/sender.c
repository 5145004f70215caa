/* An event becomes an item of the queue and of the lane of its entity. A batch takes the items of
 * ready lanes in the order of the queue, and its lanes are in flight until its answer. An item
 * whose line has an answer leaves; a refused lane rests, and the others go on. A request that fails
 * as a whole makes all lanes wait, asks for a new token, divides the batch or ends its events, by
 * the policy of its error. send_next sends whatever may be sent, and every event that may allow
 * more calls it. */
#include "client/sender.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/client_options.h"
#include "client/machine.h"

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
    client_net_let_go(sender->net); /* last: it may free the sender */
}

/* Events that are added while one sync is in progress share the next one. */
static void sync_outbox(struct sender *sender) {
    sender->must_sync = sender->outbox.fd >= 0;
    if (!sender->must_sync || sender->is_syncing)
        return;
    sender->sync.data = sender;
    /* Without memory for the request, the next event brings the sync. */
    if (uv_fs_fdatasync(sender->net->loop, &sender->sync, sender->outbox.fd, on_synced) != 0)
        return;
    client_net_hold(sender->net);
    sender->is_syncing = true;
    sender->must_sync = false;
}

/* ---- lanes -------------------------------------------------------------------------------- */

static void lane_set(struct sender *sender, struct sender_lane *lane, enum lane_state state) {
    if (lane->state == LANE_READY) {
        sender->ready_count -= lane->queue_count;
        sender->ready_bytes -= lane->queue_bytes;
    } else if (lane->state == LANE_RESTING) {
        list_remove(&lane->resting_node);
        lane->retry_at_ms = 0;
    }
    lane->state = state;
    if (state == LANE_READY) {
        sender->ready_count += lane->queue_count;
        sender->ready_bytes += lane->queue_bytes;
    } else if (state == LANE_RESTING) {
        list_push_back(&sender->resting, &lane->resting_node);
    }
}

/* Returns the wait. */
static uint64_t lane_rest(struct sender *sender, struct sender_lane *lane, int64_t hint_ms) {
    const struct khala_options *options = sender->options;
    uint64_t wait_ms = back_off_ms(lane->attempts++, hint_ms, back_off_chance(),
                                   options->back_off_base_ms, options->back_off_max_ms);
    lane_set(sender, lane, LANE_RESTING);
    uv_mutex_lock(sender->lock);
    lane->is_refused = true;
    uv_mutex_unlock(sender->lock);
    lane->retry_at_ms = clock_mono_now_ms() + wait_ms;
    wait_until(sender, lane->retry_at_ms);
    return wait_ms;
}

/* Under the lock. */
static void lane_let_go(struct sender *sender, struct sender_lane *lane, size_t item_size) {
    lane->item_bytes -= item_size;
    if (--lane->item_count > 0)
        return;
    map_remove(&sender->lanes, (struct slice){lane->name, lane->name_size});
    free(lane);
}

/* The lane of the entity that the event names, as the server reads it. NULL: no memory. Under the
 * lock. */
static struct sender_lane *lane_take(struct sender *sender, const struct json_field targets[3]) {
    static const struct slice before[] = {SLICE("run:"), SLICE("worker:"), SLICE("")};
    static const struct slice after[] = {SLICE(":events"), SLICE(":lifecycle"), SLICE("")};
    struct buffer *name = &sender->lane_name;
    enum status status = STATUS_OK;
    buffer_clear(name);
    for (int i = 0; i < 3 && name->size == 0 && status == STATUS_OK; i++) {
        if (targets[i].value.kind != JSON_KIND_STRING)
            continue;
        buffer_append_slice(name, before[i]);
        status = json_string_decode(targets[i].value, name);
        if (status == STATUS_OK)
            status = buffer_append_slice(name, after[i]);
    }
    if (status == STATUS_OUT_OF_MEMORY)
        return NULL;
    if (status != STATUS_OK)
        buffer_clear(name); /* no name of an entity: the server refuses the event */
    struct slice key = name->size > 0 ? buffer_slice(name) : SLICE("");
    struct sender_lane *found = map_find(&sender->lanes, key);
    if (!found) {
        found = calloc(1, sizeof(*found) + key.size + 1);
        if (!found)
            return NULL;
        memcpy(found->name, key.data, key.size);
        found->name_size = key.size;
        if (map_insert(&sender->lanes, (struct slice){found->name, found->name_size}, found) !=
            STATUS_OK) {
            free(found);
            return NULL;
        }
    }
    found->item_count++;
    return found;
}

static bool is_full(const struct sender *sender) {
    return sender->count >= sender->options->append_items_max ||
           sender->bytes >= sender->options->append_bytes_max;
}

/* A refused entity must not fill the queue, so that others can append. Under the lock; the queue is
 * not full. */
static bool lane_is_full(const struct sender *sender, const struct sender_lane *lane) {
    return lane->is_refused &&
           (lane->item_count > sender->options->append_items_max - sender->count ||
            lane->item_bytes > sender->options->append_bytes_max - sender->bytes);
}

/* ---- items -------------------------------------------------------------------------------- */

/* A closed inbox leaves the item to sender_forget. */
static void keep_item(struct command *command) {
    (void)command;
}

/* The line of an event: the id first if it has none. A line feed of an event is white space. */
static enum khala_result make_line(struct sender *sender, struct slice event,
                                   struct sender_item **item) {
    enum { EVENT_ID, IDEMPOTENCY_KEY, TARGETS, COUNT = TARGETS + 3 };
    const struct json_limits limits = {CLIENT_EVENT_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[COUNT] = {{.name = SLICE("event_id")},
                                       {.name = SLICE("idempotency_key")},
                                       {.name = SLICE("run_id")},
                                       {.name = SLICE("worker_id")},
                                       {.name = SLICE("topic")}};
    struct json_value object, first_name, first;
    struct slice id = {NULL, 0};
    if (json_parse(event, &limits, &object) != STATUS_OK || object.kind != JSON_KIND_OBJECT ||
        json_read_members(object, fields, COUNT) != STATUS_OK ||
        (fields[EVENT_ID].present &&
         (!json_string_slice(fields[EVENT_ID].value, &id) || id.size > UUID_TEXT_SIZE)))
        return KHALA_INVALID;
    static const char member[] = "\"event_id\":\"";
    size_t size = object.raw.size + sizeof(member) + UUID_TEXT_SIZE + 4;
    struct sender_lane *lane = lane_take(sender, fields + TARGETS);
    if (!lane)
        return KHALA_NO_MEMORY;
    bool has_room = !lane_is_full(sender, lane);
    struct sender_item *made = has_room ? calloc(1, sizeof(*made) + size) : NULL;
    if (!made) {
        lane_let_go(sender, lane, 0);
        return has_room ? KHALA_NO_MEMORY : KHALA_FULL;
    }
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
    lane->item_bytes += made->size;
    if (!fields[IDEMPOTENCY_KEY].present)
        memcpy(made->id, made->stored_id, sizeof(made->id));
    made->command = (struct command){.kind = COMMAND_APPEND, .free = keep_item};
    made->lane = lane;
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
        if (result != KHALA_OK) {
            lane_let_go(sender, (*item)->lane, (*item)->size);
            free(*item);
        }
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
    item->lane->is_refused = false;
    lane_let_go(sender, item->lane, item->size);
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
    while ((node = list_first(&sender->flushes))) {
        struct flush_command *flush = container_of(node, struct flush_command, node);
        struct list_node *oldest = list_first(&sender->queue);
        if (oldest && container_of(oldest, struct sender_item, node)->number <= flush->number)
            return;
        list_remove(node);
        flush->done(flush->user);
        flush->command.free(&flush->command);
    }
}

/* Puts the item into the queue. */
static void enqueue(struct sender *sender, struct sender_item *item) {
    struct sender_lane *lane = item->lane;
    item->number = ++sender->last_number;
    list_push_back(&sender->queue, &item->node);
    lane->queue_count++;
    lane->queue_bytes += item->size;
    if (lane->state == LANE_READY) {
        sender->ready_count++;
        sender->ready_bytes += item->size;
    }
}

/* The last call of an item, whose request is over. */
static void settle(struct sender *sender, struct sender_item *item,
                   const struct khala_answer *answer, bool is_kept) {
    struct sender_lane *lane = item->lane;
    bool has_room = false;
    list_remove(&item->node);
    if (lane->state == LANE_READY) {
        sender->ready_count--;
        sender->ready_bytes -= item->size;
    }
    lane->queue_count--;
    lane->queue_bytes -= item->size;
    lane->attempts = 0;
    if (lane->queue_count == 0)
        lane_set(sender, lane, LANE_READY);
    if (list_is_empty(&sender->queue))
        sender->items_max = sender->options->batch_items_max;
    uncount(sender, item, !is_kept, &has_room);
    if (item->answered)
        item->answered(item->user, answer);
    free(item);
    if (has_room && sender->options->room)
        sender->options->room(sender->options->user);
    end_flushes(sender);
}

static void settle_error(struct sender *sender, struct sender_item *item,
                         const struct client_error *error, struct slice line, bool is_kept) {
    char topic[CLIENT_ENTITY_BYTES_MAX + 1];
    /* The lane may be freed before the answer is given. */
    snprintf(topic, sizeof(topic), "%s", item->lane->name);
    const struct khala_error shown = client_error_shown(error, topic);
    const struct khala_answer answer = {
        .error = &shown, .event_id = item->stored_id, .json = {line.data, line.size}};
    settle(sender, item, &answer, is_kept);
}

/* ---- a batch ------------------------------------------------------------------------------ */

/* The lanes of the request may be sent again. */
static void end_call(struct sender_call *call) {
    for (size_t i = 0; i < call->count; i++)
        lane_set(call->sender, call->items[i]->lane, LANE_READY);
    call->http = NULL;
    call->until_ms = 0;
}

static void fail(struct sender *sender, const struct client_error *error,
                 const struct client_error *sent_error) {
    struct list_node *node;
    for (size_t i = 0; i < CLIENT_APPEND_REQUESTS_MAX; i++) {
        struct sender_call *call = &sender->calls[i];
        if (!call->http)
            continue;
        http_call_close(call->http);
        end_call(call);
    }
    sender->is_failed = true;
    sender->error = *error;
    while ((node = list_first(&sender->queue))) {
        struct sender_item *item = container_of(node, struct sender_item, node);
        settle_error(sender, item, item->was_sent ? sent_error : error, (struct slice){NULL, 0},
                     true);
    }
    end_flushes(sender);
}

static void warn(const struct sender *sender, const struct client_error *error, const char *topic,
                 uint64_t wait_ms) {
    struct khala_error shown = client_error_shown(error, topic);
    shown.retry_ms = wait_ms < UINT_MAX ? (unsigned)wait_ms : UINT_MAX;
    if (sender->options->warned)
        sender->options->warned(sender->options->user, &shown);
}

/* All lanes wait: no server was reached, or it refused a request as a whole. */
static void retry(struct sender *sender, const struct client_error *error) {
    /* Requests that were in flight together fail together, which is one failure. */
    if (sender->retry_at_ms > 0)
        return;
    uint64_t wait_ms =
        back_off_ms(sender->attempts++, error->retry_after_ms, back_off_chance(),
                    sender->options->back_off_base_ms, sender->options->back_off_max_ms);
    sender->retry_at_ms = clock_mono_now_ms() + wait_ms;
    wait_until(sender, sender->retry_at_ms);
    warn(sender, error, NULL, wait_ms);
}

/* Handles the error of a whole request, or of its items without an answer. */
static void handle_error(struct sender_call *call, const struct client_error *error) {
    struct sender *sender = call->sender;
    size_t left = 0;
    for (size_t i = 0; i < call->count; i++)
        left += call->items[i] != NULL;
    /* Requests in flight together may have one refused token. */
    if (error->policy == CLIENT_POLICY_REAUTHENTICATE && call->ask == sender->asks &&
        sender->token_until_ms > 0) {
        sender->token_until_ms = 0;
        sender->refusals++;
    }
    if (error->policy == CLIENT_POLICY_FINAL || sender->refusals >= CLIENT_APPEND_REFUSALS_MAX) {
        fail(sender, error, error);
    } else if (error->http_status == 413 && left > 1) {
        sender->items_max = left / 2;
        send_next(sender);
    } else if (error->policy == CLIENT_POLICY_TOPIC_FINAL || error->http_status == 413) {
        /* A refusal of the whole batch, such as 403, or of an event that is too large, also by a
         * proxy: no later attempt can succeed. */
        struct client_error refusal = *error;
        refusal.policy = CLIENT_POLICY_TOPIC_FINAL;
        for (size_t i = 0; i < call->count; i++)
            if (call->items[i])
                settle_error(sender, call->items[i], &refusal, (struct slice){NULL, 0}, false);
        send_next(sender);
    } else {
        retry(sender, error);
    }
}

/* The lanes that an answer refused for now. */
struct rests {
    size_t count;
    /* The first of them. It is a copy, because a later line may free the lane. */
    char topic[CLIENT_ENTITY_BYTES_MAX + 1];
    struct client_error error;
    uint64_t wait_ms;
};

/* One line of the answer. */
static void take_line(struct sender_call *call, struct slice line, struct rests *rests) {
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
        !json_u64(fields[STATUS].value, 999, &status) || index >= call->count ||
        !call->items[index])
        return;
    struct sender_item *item = call->items[index];
    /* An idempotency key may answer an earlier event. Any other id is not of this item. */
    if (fields[EVENT].value.kind == JSON_KIND_OBJECT && *item->id &&
        (json_read_members(fields[EVENT].value, &id, 1) != STATUS_OK ||
         !json_string_is(id.value, slice_of(item->id))))
        return;
    if (status == 429 || status >= 500 || status == 424) {
        /* The first of the lane has the reason and the hint; the server attempted no later one. */
        if (item->lane->state == LANE_RESTING)
            return;
        const struct client_error error =
            client_error_read(fields[ERROR].value, 0, (unsigned)status);
        uint64_t wait_ms = lane_rest(call->sender, item->lane, error.retry_after_ms);
        if (rests->count++ == 0) {
            snprintf(rests->topic, sizeof(rests->topic), "%s", item->lane->name);
            rests->error = error;
            rests->wait_ms = wait_ms;
        }
    } else if (status == 200 && fields[EVENT].value.kind == JSON_KIND_OBJECT) {
        const struct khala_answer answer = {
            .event_id = item->stored_id,
            .event = {fields[EVENT].value.raw.data, fields[EVENT].value.raw.size},
            .deduplicated = fields[DEDUPLICATED].value.kind == JSON_KIND_TRUE,
            .json = {line.data, line.size}};
        call->items[index] = NULL;
        settle(call->sender, item, &answer, false);
    } else if (status != 200) {
        const struct client_error refusal =
            client_error_read(fields[ERROR].value, 0, (unsigned)status);
        call->items[index] = NULL;
        settle_error(call->sender, item, &refusal, line, false);
    }
}

static void on_done(void *user, const struct http_answer *answer, const char *reason) {
    struct sender_call *call = user;
    struct sender *sender = call->sender;
    struct http_call *http = call->http;
    struct client_error error =
        client_error_make(CLIENT_POLICY_RETRY,
                          http_call_was_sent(http) ? "connection_lost" : "connect_failed", reason);
    if (http_call_was_sent(http))
        client_error_set_request(&error, http_call_id(http));
    bool is_expected =
        answer && answer->head.http_status == 200 &&
        slice_starts(http_answer_field(answer, SLICE("content-type")), SLICE(CONTENT_TYPE));
    end_call(call);
    if (!is_expected) {
        if (answer)
            error = client_error_of_answer(answer);
        handle_error(call, &error);
        http_call_close(http);
        return;
    }
    error =
        client_error_make(CLIENT_POLICY_RETRY, "answer_incomplete", "The answer was incomplete.");
    client_error_set_request(&error, http_call_id(http));
    struct slice text = buffer_slice(&answer->body);
    struct rests rests = {.count = 0};
    size_t left = 0, unanswered = 0;
    while (text.size > 0) {
        const char *end = memchr(text.data, '\n', text.size);
        struct slice line = {text.data, end ? (size_t)(end - text.data) : text.size};
        take_line(call, line, &rests);
        text = slice_from(text, end ? line.size + 1 : line.size);
    }
    for (size_t i = 0; i < call->count; i++) {
        left += call->items[i] != NULL;
        unanswered += call->items[i] && call->items[i]->lane->state != LANE_RESTING;
    }
    if (left < call->count || rests.count > 0)
        sender->attempts = sender->refusals = 0;
    if (rests.count > 0)
        warn(sender, &rests.error, rests.count == 1 ? rests.topic : NULL, rests.wait_ms);
    if (unanswered > 0)
        handle_error(call, &error);
    else
        send_next(sender);
    http_call_close(http);
}

/* Sends the items of the ready lanes, in the order of the queue. */
static void send_batch(struct sender_call *call) {
    struct sender *sender = call->sender;
    const char *own_path = sender->options->append_path;
    struct buffer body;
    buffer_init(&body, CLIENT_BATCH_BYTES_MAX + CLIENT_EVENT_BYTES_MAX + 4096);
    call->count = 0;
    for (struct list_node *node = list_first(&sender->queue);
         node && call->count < sender->items_max; node = list_next(&sender->queue, node)) {
        struct sender_item *item = container_of(node, struct sender_item, node);
        if (item->lane->state != LANE_READY)
            continue;
        if (body.size > 0 && body.size + item->size > sender->options->batch_bytes_max)
            break;
        call->items[call->count++] = item;
        if (buffer_append(&body, item->line, item->size) != STATUS_OK)
            break;
    }
    for (size_t i = 0; i < call->count; i++)
        lane_set(sender, call->items[i]->lane, LANE_IN_FLIGHT);
    enum status status = buffer_status(&body);
    if (status == STATUS_OK) {
        const struct http_call_options options = {.net = sender->net,
                                                  .method = "POST",
                                                  .has_id = true,
                                                  .path = own_path ? own_path : PATH,
                                                  .token = buffer_slice(&sender->token),
                                                  .content_type = CONTENT_TYPE,
                                                  .body = buffer_slice(&body),
                                                  .user = call,
                                                  .done = on_done};
        status = http_call_open(&call->http, &options);
    }
    buffer_release(&body);
    if (status != STATUS_OK) {
        const struct client_error error = client_error_make(CLIENT_POLICY_RETRY, "out_of_memory",
                                                            "There is no memory for a request.");
        end_call(call);
        retry(sender, &error);
        return;
    }
    for (size_t i = 0; i < call->count; i++)
        call->items[i]->was_sent = true;
    call->ask = sender->asks;
    call->until_ms = clock_mono_now_ms() + sender->options->request_timeout_ms;
    wait_until(sender, call->until_ms);
}

/* Every event that makes a lane ready or a request free calls this: nothing else sends. */
static void send_next(struct sender *sender) {
    sender->send_at_ms = 0;
    while (sender->ready_count > 0 && sender->retry_at_ms == 0 && !sender->is_asking &&
           !sender->is_failed) {
        size_t i = 0;
        while (i < sender->options->append_requests_max && sender->calls[i].http)
            i++;
        if (i == sender->options->append_requests_max)
            return;
        if (sender->token_until_ms > clock_mono_now_ms()) {
            send_batch(&sender->calls[i]);
            continue;
        }
        sender->is_asking = true;
        sender->ask_until_ms = clock_mono_now_ms() + sender->options->token_timeout_ms;
        wait_until(sender, sender->ask_until_ms);
        sender->hooks->ask_token(sender->hooks->user, ++sender->asks);
    }
}

void sender_token(struct sender *sender, uint64_t ask, const char *text,
                  const struct client_error *error) {
    struct client_error own = client_error_make(CLIENT_POLICY_RETRY, "token_missing",
                                                "The token callback did not answer a token.");
    uint64_t life_ms = UINT32_MAX;
    if (!sender->is_asking || ask != sender->asks)
        return;
    sender->is_asking = false;
    buffer_clear(&sender->token);
    if (!error &&
        (!text || !*text || buffer_append_slice(&sender->token, slice_of(text)) != STATUS_OK))
        error = &own;
    if (error && error->policy == CLIENT_POLICY_FINAL) {
        fail(sender, error, error);
    } else if (error) {
        retry(sender, error);
    } else {
        (void)token_life_ms(buffer_slice(&sender->token), clock_now().wall_ms, &life_ms);
        sender->token_until_ms = clock_mono_now_ms() + life_ms / 4 * 3 + 1;
        send_next(sender);
    }
}

void sender_add(struct sender *sender, struct sender_item *item) {
    enqueue(sender, item);
    sync_outbox(sender);
    if (sender->is_failed) {
        settle_error(sender, item, &sender->error, (struct slice){NULL, 0}, true);
    } else if (sender->ready_count >= sender->options->batch_items_max ||
               sender->ready_bytes >= sender->options->batch_bytes_max) {
        send_next(sender);
    } else if (sender->send_at_ms == 0) {
        sender->send_at_ms = clock_mono_now_ms() + sender->options->batch_ms;
        wait_until(sender, sender->send_at_ms);
    }
}

void sender_flush(struct sender *sender, struct flush_command *flush) {
    flush->number = sender->last_number;
    list_push_back(&sender->flushes, &flush->node);
    end_flushes(sender);
    send_next(sender);
}

void sender_tick(struct sender *sender) {
    uint64_t now = clock_mono_now_ms();
    struct client_error late = client_error_make(CLIENT_POLICY_RETRY, "request_timeout",
                                                 "The server or the token callback was too slow.");
    if (sender->is_asking && sender->ask_until_ms <= now) {
        sender->is_asking = false;
        retry(sender, &late);
    }
    for (size_t i = 0; i < CLIENT_APPEND_REQUESTS_MAX; i++) {
        struct sender_call *call = &sender->calls[i];
        if (!call->http || call->until_ms > now)
            continue;
        struct http_call *http = call->http;
        client_error_set_request(&late, http_call_id(http));
        end_call(call);
        retry(sender, &late);
        http_call_close(http);
    }
    if (sender->retry_at_ms <= now)
        sender->retry_at_ms = 0;
    for (struct list_node *node = list_first(&sender->resting), *next; node; node = next) {
        struct sender_lane *lane = container_of(node, struct sender_lane, resting_node);
        next = list_next(&sender->resting, node);
        if (lane->retry_at_ms <= now)
            lane_set(sender, lane, LANE_READY);
        else
            wait_until(sender, lane->retry_at_ms);
    }
    if (sender->send_at_ms <= now)
        send_next(sender);
    const uint64_t waits[] = {sender->is_asking ? sender->ask_until_ms : 0, sender->retry_at_ms,
                              sender->send_at_ms};
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        if (waits[i] > 0)
            wait_until(sender, waits[i]);
    for (size_t i = 0; i < CLIENT_APPEND_REQUESTS_MAX; i++)
        if (sender->calls[i].http)
            wait_until(sender, sender->calls[i].until_ms);
}

/* ---- opening ------------------------------------------------------------------------------ */

static enum status restore(void *user, struct slice event) {
    struct sender *sender = user;
    struct sender_item *item = NULL;
    if (make_line(sender, event, &item) != KHALA_OK)
        return STATUS_OUT_OF_MEMORY;
    sender->count++;
    sender->bytes += item->size;
    enqueue(sender, item);
    sender->send_at_ms = 1; /* as soon as the loop runs */
    return STATUS_OK;
}

enum status sender_init(struct sender *sender, const struct khala_options *options,
                        const struct sender_hooks *hooks, uv_mutex_t *lock,
                        struct client_net *net) {
    sender->options = options;
    sender->hooks = hooks;
    sender->lock = lock;
    sender->net = net;
    sender->outbox.fd = -1;
    sender->items_max = options->batch_items_max;
    for (size_t i = 0; i < CLIENT_APPEND_REQUESTS_MAX; i++)
        sender->calls[i].sender = sender;
    list_init(&sender->queue);
    list_init(&sender->resting);
    list_init(&sender->flushes);
    map_init(&sender->lanes, MAP_COUNT_MAX);
    buffer_init(&sender->lane_name, CLIENT_ENTITY_BYTES_MAX);
    buffer_init(&sender->token, CLIENT_TOKEN_BYTES_MAX);
    enum status status = uuid7_generator_init(&sender->ids, NULL);
    if (status == STATUS_OK && options->outbox)
        status = outbox_file_open(&sender->outbox, options->outbox, sender, restore);
    return status;
}

void sender_stop(struct sender *sender) {
    const struct client_error unsent = client_error_make(
        CLIENT_POLICY_FINAL, "closed", "The client was closed before it sent the event.");
    const struct client_error sent = client_error_make(
        CLIENT_POLICY_FINAL, "closed",
        "The client was closed before the answer to the event came: it may be stored.");
    sender->retry_at_ms = sender->send_at_ms = 0;
    sender->is_asking = false;
    fail(sender, &unsent, &sent);
}

void sender_release(struct sender *sender) {
    struct list_node *node;
    if (!sender->lock)
        return;
    while ((node = list_pop_front(&sender->queue))) {
        struct sender_item *item = container_of(node, struct sender_item, node);
        lane_let_go(sender, item->lane, item->size);
        free(item);
    }
    map_release(&sender->lanes);
    buffer_release(&sender->lane_name);
    outbox_file_close(&sender->outbox);
    buffer_release(&sender->token);
}
