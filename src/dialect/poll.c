/* A poll is a plain request with a subscription. It takes steps until it has enough messages, is at
 * the head, or is stale, and then answers once. At the head without a message it waits for the feed
 * or its deadline. A poll on a shared topic that leaves frames behind has its own frames counted by
 * the store, because the lag decides whether the consumer is too slow. */
#include "dialect/dialects.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "authority/call.h"
#include "base/limits.h"
#include "delivery/replay_budget.h"
#include "delivery/stale.h"
#include "delivery/subscription.h"
#include "delivery/telemetry.h"
#include "http/query_cursor.h"
#include "http/query_selection.h"
#include "http/store_read.h"
#include "net/transport.h"
#include "topic/topic_name.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define WAIT_MS_MAX 60000
#define DRIVER      SLICE("memory")

enum poll_state {
    POLL_NEW,       /* it has no subscription */
    POLL_GATHERING, /* it takes frames, or waits for some */
    POLL_COUNTING,  /* the frames behind the page are being counted */
    POLL_COUNTED,
};

struct poll {
    struct subscription subscription;
    struct call call; /* runs a read on the store pool */
    struct exchange *exchange;
    struct deadline deadline; /* while the poll waits */
    struct buffer messages;   /* between the brackets */
    size_t count;
    uint64_t limit;
    bool limit_capped;
    bool fairness_applied;
    uint64_t wait_ms;
    enum frame_form form;
    enum poll_state state;
    bool *wants_more; /* set during a step: another must follow */
    struct consumer_state consumer;
    struct replay_progress counted;
    struct replay_lag lag;
};

/* The principal that polls: its key in the registry, and its name in the log. */
struct poller {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    char name[PRINCIPAL_NAME_BYTES_MAX];
    char peer[TRANSPORT_PEER_BYTES_MAX];
};

static void poll_free(void *work) {
    struct poll *poll = work;
    deadline_drop(&poll->deadline);
    if (poll->state != POLL_NEW)
        subscription_close(&poll->subscription);
    buffer_release(&poll->messages);
    free(poll);
}

static struct consumer_key consumer_key(const struct exchange *exchange, struct poller *poller) {
    const struct principal *principal = exchange->principal;
    /* The session, else the token. The operator key has neither: all its polls are one session. */
    return (struct consumer_key){.principal = principal_key(principal, poller->key),
                                 .topic = exchange->match.parameters[0],
                                 .session = principal->session_id.data ? principal->session_id
                                                                       : principal->token_id};
}

static struct delivery_loop *delivery_loop_of(const struct exchange *exchange) {
    const struct http_loop *loop = exchange->loop->owner;
    return loop->delivery;
}

static const struct delivery *delivery_of(const struct exchange *exchange) {
    return delivery_loop_of(exchange)->shared;
}

static const struct dialect_settings *exchange_settings(const struct exchange *exchange) {
    return delivery_of(exchange)->dialects;
}

static void count_poll(enum metric metric) {
    metrics_add(metric, METRIC_LABELS(LABEL_DIALECT_POLL), 1);
}

