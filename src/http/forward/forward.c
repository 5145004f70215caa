/* The way to the writer:
 *
 *   attempt ──▶ waiting ──▶ connecting ──▶ exchanging ──▶ forward_answer.c
 *      ▲                        │              │
 *      └──────── paused ◀───────┴──────────────┘  nothing of the request could take effect
 *
 * A streamed body is sent after the writer's 100 Continue. Until then nothing of it can take
 * effect, and another attempt is safe. A single append is sent at once, to save that round trip. */
#include "http/forward/forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/forward/forward_head.h"
#include "http/forward/forward_state.h"
#include "wire/http1_response.h"
#include "wire/json.h"

/* Shorter than the time after which a server closes an idle connection by default, so that a
 * request rarely meets a connection that is closing. */
#define IDLE_MS    20000
#define CONNECT_MS 3000
#define RETRY_MS   100
/* Longer than another node takes to become the writer. */
#define GIVE_UP_MS 10000
#define WAIT_MS    2000
/* Of requests whose work is long: rebuilding, pruning and importing. */
#define LONG_SILENCE_MS 600000
/* A writer that sends nothing for so long may be stopped. Then another node may have the role. */
#define WRITER_CHECK_MS 500
/* One failure in this time is a warning. An outage fails thousands of requests a second. */
#define WARNING_MS 1000

static void attempt(struct forward *forward);

static const struct outbound_events upstream_events;
static const struct http1_peer node_peer = {.is_node = true};