static struct cause cause_of(struct exchange *exchange, struct poller *poller) {
    return (struct cause){
        .connection = exchange_request_id(exchange),
        .principal = {poller->name, principal_name(exchange->principal, poller->name)},
        .peer = transport_peer(&exchange->conn->transport, poller->peer),
        .topic = exchange->match.parameters[0],
        .dialect = LABEL_DIALECT_POLL};
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- answers ---- */

/* The poll is answered without a page, so that the next one need not wait for it. */
static void reject(struct poll *poll) {
    struct poller poller;
    struct consumer_key key = consumer_key(poll->exchange, &poller);
    consumers_rejected(delivery_of(poll->exchange)->consumers, &key, &poll->consumer);
}

static void answer_failed(struct poll *poll, enum status status) {
    reject(poll);
    exchange_answer_status(poll->exchange, status);
}

static void answer_stale(struct poll *poll) {
    const struct subscription *subscription = &poll->subscription;
    struct buffer details;
    struct poller poller;
    reject(poll);
    telemetry_stale(delivery_of(poll->exchange)->telemetry, cause_of(poll->exchange, &poller),
                    subscription_continuity(subscription));
    buffer_init(&details, POLL_DETAILS_BYTES_MAX);
    struct stale_topic stale = subscription_stale(subscription);
    enum status status = stale_write_json(&details, &stale, 1);
    struct exchange_error error = {
        .status = STATUS_STALE_CURSOR,
        .reason_code = reason_code(subscription_continuity(subscription)->reasons[0]),
        .details = buffer_slice(&details)};
    if (status == STATUS_OK)
        exchange_answer_error(poll->exchange, &error);
    else
        exchange_answer_status(poll->exchange, status);
    buffer_release(&details);
}

/* The client gets none of the frames that were gathered: it is behind by those too. A bootstrap has
 * no position yet, but it is never evicted. */
static void answer_evicted(struct poll *poll) {
    struct exchange *exchange = poll->exchange;
    const struct subscription *subscription = &poll->subscription;
    uint64_t after_seq = subscription->start->asked.after_seq;
    struct buffer details;
    struct poller poller;
    struct cause cause = cause_of(exchange, &poller);
    assert(subscription->start->asked.has_cursor && !subscription->is_bootstrap);
    reject(poll);
    cause.status = STATUS_SLOW_CONSUMER_EVICTED;
    telemetry_evicted(delivery_of(exchange)->telemetry, cause);
    buffer_init(&details, POLL_DETAILS_BYTES_MAX);
    struct object_writer object = object_begin(&details);
    object_text(&object, SLICE("topic"), subscription->topic->name);
    object_number(&object, SLICE("lag"), poll->lag.frames + poll->count);
    object_number(&object, SLICE("strikes"), poll->consumer.strikes);
    position_put(&object, SLICE("resume_after"), after_seq, subscription_given_epoch(subscription));
    object_number(&object, SLICE("reconnect_after_ms"), io_loop_backoff_ms(exchange->loop));
    enum status status = object_end(&object);
    exchange_answer_error(exchange, &(struct exchange_error){
                                        .status = STATUS_SLOW_CONSUMER_EVICTED,
                                        .details = status == STATUS_OK ? buffer_slice(&details)
                                                                       : (struct slice){NULL, 0}});
    buffer_release(&details);
}

static void object_flag(struct object_writer *object, struct slice name, bool flag) {
    object_json(object, name, flag ? SLICE("true") : SLICE("false"));
}

static bool is_complete(const struct subscription *subscription) {
    return subscription->next_seq > subscription->head_seq;
}

static enum status write_page(struct poll *poll, uint64_t lag, struct buffer *out) {
    struct exchange *exchange = poll->exchange;
    const struct subscription *subscription = &poll->subscription;
    const struct subscription_start *start = subscription->start;
    struct slice topic = subscription->topic->name;
    uint64_t head_seq = subscription->head_seq;
    uint64_t floor = start->window.oldest_seq > 0 ? start->window.oldest_seq - 1 : 0;
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), topic);
    object_text(&object, SLICE("driver"), DRIVER);
    object_json(&object, SLICE("messages"), SLICE("["));
    buffer_append_slice(out, buffer_slice(&poll->messages));
    buffer_append_byte(out, ']');
    object_number(&object, SLICE("oldest_available_cursor"), floor);
    object_number(&object, SLICE("head_cursor"), head_seq);
    object_number(&object, SLICE("queue_depth"), head_seq > floor ? head_seq - floor : 0);
    object_number(&object, SLICE("dropped_messages"), floor);
    position_put(&object, SLICE("next_cursor"), subscription->next_seq - 1,
                 subscription_given_epoch(subscription));
    object_flag(&object, SLICE("replay_complete"), is_complete(subscription));
    object_number(&object, SLICE("limit_applied"), poll->limit);
    object_flag(&object, SLICE("limit_capped"), poll->limit_capped);
    object_flag(&object, SLICE("fairness_applied"), poll->fairness_applied);
    object_number(&object, SLICE("active_topic_count"), poll->consumer.active_topics);
    object_number(&object, SLICE("outbound_queue_limit"),
                  exchange_settings(exchange)->outbound_queue_limit);
    object_number(&object, SLICE("consumer_lag"), lag);
    object_number(&object, SLICE("slow_consumer_strikes"), poll->consumer.strikes);
    object_number(&object, SLICE("slow_consumer_max_strikes"),
                  delivery_of(exchange)->options.strikes_max);
    object_number(&object, SLICE("recommended_reconnect_backoff_ms"),
                  io_loop_backoff_ms(exchange->loop));
    object_text(&object, SLICE("epoch"), slice_of(subscription_epoch(subscription)->text));
    if (subscription_is_pending(subscription))
        object_flag(&object, SLICE("pending"), true);
    if (subscription->is_bootstrap) {
        object_json(&object, SLICE("bootstrap"), SLICE(""));
        buffer_printf(out, "{\"from_seq\":%" PRIu64 ",\"truncated\":%s", start->bootstrap.from_seq,
                      start->bootstrap.truncated ? "true" : "false");
        /* A topic with snapshots begins with one. The answer names its URL, since a bounded number
         * of messages cannot hold it. */
        if (policy_has_snapshot(subscription->topic->policy))
            buffer_printf(out,
                          ",\"snapshot\":{\"url\":\"/v1/topics/%.*s/snapshot\","
                          "\"head_watermark\":%" PRIu64 "}",
                          (int)topic.size, topic.data, head_seq);
        buffer_append_byte(out, '}');
    }
    object_close(&object);
    buffer_append_byte(out, '\n');
    return buffer_end(out, object.begin);
}