static uint64_t now_ms(const struct forward *forward) {
    return clock_mono_ms(&forward->exchange->loop->clock);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void set_deadline(struct forward *forward, uint64_t delay_ms) {
    io_loop_deadline_in(forward->exchange->loop, &forward->deadline, DEADLINE_FORWARD, delay_ms);
}

bool forward_is_over(const struct forward *forward) {
    return !forward->exchange->conn || forward->exchange->answered_whole;
}

void forward_await(struct forward *forward) {
    bool is_due = forward->state == FORWARD_FOLLOWING || !outbound_is_clear(forward->upstream) ||
                  !forward->is_body_open || forward->is_request_over;
    uint64_t silence_ms = forward->is_long ? LONG_SILENCE_MS : forward->all->silence_ms;
    if (!is_due) {
        deadline_drop(&forward->deadline);
        return;
    }
    forward->silent_until_ms = now_ms(forward) + silence_ms;
    set_deadline(forward, forward->state == FORWARD_EXCHANGING ? least(silence_ms, WRITER_CHECK_MS)
                                                               : silence_ms);
}

/* The level of a failure. Metrics count all failures. */
static enum log_level failure_level(struct forwards *all, uint64_t at_ms, uint64_t *unlogged) {
    if (all->warned_ms != 0 && at_ms - all->warned_ms < WARNING_MS) {
        all->unlogged_count++;
        return LOG_DEBUG;
    }
    *unlogged = all->unlogged_count;
    all->unlogged_count = 0;
    all->warned_ms = at_ms;
    return LOG_WARN;
}

void forward_count(struct forward *forward, enum label_forward_outcome outcome,
                   const char *reason) {
    struct exchange *exchange = forward->exchange;
    uint64_t took_ns = clock_mono_ns(&exchange->loop->clock) - exchange->started_ns;
    bool is_failure =
        outcome != LABEL_FORWARD_OUTCOME_ANSWERED && outcome != LABEL_FORWARD_OUTCOME_ABANDONED;
    if (forward->is_counted)
        return;
    forward->is_counted = true;
    metrics_add(METRIC_FORWARD_REQUESTS, METRIC_LABELS(outcome), 1);
    if (outcome == LABEL_FORWARD_OUTCOME_ANSWERED)
        metrics_observe(METRIC_FORWARD_DURATION_SECONDS, METRIC_PLAIN, took_ns, 1);
    uint64_t unlogged = 0;
    enum log_level level =
        is_failure ? failure_level(forward->all, now_ms(forward), &unlogged) : LOG_DEBUG;
    log_event(level, "forward.done", log_slice("request_id", exchange_request_id(exchange)),
              log_str("outcome", label_forward_outcome_name(outcome)),
              log_str("writer", forward->writer), log_str("reason", reason),
              log_int("took_us", (int64_t)(took_ns / 1000)),
              log_int("failures_since_last_warning", (int64_t)unlogged));
}

/* ---- connections ---- */

static void leave_queue(struct forward *forward) {
    if (!list_node_is_linked(&forward->node))
        return;
    list_remove(&forward->node);
    forward->all->waiting_count--;
    metrics_sub(METRIC_FORWARD_WAITING, METRIC_PLAIN, 1);
}

static bool has_room(const struct forwards *all, bool is_stream) {
    bool has_connection =
        !list_is_empty(&all->group.idle) || all->group.count < FORWARD_CONNECTIONS_MAX;
    return has_connection && !(is_stream && all->stream_count >= FORWARD_STREAMS_MAX);
}

static void serve_waiting(struct forwards *all) {
    struct list_node *node = list_first(&all->waiting), *next;
    for (size_t left = all->waiting_count; node && left > 0; left--, node = next) {
        struct forward *forward = container_of(node, struct forward, node);
        next = list_next(&all->waiting, node);
        if (!has_room(all, forward->is_stream))
            continue;
        leave_queue(forward);
        attempt(forward);
    }
}

static void refuse(struct forward *forward, enum status status, const char *reason) {
    enum label_forward_outcome outcome = status == STATUS_LIMIT_REACHED
                                             ? LABEL_FORWARD_OUTCOME_REFUSED
                                             : LABEL_FORWARD_OUTCOME_UNREACHABLE;
    forward_count(forward, outcome, reason);
    forward->state = FORWARD_OVER;
    deadline_drop(&forward->deadline);
    exchange_answer_status(forward->exchange, status);
}

static void wait_for_connection(struct forward *forward) {
    struct forwards *all = forward->all;
    if (all->waiting_count == FORWARD_WAITING_MAX) {
        refuse(forward, STATUS_LIMIT_REACHED, "too many requests wait for the writer");
        return;
    }
    forward->state = FORWARD_WAITING;
    list_push_back(&all->waiting, &forward->node);
    all->waiting_count++;
    metrics_add(METRIC_FORWARD_WAITING, METRIC_PLAIN, 1);
    set_deadline(forward, WAIT_MS);
}

/* The forward has no connection any more. */
static struct outbound *take_upstream(struct forward *forward) {
    struct outbound *upstream = forward->upstream;
    forward->upstream = NULL;
    if (upstream && forward->is_stream)
        forward->all->stream_count--;
    return upstream;
}

void forward_end_upstream(struct forward *forward, bool is_kept) {
    struct forwards *all = forward->all;
    struct outbound *upstream = take_upstream(forward);
    if (!is_kept || all->loop->state != LOOP_SERVING) {
        outbound_close(upstream);
        return;
    }
    outbound_keep(upstream);
    if (all->idle.at_ms == 0)
        io_loop_deadline(all->loop, &all->idle, DEADLINE_UPSTREAM);
    serve_waiting(all);
}

/* ---- attempts ---- */

void forward_retry(struct forward *forward, const char *reason) {
    if (now_ms(forward) >= forward->give_up_ms) {
        if (forward->may_have_effect)
            forward_answer_unknown(forward, reason);
        else
            refuse(forward, STATUS_NOT_WRITER, reason);
        return;
    }
    log_event(LOG_DEBUG, "forward.retry",
              log_slice("request_id", exchange_request_id(forward->exchange)),
              log_str("writer", forward->writer), log_str("reason", reason));
    metrics_add(METRIC_FORWARD_RETRIES, METRIC_PLAIN, 1);
    http1_answer_release(&forward->answer);
    buffer_release(&forward->body);
    if (forward->is_stream) {
        forward->is_body_open = false;
        exchange_pause(forward->exchange);
    }
    forward->state = FORWARD_PAUSED;
    set_deadline(forward, RETRY_MS);
}

void forward_trouble(struct forward *forward, const char *reason) {
    struct exchange *exchange = forward->exchange;
    forward_end_upstream(forward, false);
    if (forward_is_over(forward))
        return;
    if (forward->state == FORWARD_FOLLOWING || forward->state == FORWARD_PASSING ||
        forward->state == FORWARD_FOLLOW_PAUSED) {
        forward->is_broken = true;
    } else if (exchange->answered) {
        forward->is_broken = true;
        forward_follow(forward);
    } else if (!forward->may_have_effect) {
        forward_retry(forward, reason);
    } else if (forward->can_repeat) {
        /* The writer may have been silent for long. Another one gets its time once. */
        if (!forward->is_repeated)
            forward->give_up_ms = now_ms(forward) + GIVE_UP_MS;
        forward->is_repeated = true;
        forward_retry(forward, reason);
    } else {
        forward_answer_unknown(forward, reason);
    }
}

static void send_part(struct forward *forward) {
    if (outbound_send(forward->upstream, buffer_slice(&forward->request)) != STATUS_OK) {
        forward_trouble(forward, "no memory");
        return;
    }
    if (!outbound_is_clear(forward->upstream))
        outbound_want_room(forward->upstream);
    forward_await(forward);
}

/* The head of a stream, or a whole request. */
static enum status write_request(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    const struct http1_request *request = exchange->request;
    const struct forward_head head = {
        .request = request,
        .request_id = exchange_request_id(exchange),
        .node_id = slice_of(nodes_self(forward->all->nodes)),
        .proof = slice_of(forward->all->proof),
        .content_length = forward->is_stream ? request->content_length : exchange->body.size,
        .is_chunked = forward->is_chunked,
        .expects_continue = forward->is_stream && request->has_body,
    };
    buffer_clear(&forward->request);
    enum status status = forward_head_write(&forward->request, &head);
    if (status == STATUS_OK && !forward->is_stream)
        status = buffer_append_slice(&forward->request, buffer_slice(&exchange->body));
    return status;
}

static void exchange_with(struct forward *forward) {
    forward->state = FORWARD_EXCHANGING;
    buffer_init(&forward->body, FORWARD_ANSWER_BYTES_MAX);
    if (forward->is_stream && write_request(forward) != STATUS_OK) {
        forward_trouble(forward, "no memory");
        return;
    }
    if (!forward->is_stream)
        forward->may_have_effect = forward->is_request_over = forward->is_body_open = true;
    send_part(forward);
    /* A stream without a body has no 100 Continue. */
    bool is_empty =
        forward->upstream && forward->is_stream && !forward->exchange->request->has_body;
    bool is_alive = !is_empty || forward_open_body(forward);
    (void)is_alive;
}

static bool find_writer(struct forward *forward, struct outbound_target *target) {
    struct node_address node;
    const struct exchange *exchange = forward->exchange;
    if (!nodes_writer(forward->all->nodes, &node))
        return false;
    bool is_operators = exchange->conn->is_operators && *node.operator_text;
    memcpy(forward->writer, node.id, sizeof(forward->writer));
    return outbound_target_read(target, slice_of(is_operators ? node.operator_text : node.text));
}

static void attempt(struct forward *forward) {
    struct forwards *all = forward->all;
    struct outbound_target target;
    if (!find_writer(forward, &target)) {
        forward_retry(forward, "no writer is known");
        return;
    }
    if (target.is_secure && !all->group.tls) {
        forward_retry(forward, "TLS is not available");
        return;
    }
    bool is_new = false;
    if (has_room(all, forward->is_stream)) {
        forward->upstream = outbound_reuse(&all->group, &target, &upstream_events, forward);
        is_new = !forward->upstream;
        if (is_new && outbound_open(&forward->upstream, &all->group, &target, &upstream_events,
                                    forward) == STATUS_OK) {
            io_loop_hold(all->loop);
            metrics_add(METRIC_FORWARD_CONNECTIONS, METRIC_PLAIN, 1);
        }
    }
    if (!forward->upstream) {
        wait_for_connection(forward);
        return;
    }
    all->stream_count += forward->is_stream;
    if (is_new) {
        forward->state = FORWARD_CONNECTING;
        set_deadline(forward, CONNECT_MS);
    } else {
        exchange_with(forward);
    }
}

/* The old writer may be stopped, or cut from the database, with the connection still open. */
static bool is_writer_replaced(const struct forward *forward) {
    struct node_address node;
    return nodes_writer(forward->all->nodes, &node) && strcmp(node.id, forward->writer) != 0;
}

/* The writer sent nothing for some time. */
static void check_writer(struct forward *forward) {
    uint64_t at_ms = now_ms(forward);
    if (is_writer_replaced(forward))
        forward_trouble(forward, "another node is the writer now");
    else if (at_ms >= forward->silent_until_ms)
        forward_trouble(forward, "the writer was silent for too long");
    else
        set_deadline(forward, least(forward->silent_until_ms - at_ms, WRITER_CHECK_MS));
}

static void on_deadline(struct deadline *deadline) {
    struct forward *forward = container_of(deadline, struct forward, deadline);
    if (forward_is_over(forward))
        return;
    switch (forward->state) {
    case FORWARD_WAITING:
        leave_queue(forward);
        refuse(forward, STATUS_LIMIT_REACHED, "no connection to the writer was free in time");
        return;
    case FORWARD_PAUSED:
        attempt(forward);
        return;
    case FORWARD_CONNECTING:
        forward_trouble(forward, "no connection was made in time");
        return;
    case FORWARD_EXCHANGING:
        check_writer(forward);
        return;
    case FORWARD_FOLLOWING:
        forward_answer_unknown(forward, "the log was not read in time");
        return;
    case FORWARD_FOLLOW_PAUSED:
        forward_follow(forward);
        return;
    case FORWARD_PASSING:
    case FORWARD_DISCARDING:
    case FORWARD_OVER:
        return;
    }
}

/* ---- the body ---- */

bool forward_open_body(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    forward->is_body_open = true;
    forward_await(forward);
    exchange_ref(exchange);
    exchange_resume(exchange);
    if (exchange->conn && exchange->request && exchange->request->expect_continue &&
        !forward->is_continued) {
        forward->is_continued = true;
        conn_continue(exchange->conn);
    }
    return exchange_unref(exchange);
}

static void on_body(struct exchange *exchange, struct slice piece) {
    struct forward *forward = exchange->work;
    if (!forward->upstream)
        return;
    assert(forward->is_body_open);
    forward->may_have_effect = true;
    buffer_clear(&forward->request);
    enum status status = forward->is_chunked ? http1_chunk(&forward->request, piece)
                                             : buffer_append_slice(&forward->request, piece);
    if (status != STATUS_OK) {
        forward_trouble(forward, "no memory");
        return;
    }
    send_part(forward);
    if (forward->upstream && !outbound_is_clear(forward->upstream))
        exchange_pause(exchange);
}

static void on_body_end(struct exchange *exchange) {
    struct forward *forward = exchange->work;
    forward->is_body_over = true;
    if (forward->state == FORWARD_DISCARDING) {
        forward_discarded(forward);
        return;
    }
    exchange_watch_end(exchange);
    if (!forward->upstream)
        return;
    forward->may_have_effect = forward->is_request_over = true;
    if (!forward->is_chunked) {
        forward_await(forward);
        return;
    }
    buffer_clear(&forward->request);
    if (http1_chunk_end(&forward->request) == STATUS_OK)
        send_part(forward);
    else
        forward_trouble(forward, "no memory");
}

static void on_sent(struct exchange *exchange) {
    struct forward *forward = exchange->work;
    if (forward->state == FORWARD_DISCARDING && forward->is_body_over)
        forward_discarded(forward);
    else if (forward->state == FORWARD_PASSING)
        forward_passed(forward);
}

static const struct exchange_stream forward_stream = {
    .body = on_body,
    .body_end = on_body_end,
    .sent = on_sent,
};

/* ---- events of the connection ---- */

static void on_opened(void *user) {
    struct forward *forward = user;
    if (forward_is_over(forward))
        forward_end_upstream(forward, false);
    else
        exchange_with(forward);
}

static void on_has_room(void *user) {
    struct forward *forward = user;
    struct exchange *exchange = forward->exchange;
    if (forward->state == FORWARD_EXCHANGING)
        forward_await(forward);
    if (!forward_is_over(forward) && forward->is_stream && forward->is_body_open &&
        !forward->is_body_over)
        exchange_resume(exchange);
}

static void on_lost(void *user, const char *reason) {
    struct forward *forward = user;
    /* It closed by itself. */
    (void)take_upstream(forward);
    forward_trouble(forward, reason);
}

static const struct outbound_events upstream_events = {
    .opened = on_opened,
    .received = forward_received,
    .has_room = on_has_room,
    .lost = on_lost,
};

/* ---- the connections of a loop ---- */

static void on_freed(void *user) {
    struct forwards *all = user;
    metrics_sub(METRIC_FORWARD_CONNECTIONS, METRIC_PLAIN, 1);
    serve_waiting(all);
    io_loop_release(all->loop);
}

static void on_idle(struct deadline *idle) {
    struct forwards *all = container_of(idle, struct forwards, idle);
    outbound_close_idle(&all->group, IDLE_MS);
    if (!list_is_empty(&all->group.idle))
        io_loop_deadline(all->loop, idle, DEADLINE_UPSTREAM);
}

/* ---- the beginning and the end ---- */

static void work_free(void *memory) {
    struct forward *forward = memory;
    forward_count(forward, LABEL_FORWARD_OUTCOME_ABANDONED, "the client disconnected");
    leave_queue(forward);
    deadline_drop(&forward->deadline);
    forward_end_upstream(forward, false);
    forward->all->request_bytes -= forward->charged_bytes;
    buffer_release(&forward->request);
    buffer_release(&forward->body);
    http1_answer_release(&forward->answer);
    free(forward);
}

/* An append with one of these is stored once, however often it is sent. */
static bool has_identity(struct slice body) {
    const struct json_limits limits = {body.size, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("event_id")}, {.name = SLICE("idempotency_key")}};
    if (json_read_object(body, &limits, fields, 2) != STATUS_OK)
        return false;
    return (fields[0].present && fields[0].value.kind == JSON_KIND_STRING) ||
           (fields[1].present && fields[1].value.kind == JSON_KIND_STRING);
}