/* ---- the lag ---- */

static void answer_page(struct poll *poll);

static void count_run(struct call *call, struct store_session *store) {
    struct poll *poll = container_of(call, struct poll, call);
    const struct subscription *subscription = &poll->subscription;
    const struct replay_reader reader = {.principal = subscription->principal,
                                         .view = (enum grant_view)subscription->view};
    call->status = replay_lag_count(store, subscription->topic->name, &reader,
                                    subscription->next_seq - 1, &poll->counted, &poll->lag);
    call->has_more = call->status == STATUS_OK && poll->counted.has_more;
}

static void count_done(struct call *call) {
    struct poll *poll = container_of(call, struct poll, call);
    poll->state = POLL_COUNTED;
    if (!exchange_unref(poll->exchange))
        return;
    if (call->status == STATUS_OK)
        answer_page(poll);
    else
        answer_failed(poll, call->status);
}

static void answer_page(struct poll *poll) {
    struct exchange *exchange = poll->exchange;
    const struct subscription *subscription = &poll->subscription;
    if (poll->state != POLL_COUNTED && subscription_hides_lag(subscription)) {
        /* The store is asked, and the page is answered later. */
        poll->state = POLL_COUNTING;
        poll->call.run = count_run;
        poll->call.done = count_done;
        exchange_post_store(exchange, &poll->call);
        return;
    }
    if (poll->state != POLL_COUNTED)
        poll->lag.frames =
            smaller(subscription_lag(subscription), subscription_own_lag(subscription));
    const struct delivery_options *options = &delivery_of(exchange)->options;
    const struct consumer_page page = {
        .lag = poll->lag.frames,
        .lag_max = options->lag_follows_budgets ? policy_lag_max(subscription->topic->policy) : 0,
        .lag_is_minimum = poll->lag.is_minimum,
        .through_seq = subscription->next_seq - 1,
        .is_complete = is_complete(subscription),
        .is_bootstrap = subscription->is_bootstrap};
    struct poller poller;
    struct consumer_key key = consumer_key(exchange, &poller);
    struct buffer out;
    enum status token = exchange_token_status(exchange);
    if (token != STATUS_OK) {
        answer_failed(poll, token);
        return;
    }
    buffer_init(&out, POLL_PAGE_BYTES_MAX + POLL_ENVELOPE_BYTES_MAX);
    enum status status =
        consumers_served(delivery_of(exchange)->consumers, &key, &page, &poll->consumer);
    if (status == STATUS_SLOW_CONSUMER_EVICTED) {
        answer_evicted(poll);
        return;
    }
    if (status == STATUS_OK)
        status = write_page(poll, page.lag, &out);
    /* The client gets the same answer as for a topic that does not exist. The log has the reason.
     */
    if (subscription->view == GRANT_VIEW_NONE)
        exchange_log_refusal(exchange, STATUS_OWNER_MISMATCH, subscription->topic->name);
    if (status == STATUS_OK)
        exchange_answer_json(exchange, 200, buffer_slice(&out));
    else
        answer_failed(poll, status);
    buffer_release(&out);
}

/* ---- gathering ---- */

static enum status add_messages(struct poll *poll, struct delivery_batch *batch) {
    uint64_t bytes = poll->messages.size;
    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->frames[i]->content.payload.size;
    /* Before the messages are written: those of polls that are being gathered count as unread too.
     */
    enum status status = exchange_hold(poll->exchange, bytes);
    if (status != STATUS_OK) {
        delivery_batch_release(batch);
        return status;
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (poll->count++ > 0)
            buffer_append_byte(&poll->messages, ',');
        buffer_note(&poll->messages, message_write(&poll->messages, batch->frames[i], poll->form));
    }
    telemetry_handed(LABEL_DIALECT_POLL, poll->subscription.topic->policy, batch->frames,
                     batch->count, clock_now().mono_ns);
    delivery_batch_release(batch);
    return buffer_status(&poll->messages);
}

static struct poll *poll_of(struct subscription *subscription) {
    return container_of(subscription, struct poll, subscription);
}

static void on_frames(struct subscription *subscription, struct delivery_batch *batch) {
    struct poll *poll = poll_of(subscription);
    /* A later step may have newer frames of the same documents. */
    bool conflates = subscription->selected && subscription->selected->selection->conflate_ms > 0;
    enum status status = add_messages(poll, batch);
    if (status != STATUS_OK)
        answer_failed(poll, status);
    else if (poll->count >= poll->limit || poll->messages.size >= POLL_PAGE_BYTES ||
             (conflates && poll->count > 0))
        answer_page(poll);
    else
        *poll->wants_more = true;
}

static void on_head(struct subscription *subscription) {
    struct poll *poll = poll_of(subscription);
    const struct exchange *exchange = poll->exchange;
    uint64_t now_ms = clock_wall_ms(&exchange->loop->clock);
    uint64_t end_ms = exchange->principal->expires_at_ms;
    uint64_t wait_ms = poll->wait_ms;
    if (poll->count > 0 || wait_ms == 0) {
        answer_page(poll);
        return;
    }
    if (poll->deadline.at_ms != 0)
        return;
    /* A poll waits no longer than its token is valid. */
    if (end_ms > 0 && end_ms <= now_ms + wait_ms)
        wait_ms = end_ms > now_ms ? end_ms - now_ms : 0;
    exchange_watch_end(poll->exchange);
    io_loop_deadline_in(exchange->loop, &poll->deadline, DEADLINE_WAIT, wait_ms);
}

static void gather(struct poll *poll);

static void read_run(struct call *call, struct store_session *store) {
    call->has_more =
        subscription_read_run(&container_of(call, struct poll, call)->subscription, store);
}

static void read_done(struct call *call) {
    struct poll *poll = container_of(call, struct poll, call);
    subscription_read_done(&poll->subscription, call->status);
    if (exchange_unref(poll->exchange))
        gather(poll);
}