static enum status hold_request(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    size_t bytes = exchange->body.size + FORWARD_OUT_BYTES_MAX;
    if (bytes > FORWARD_REQUESTS_BYTES_MAX - forward->all->request_bytes)
        return STATUS_LIMIT_REACHED;
    forward->charged_bytes = bytes;
    forward->all->request_bytes += bytes;
    buffer_init(&forward->request, bytes);
    forward->can_repeat =
        exchange->match.route->flags & ROUTE_APPEND && has_identity(buffer_slice(&exchange->body));
    enum status status = write_request(forward);
    buffer_release(&exchange->body);
    return status;
}

enum forward_choice forward_choose(const struct exchange *exchange) {
    const struct forwards *all = conn_loop(exchange->conn)->forwards;
    struct slice sender;
    if (!all || !(exchange->match.route->flags & ROUTE_WRITER) ||
        writer_has_role(exchange->http->writer))
        return FORWARD_HERE;
    if (http1_header_find(exchange->request, FORWARDED_FIELD, &sender))
        return FORWARD_REFUSE;
    /* The answer of a node alone names its trouble with the store. */
    return nodes_has_others(all->nodes) ? FORWARD_PASS : FORWARD_HERE;
}

void forward_begin(struct exchange *exchange) {
    unsigned flags = exchange->match.route->flags;
    struct forward *forward = calloc(1, sizeof(*forward));
    if (!forward) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    forward->exchange = exchange;
    forward->all = conn_loop(exchange->conn)->forwards;
    forward->is_stream = flags & ROUTE_STREAM;
    forward->is_chunked = forward->is_stream && exchange->request->chunked;
    forward->is_long = !(flags & (ROUTE_PRODUCER | ROUTE_APPEND));
    forward->give_up_ms = now_ms(forward) + GIVE_UP_MS;
    http1_answer_init(&forward->answer, &node_peer);
    buffer_init(&forward->body, FORWARD_ANSWER_BYTES_MAX);
    buffer_init(&forward->request, FORWARD_OUT_BYTES_MAX);
    exchange->work = forward;
    exchange->work_free = work_free;
    exchange->stream = &forward_stream;
    if (forward->is_stream) {
        exchange_pause(exchange);
    } else {
        enum status status = hold_request(forward);
        if (status != STATUS_OK) {
            refuse(forward, STATUS_LIMIT_REACHED, "too many bytes wait for the writer");
            return;
        }
        exchange_watch_end(exchange);
    }
    attempt(forward);
}