static void on_read(struct subscription *subscription) {
    struct poll *poll = poll_of(subscription);
    struct exchange *exchange = poll->exchange;
    poll->call.run = read_run;
    poll->call.done = read_done;
    exchange_post_store(exchange, &poll->call);
}

/* A bootstrap is never stale: if its first frames were pruned before the client got any, it starts
 * again at the oldest frame. */
static void on_stale(struct subscription *subscription) {
    struct poll *poll = poll_of(subscription);
    if (poll->count > 0) {
        answer_page(poll);
    } else if (subscription->is_bootstrap) {
        subscription_restart(subscription);
        *poll->wants_more = true;
    } else {
        answer_stale(poll);
    }
}

static void on_failed(struct subscription *subscription) {
    answer_failed(poll_of(subscription), subscription->status);
}

static const struct subscription_sink poll_sink = {
    .frames = on_frames,
    .at_head = on_head,
    .read = on_read,
    .stale = on_stale,
    .failed = on_failed,
};

/* Steps until the poll is answered, waits, or reads; the poll may be gone then. */
static void gather(struct poll *poll) {
    bool wants_more;
    /* The topic may advance while the answer is being written. */
    if (exchange_is_answered(poll->exchange) || poll->state == POLL_COUNTING)
        return;
    do {
        uint64_t room = poll->limit - poll->count;
        wants_more = false;
        poll->wants_more = &wants_more;
        subscription_serve(&poll->subscription, (size_t)smaller(room, DELIVERY_FRAMES_MAX),
                           POLL_PAGE_BYTES, &poll_sink);
    } while (wants_more);
}

static void member_advanced(struct feed_member *member) {
    struct poll *poll = container_of(member, struct poll, subscription.member);
    if (poll->exchange->conn && !subscription_is_reading(&poll->subscription))
        gather(poll);
}

static void answer_waiting(struct poll *poll) {
    bool is_waiting = poll->exchange->conn && !subscription_is_reading(&poll->subscription);
    if (!is_waiting || exchange_is_answered(poll->exchange) || poll->state == POLL_COUNTING)
        return;
    subscription_skip_hidden(&poll->subscription);
    answer_page(poll);
}

void poll_expired(struct deadline *deadline) {
    answer_waiting(container_of(deadline, struct poll, deadline));
}

/* A poll that waits is answered with the messages it has; a poll that reads is answered soon. */
static void poll_drain(struct exchange *exchange) {
    struct poll *poll = exchange->work;
    poll->wait_ms = 0;
    if (poll->deadline.at_ms != 0)
        answer_waiting(poll);
}

/* ---- asking ---- */

/* The query of a poll. */
struct poll_query {
    struct subscription_options options; /* the position */
    uint64_t limit;
    uint64_t wait_ms;
    enum frame_form form;
};

static enum status poll_query_read(struct exchange *exchange, struct poll_query *query) {
    query->limit = exchange_settings(exchange)->poll_default_limit;
    enum status status = query_topic_cursor(exchange, &query->options);
    if (status == STATUS_INVALID_CURSOR)
        status = STATUS_INVALID_REQUEST;
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("limit"), 1, JSON_INTEGER_MAX, &query->limit);
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("wait_ms"), 0, WAIT_MS_MAX, &query->wait_ms);
    if (status == STATUS_OK)
        status = message_query_form(exchange, &query->form);
    if (status == STATUS_OK)
        status = query_fold(exchange, &query->options.folds);
    if (atomic_load(&exchange->http->is_draining))
        query->wait_ms = 0;
    return status;
}