enum status forwards_open(struct forwards **forwards, const struct forwards_options *options) {
    struct forwards *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return STATUS_OUT_OF_MEMORY;
    opened->http = options->http;
    opened->nodes = options->nodes;
    opened->silence_ms = options->silence_ms;
    list_init(&opened->waiting);
    node_proof_write(&options->http->operator_key, slice_of(nodes_self(options->nodes)),
                     opened->proof);
    opened->loop = options->loop;
    outbound_group_init(&opened->group,
                        &(struct outbound_group){.set = &options->loop->sockets,
                                                 .tls = options->tls,
                                                 .unsent_bytes_max = FORWARD_REQUESTS_BYTES_MAX,
                                                 .user = opened,
                                                 .freed = on_freed});
    deadline_queue_define(&options->loop->deadlines, DEADLINE_UPSTREAM, IDLE_MS, on_idle);
    deadline_queue_define(&options->loop->deadlines, DEADLINE_FORWARD, 0, on_deadline);
    *forwards = opened;
    return STATUS_OK;
}

void forwards_free(struct forwards *forwards) {
    free(forwards);
}

void forwards_drain(struct forwards *forwards) {
    if (!forwards)
        return;
    deadline_drop(&forwards->idle);
    outbound_close_idle(&forwards->group, 0);
}