static enum status poll_begin(struct exchange *exchange, const struct poll_query *query,
                              const struct consumer_state *consumer) {
    struct poll *poll = calloc(1, sizeof(*poll));
    if (!poll)
        return STATUS_OUT_OF_MEMORY;
    buffer_init(&poll->messages, POLL_PAGE_BYTES_MAX);
    exchange->work = poll;
    exchange->work_free = poll_free;
    exchange->drain = poll_drain;
    poll->exchange = exchange;
    poll->subscription.member.advanced = member_advanced;
    poll->consumer = *consumer;
    poll->wait_ms = query->wait_ms;
    poll->form = query->form;
    struct subscription_options options = query->options;
    options.principal = exchange->principal;
    options.view = exchange->view;
    const struct subscription_rules rules = {delivery_of(exchange)->policies,
                                             delivery_of(exchange)->writer};
    enum status status = subscription_open(&poll->subscription, &delivery_loop_of(exchange)->feeds,
                                           exchange->match.parameters[0], &rules, &options);
    if (status != STATUS_OK)
        return status;
    poll->state = POLL_GATHERING;
    metrics_add(options.has_cursor || options.has_since ? METRIC_SYNC_REPLAY_STARTED
                                                        : METRIC_SYNC_REPLAY_BOOTSTRAP,
                METRIC_LABELS(LABEL_DIALECT_POLL, poll->subscription.topic->policy->topic_class),
                1);
    const struct dialect_settings *settings = exchange_settings(exchange);
    uint64_t slice_frames = delivery_of(exchange)->options.slice_frames;
    uint64_t most = smaller(settings->poll_max_limit, settings->outbound_queue_limit);
    poll->limit = smaller(query->limit, most);
    poll->limit_capped = query->limit > most;
    poll->fairness_applied = poll->consumer.active_topics > 1 && poll->limit > slice_frames;
    if (poll->fairness_applied)
        poll->limit = slice_frames;
    if (poll->limit_capped)
        metrics_add(METRIC_FANOUT_LIMITED_POLLS, METRIC_PLAIN, 1);
    if (poll->fairness_applied)
        count_poll(METRIC_FANOUT_FAIRNESS_LIMITED_POLLS);
    gather(poll);
    return STATUS_OK;
}

void handle_messages(struct exchange *exchange) {
    struct poll_query query = {.limit = 0};
    struct consumer_state consumer = {0};
    struct poller poller;
    struct consumer_key key = consumer_key(exchange, &poller);
    if (!query_topic_since(exchange, &query.options))
        return;
    enum status status = poll_query_read(exchange, &query);
    if (status == STATUS_INVALID_REQUEST) {
        exchange_answer_error(
            exchange,
            &(struct exchange_error){
                .status = status,
                .message = "after_seq is a position (seq or seq@epoch), limit a number "
                           "from 1, wait_ms one from 0 to 60000, form full or lean, fold true "
                           "or false."});
        return;
    }
    if (status == STATUS_OK && !query_selection(exchange, &query.options.selection))
        return;
    if (status == STATUS_OK)
        count_poll(METRIC_FANOUT_POLLS);
    if (status == STATUS_OK)
        status = consumers_admit(delivery_of(exchange)->consumers, &key,
                                 clock_mono_ms(&exchange->loop->clock), &consumer);
    if (status == STATUS_RATE_LIMITED) {
        char seconds[24];
        char details[64];
        snprintf(details, sizeof(details), "{\"retry_after_ms\":%" PRIu64 "}",
                 consumer.retry_after_ms);
        snprintf(seconds, sizeof(seconds), "%" PRIu64, (consumer.retry_after_ms + 999) / 1000);
        struct http1_header header = {SLICE("Retry-After"), slice_of(seconds)};
        metrics_add(METRIC_FANOUT_THROTTLED_POLLS, METRIC_PLAIN, 1);
        exchange_answer_error(exchange, &(struct exchange_error){.status = STATUS_RATE_LIMITED,
                                                                 .details = slice_of(details),
                                                                 .headers = &header,
                                                                 .header_count = 1});
        selection_unref(query.options.selection);
        return;
    }
    if (status == STATUS_OK) {
        status = poll_begin(exchange, &query, &consumer);
        if (status != STATUS_OK)
            consumers_rejected(delivery_of(exchange)->consumers, &key, &consumer);
    }
    selection_unref(query.options.selection);
    if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
}
