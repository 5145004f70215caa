/* The way to the writer, and back:
 *
 *   paused ──▶ waiting ──▶ connecting ──▶ exchanging ◀───────────┐
 *     ▲           │            │            │  │                 │
 *     └───────────┴────────────┴────────────┘  ▼                 │
 *      nothing of it could take effect      following ──▶ passing ──▶ discarding ──▶ over
 *
 * A streamed body is sent after the writer's 100 Continue. Until then nothing of it can take
 * effect, and another attempt is safe. A single append is sent at once, to save that round trip. A
 * piece of the answer is read, waits for a pass over the log, and is passed on; the next one is
 * read when it is written to the client. A forward whose exchange was answered may be freed, so an
 * answer is the last thing that a function does. */
#include "http/forward/forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "authority/call.h"
#include "base/fair_queue.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "cluster/follow.h"
#include "cluster/nodes.h"
#include "http/forward/forward_parts.h"
#include "net/outbound.h"
#include "spec/metrics.h"

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

#define FOLLOW_PAUSE_MS 100
/* An answer of 503 up to this size is read to its end: it may allow another attempt. */
#define REFUSAL_BYTES_MAX 4096
/* A longer line is passed on in pieces. */
#define LINE_BYTES_MAX (FORWARD_ANSWER_BYTES_MAX - LOOP_READ_BYTES)

#define UNKNOWN_MESSAGE "The writer did not confirm the request, which may have taken effect."

/* Single requests, and streamed bodies. */
#define FORWARD_KINDS 2

struct forwards {
    struct http *http;
    struct nodes *nodes;
    struct io_loop *loop;
    struct outbound_group group; /* the connections to the writer */
    struct deadline idle;        /* when the kept connection that rested longest closes */
    /* Forwards without a connection, by principal. */
    struct fair_queue waiting[FORWARD_KINDS];
    unsigned next_kind;   /* that gets the next connection */
    size_t stream_count;  /* forwards of streamed bodies that have a connection */
    size_t request_bytes; /* bytes of all single appends */
    uint64_t silence_ms;
    uint64_t warned_ms;      /* when a failure was last logged as a warning; 0: never */
    uint64_t unlogged_count; /* failures since then */
    char proof[NODE_PROOF_SIZE + 1];
};

enum forward_state {
    FORWARD_PAUSED,  /* until the next attempt */
    FORWARD_WAITING, /* until a connection is free */
    FORWARD_CONNECTING,
    FORWARD_EXCHANGING,    /* the request is sent, and the answer read */
    FORWARD_FOLLOWING,     /* a piece of the answer waits for a pass over the log */
    FORWARD_FOLLOW_PAUSED, /* that pass failed; another one is requested soon */
    FORWARD_PASSING,       /* the client takes a piece of the answer */
    FORWARD_DISCARDING,    /* the writer is lost; the rest of the client's body is dropped */
    FORWARD_OVER,
};

/* How far the present attempt has brought the request. */
enum forward_request {
    REQUEST_HELD,
    REQUEST_OFFERED, /* the head of a stream is sent */
    REQUEST_OPEN,    /* the writer accepts the body */
    REQUEST_SENDING, /* a part of the body was sent, which may take effect */
    REQUEST_SENT,    /* whole, or the client has sent no more */
};

struct forward {
    struct exchange *exchange;
    struct forwards *all;
    enum forward_state state;
    enum forward_request sent;
    struct fair_item waiting; /* in its state */
    struct deadline deadline;
    struct outbound *upstream; /* NULL: none, or no more */
    char writer[NODE_ID_SIZE + 1];
    uint64_t give_up_ms;      /* no attempt begins later */
    uint64_t silent_until_ms; /* a writer that sends nothing until then is given up */
    size_t charged_bytes;
    struct buffer request; /* head and body; of a stream the part under way */
    struct http1_answer answer;
    struct buffer body; /* the part of the answer that is not passed on yet */
    struct forward_lines lines;
    struct call call; /* returns from the writer's thread */
    struct follow_wait wait;
    uint64_t follow_until_ms;
    bool can_repeat;   /* its event id or key makes sending it again safe */
    bool is_repeated;  /* it was sent again for that reason */
    bool is_continued; /* the client was asked for its body */
};

static const struct outbound_events upstream_events;
static const struct http1_peer node_peer = {.is_node = true};

static void attempt(struct forward *forward);
static void follow(struct forward *forward);
static void pass(struct forward *forward);
static void passed(struct forward *forward);
static void trouble(struct forward *forward, const char *reason);

static bool is_stream(const struct forward *forward) {
    return forward->exchange->match.route->flags & ROUTE_STREAM;
}

static void set_state(struct forward *forward, enum forward_state state) {
#define TO(name) (1u << FORWARD_##name)
    static const unsigned edges[] = {
        [FORWARD_PAUSED] = TO(PAUSED) | TO(WAITING) | TO(CONNECTING) | TO(EXCHANGING) | TO(OVER),
        [FORWARD_WAITING] = TO(PAUSED) | TO(OVER),
        [FORWARD_CONNECTING] = TO(PAUSED) | TO(EXCHANGING) | TO(OVER),
        [FORWARD_EXCHANGING] = TO(PAUSED) | TO(FOLLOWING) | TO(OVER),
        [FORWARD_FOLLOWING] = TO(FOLLOW_PAUSED) | TO(PASSING) | TO(DISCARDING) | TO(OVER),
        [FORWARD_FOLLOW_PAUSED] = TO(FOLLOWING) | TO(OVER),
        [FORWARD_PASSING] = TO(EXCHANGING) | TO(DISCARDING) | TO(OVER),
        [FORWARD_DISCARDING] = TO(OVER),
        [FORWARD_OVER] = 0,
    };
#undef TO
    assert(edges[forward->state] & 1u << state);
    if (forward->state == FORWARD_WAITING) {
        fair_queue_take(&forward->all->waiting[is_stream(forward)], &forward->waiting);
        metrics_sub(METRIC_FORWARD_WAITING, METRIC_PLAIN, 1);
    }
    if (state == FORWARD_WAITING)
        metrics_add(METRIC_FORWARD_WAITING, METRIC_PLAIN, 1);
    forward->state = state;
}

static bool may_have_effect(const struct forward *forward) {
    return forward->sent >= REQUEST_SENDING || forward->is_repeated;
}

/* The writer was lost within its answer. */
static bool is_broken(const struct forward *forward) {
    return !forward->upstream && !http1_answer_is_done(&forward->answer);
}

/* The client has a part of its body to send that the writer accepts. */
static bool passes_body(const struct forward *forward) {
    return forward->sent == REQUEST_OPEN || forward->sent == REQUEST_SENDING;
}

static uint64_t now_ms(const struct forward *forward) {
    return clock_mono_ms(&forward->exchange->loop->clock);
}

static void set_deadline(struct forward *forward, uint64_t delay_ms) {
    io_loop_deadline_in(forward->exchange->loop, &forward->deadline, DEADLINE_FORWARD, delay_ms);
}

/* The client is gone, or the dispatcher has answered it: nothing more can be passed on. */
static bool is_over(const struct forward *forward) {
    return !forward->exchange->conn || forward->exchange->state == EXCHANGE_ANSWERED;
}

/* Sets the deadline of the writer, or drops it if the client must act next. */
static void await_writer(struct forward *forward) {
    bool is_long = forward->exchange->match.route->flags & ROUTE_LONG;
    bool is_due = forward->state == FORWARD_FOLLOWING || !outbound_is_clear(forward->upstream) ||
                  !passes_body(forward);
    uint64_t silence_ms = is_long ? LONG_SILENCE_MS : forward->all->silence_ms;
    if (!is_due) {
        deadline_drop(&forward->deadline);
        return;
    }
    forward->silent_until_ms = now_ms(forward) + silence_ms;
    set_deadline(forward, forward->state == FORWARD_EXCHANGING ? MIN(silence_ms, WRITER_CHECK_MS)
                                                               : silence_ms);
}

/* Counts and logs the outcome. Afterwards the forward is over, or discards the client's body. */
static void finish(struct forward *forward, enum forward_state state,
                   enum label_forward_outcome outcome, const char *reason) {
    struct exchange *exchange = forward->exchange;
    uint64_t took_ns = clock_mono_ns(&exchange->loop->clock) - exchange->started_ns;
    bool is_failure =
        outcome != LABEL_FORWARD_OUTCOME_ANSWERED && outcome != LABEL_FORWARD_OUTCOME_ABANDONED;
    set_state(forward, state);
    deadline_drop(&forward->deadline);
    metrics_add(METRIC_FORWARD_REQUESTS, METRIC_LABELS(outcome), 1);
    if (outcome == LABEL_FORWARD_OUTCOME_ANSWERED)
        metrics_observe(METRIC_FORWARD_DURATION_SECONDS, METRIC_PLAIN, took_ns, 1);
    /* One failure in a while is a warning; metrics count all of them. */
    struct forwards *all = forward->all;
    uint64_t unlogged = all->unlogged_count;
    bool is_warning =
        is_failure && (all->warned_ms == 0 || now_ms(forward) - all->warned_ms >= WARNING_MS);
    if (is_warning)
        all->warned_ms = now_ms(forward);
    all->unlogged_count = is_warning ? 0 : unlogged + is_failure;
    log_event(is_warning ? LOG_WARN : LOG_DEBUG, "forward.done",
              log_slice("request_id", exchange_request_id(exchange)),
              log_str("outcome", label_forward_outcome_name(outcome)),
              log_str("writer", forward->writer), log_str("reason", reason),
              log_int("took_us", (int64_t)(took_ns / 1000)),
              log_int("failures_since_last_warning", (int64_t)(is_warning ? unlogged : 0)));
}

/* ---- connections ---- */

static bool has_room(const struct forwards *all, bool for_stream) {
    bool has_connection =
        !list_is_empty(&all->group.idle) || all->group.count < FORWARD_CONNECTIONS_MAX;
    return has_connection && !(for_stream && all->stream_count >= FORWARD_STREAMS_MAX);
}

/* The kinds take turns, and the principals within a kind. An attempt may put its forward back. */
static void serve_waiting(struct forwards *all) {
    size_t tries = FORWARD_KINDS * (all->waiting[0].count + all->waiting[1].count);
    for (; tries > 0 && has_room(all, false); tries--) {
        unsigned kind = all->next_kind;
        struct fair_queue *queue = &all->waiting[kind];
        all->next_kind = (kind + 1) % FORWARD_KINDS;
        if (queue->count == 0 || !has_room(all, kind))
            continue;
        struct fair_item *item = fair_queue_peek(queue);
        if (!item)
            fair_queue_begin_round(queue);
        item = item ? item : fair_queue_peek(queue);
        struct forward *forward = container_of(item, struct forward, waiting);
        set_state(forward, FORWARD_PAUSED);
        if (!is_over(forward))
            attempt(forward);
    }
}

static void refuse_client(struct forward *forward, enum status status, const char *reason) {
    enum label_forward_outcome outcome = status == STATUS_LIMIT_REACHED
                                             ? LABEL_FORWARD_OUTCOME_REFUSED
                                             : LABEL_FORWARD_OUTCOME_UNREACHABLE;
    finish(forward, FORWARD_OVER, outcome, reason);
    exchange_answer_status(forward->exchange, status);
}

/* The forward has no connection any more. */
static struct outbound *take_upstream(struct forward *forward) {
    struct outbound *upstream = forward->upstream;
    forward->upstream = NULL;
    if (upstream && is_stream(forward))
        forward->all->stream_count--;
    return upstream;
}

/* The answer is complete, or the connection is of no more use. Does nothing without one. */
static void end_upstream(struct forward *forward, bool is_kept) {
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

static void answer_unknown(struct forward *forward, const char *reason) {
    struct exchange *exchange = forward->exchange;
    struct http1_header retry = {SLICE("Retry-After"), SLICE("1")};
    finish(forward, FORWARD_OVER, LABEL_FORWARD_OUTCOME_UNKNOWN, reason);
    end_upstream(forward, false);
    if (exchange_is_answered(exchange)) {
        exchange_abort(exchange, STATUS_APPEND_OUTCOME_UNKNOWN);
        return;
    }
    exchange_answer_error(exchange,
                          &(struct exchange_error){.status = STATUS_APPEND_OUTCOME_UNKNOWN,
                                                   .message = UNKNOWN_MESSAGE,
                                                   .headers = &retry,
                                                   .header_count = 1});
}

/* ---- attempts ---- */

/* The writer asks for the body. False: the exchange is gone. */
static bool open_body(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    forward->sent = REQUEST_OPEN;
    await_writer(forward);
    exchange_ref(exchange);
    exchange_resume(exchange);
    if (exchange->conn && exchange->request && exchange->request->expect_continue &&
        !forward->is_continued) {
        forward->is_continued = true;
        conn_continue(exchange->conn);
    }
    return exchange_unref(exchange);
}

/* Nothing was stored: tries again for some time. */
static void retry(struct forward *forward, const char *reason) {
    if (now_ms(forward) >= forward->give_up_ms) {
        if (may_have_effect(forward))
            answer_unknown(forward, reason);
        else
            refuse_client(forward, STATUS_NOT_WRITER, reason);
        return;
    }
    log_event(LOG_DEBUG, "forward.retry",
              log_slice("request_id", exchange_request_id(forward->exchange)),
              log_str("writer", forward->writer), log_str("reason", reason));
    metrics_add(METRIC_FORWARD_RETRIES, METRIC_PLAIN, 1);
    http1_answer_release(&forward->answer);
    buffer_release(&forward->body);
    forward->sent = REQUEST_HELD;
    if (is_stream(forward))
        exchange_pause(forward->exchange);
    set_state(forward, FORWARD_PAUSED);
    set_deadline(forward, RETRY_MS);
}

/* The connection failed. Tries again, answers the client, or ends the answer that was begun. */
static void trouble(struct forward *forward, const char *reason) {
    struct exchange *exchange = forward->exchange;
    end_upstream(forward, false);
    if (is_over(forward))
        return;
    if (forward->state == FORWARD_FOLLOWING || forward->state == FORWARD_PASSING ||
        forward->state == FORWARD_FOLLOW_PAUSED)
        return; /* the answer breaks off behind the piece that is on its way */
    if (exchange_is_answered(exchange)) {
        follow(forward);
    } else if (!may_have_effect(forward)) {
        retry(forward, reason);
    } else if (forward->can_repeat) {
        /* The writer may have been silent for long. Another one gets its time once. */
        if (!forward->is_repeated)
            forward->give_up_ms = now_ms(forward) + GIVE_UP_MS;
        forward->is_repeated = true;
        retry(forward, reason);
    } else {
        answer_unknown(forward, reason);
    }
}

/* False: the forward may be gone. */
static bool send_part(struct forward *forward) {
    if (outbound_send(forward->upstream, buffer_slice(&forward->request)) != STATUS_OK) {
        trouble(forward, "no memory");
        return false;
    }
    if (!outbound_is_clear(forward->upstream))
        outbound_want_room(forward->upstream);
    await_writer(forward);
    return true;
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
        .content_length = is_stream(forward) ? request->content_length : exchange->body.size,
        .is_chunked = is_stream(forward) && request->chunked,
        .expects_continue = is_stream(forward) && request->has_body,
    };
    buffer_clear(&forward->request);
    enum status status = forward_head_write(&forward->request, &head);
    if (!is_stream(forward))
        status = buffer_append_slice(&forward->request, buffer_slice(&exchange->body));
    return status;
}

static void exchange_with(struct forward *forward) {
    set_state(forward, FORWARD_EXCHANGING);
    buffer_init(&forward->body, FORWARD_ANSWER_BYTES_MAX);
    if (is_stream(forward) && write_request(forward) != STATUS_OK) {
        trouble(forward, "no memory");
        return;
    }
    forward->sent = is_stream(forward) ? REQUEST_OFFERED : REQUEST_SENT;
    bool is_passed = send_part(forward);
    /* A stream without a body has no 100 Continue. */
    if (is_passed && forward->upstream && is_stream(forward) &&
        !forward->exchange->request->has_body)
        (void)open_body(forward);
}

static void attempt(struct forward *forward) {
    struct forwards *all = forward->all;
    const struct exchange *exchange = forward->exchange;
    struct outbound_target target;
    struct node_address node;
    bool is_known = nodes_writer(all->nodes, &node);
    if (is_known)
        memcpy(forward->writer, node.id, sizeof(forward->writer));
    bool is_operators = is_known && exchange->conn->is_operators && *node.operator_text;
    if (!is_known ||
        !outbound_target_read(&target, slice_of(is_operators ? node.operator_text : node.text))) {
        retry(forward, "no writer is known");
        return;
    }
    if (target.is_secure && !all->group.tls) {
        retry(forward, "TLS is not available");
        return;
    }
    bool is_new = false;
    if (has_room(all, is_stream(forward))) {
        forward->upstream = outbound_reuse(&all->group, &target, &upstream_events, forward);
        is_new = !forward->upstream;
        if (is_new && outbound_open(&forward->upstream, &all->group, &target, &upstream_events,
                                    forward) == STATUS_OK) {
            io_loop_hold(all->loop);
            metrics_add(METRIC_FORWARD_CONNECTIONS, METRIC_PLAIN, 1);
        }
    }
    char key[PRINCIPAL_KEY_BYTES_MAX];
    forward->waiting = (struct fair_item){.cost = 1, .bytes = forward->charged_bytes};
    if (!forward->upstream && fair_queue_add(&all->waiting[is_stream(forward)],
                                             exchange_client(forward->exchange, key).key,
                                             &forward->waiting) != STATUS_OK) {
        refuse_client(forward, STATUS_LIMIT_REACHED, "too many requests wait for the writer");
        return;
    }
    if (!forward->upstream) {
        set_state(forward, FORWARD_WAITING);
        set_deadline(forward, WAIT_MS);
        return;
    }
    all->stream_count += is_stream(forward);
    if (is_new) {
        set_state(forward, FORWARD_CONNECTING);
        set_deadline(forward, CONNECT_MS);
    } else {
        exchange_with(forward);
    }
}

static void on_deadline(struct deadline *deadline) {
    struct forward *forward = container_of(deadline, struct forward, deadline);
    uint64_t at_ms = now_ms(forward);
    struct node_address node;
    if (is_over(forward))
        return;
    switch (forward->state) {
    case FORWARD_WAITING:
        refuse_client(forward, STATUS_LIMIT_REACHED,
                      "no connection to the writer was free in time");
        return;
    case FORWARD_PAUSED:
        attempt(forward);
        return;
    case FORWARD_CONNECTING:
        trouble(forward, "no connection was made in time");
        return;
    case FORWARD_EXCHANGING:
        /* The writer may be stopped, or cut from the database, with the connection still open. */
        if (nodes_writer(forward->all->nodes, &node) && strcmp(node.id, forward->writer) != 0)
            trouble(forward, "another node is the writer now");
        else if (at_ms >= forward->silent_until_ms)
            trouble(forward, "the writer was silent for too long");
        else
            set_deadline(forward, MIN(forward->silent_until_ms - at_ms, WRITER_CHECK_MS));
        return;
    case FORWARD_FOLLOWING:
        answer_unknown(forward, "the log was not read in time");
        return;
    case FORWARD_FOLLOW_PAUSED:
        follow(forward);
        return;
    case FORWARD_PASSING:
    case FORWARD_DISCARDING:
    case FORWARD_OVER:
        return;
    }
}

/* ---- the answer ---- */

static void on_received(void *user, struct slice input) {
    struct forward *forward = user;
    struct http1_answer *answer = &forward->answer;
    if (is_over(forward)) {
        end_upstream(forward, false);
        return;
    }
    if (http1_answer_read(answer, &input, &forward->body) != STATUS_OK) {
        trouble(forward, "the answer is not understood");
        return;
    }
    if (answer->is_continued && forward->sent < REQUEST_OPEN && !open_body(forward))
        return;
    await_writer(forward);
    bool is_refusal = answer->http_status == 503 && !exchange_is_answered(forward->exchange);
    size_t least_bytes = is_refusal ? REFUSAL_BYTES_MAX : 1;
    if (!http1_answer_is_done(answer) && (!answer->has_head || forward->body.size < least_bytes))
        return;
    if (http1_answer_is_done(answer)) {
        end_upstream(forward,
                     answer->keep_alive && input.size == 0 && forward->sent == REQUEST_SENT);
        if (!exchange_is_answered(forward->exchange) &&
            forward_is_not_stored(answer->http_status, buffer_slice(&forward->body)) &&
            !(is_stream(forward) && forward->sent >= REQUEST_OPEN)) {
            forward->sent = REQUEST_HELD;
            retry(forward, "the node has lost the writer role");
            return;
        }
    } else {
        outbound_pause(forward->upstream);
    }
    follow(forward);
}

/* ---- the log ---- */

static void follow_returned(struct call *call) {
    struct forward *forward = container_of(call, struct forward, call);
    struct exchange *exchange = forward->exchange;
    if (!exchange_unref(exchange))
        return;
    assert(forward->state == FORWARD_FOLLOWING);
    if (forward->wait.status == STATUS_OK) {
        pass(forward);
    } else if (clock_mono_ms(&exchange->loop->clock) >= forward->follow_until_ms) {
        answer_unknown(forward, "the log could not be read");
    } else {
        set_state(forward, FORWARD_FOLLOW_PAUSED);
        io_loop_deadline_in(exchange->loop, &forward->deadline, DEADLINE_FORWARD, FOLLOW_PAUSE_MS);
    }
}

/* On the writer's thread. */
static void followed(struct follow_wait *wait) {
    call_return_post(&container_of(wait, struct forward, wait)->call);
}

/* Waits for a pass over the log, then passes on what has arrived. */
static void follow(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    if (forward->state != FORWARD_FOLLOW_PAUSED)
        forward->follow_until_ms = clock_mono_ms(&exchange->loop->clock) + forward->all->silence_ms;
    set_state(forward, FORWARD_FOLLOWING);
    await_writer(forward);
    exchange_ref(exchange);
    forward->call.done = follow_returned;
    call_begin(&forward->call, exchange->loop);
    forward->wait = (struct follow_wait){.done = followed};
    writer_follow_post(exchange->http->writer, &forward->wait);
}

/* ---- passing on ---- */

static void begin_answer(struct forward *forward) {
    struct http1_header fields[HTTP1_ANSWER_HEADERS_MAX];
    const struct http1_answer *answer = &forward->answer;
    struct slice type = SLICE("");
    size_t count = forward_head_fields(answer, fields);
    (void)http1_answer_find(answer, SLICE("content-type"), &type);
    if (forward->exchange->match.route->flags & ROUTE_ITEMS && answer->chunked &&
        answer->http_status == 200)
        forward->lines.form = slice_equal(type, SLICE("application/json")) ? FORWARD_LINES_ARRAY
                                                                           : FORWARD_LINES_NDJSON;
    /* A body that the writer refused is not read, so the connection cannot be reused. */
    if (!forward->upstream && is_stream(forward) && forward->sent != REQUEST_SENT)
        forward->exchange->conn->keep_alive = false;
    exchange_begin_forwarded(forward->exchange, answer->http_status, fields, count,
                             answer->chunked ? NULL : &answer->content_length);
}

/* The rest of the body was dropped. */
static void discarded(struct forward *forward) {
    /* The last line is still being sent: the sent event follows. */
    if (exchange_is_sending(forward->exchange))
        return;
    set_state(forward, FORWARD_OVER);
    exchange_end(forward->exchange,
                 forward->lines.form == FORWARD_LINES_ARRAY ? SLICE("]\n") : SLICE(""));
}

/* The answer ends with the first item of unknown outcome. The client's body is
 * read to its end, because most clients write all of it before they read. */
static void pass_broken(struct forward *forward) {
    static const char reason[] = "the writer was lost within its answer";
    struct exchange *exchange = forward->exchange;
    struct forward_lines *lines = &forward->lines;
    struct buffer *out = &forward->body;
    const struct exchange_error error = {.status = STATUS_APPEND_OUTCOME_UNKNOWN,
                                         .message = "The writer was lost. This item and all later "
                                                    "ones may be stored."};
    bool has_lines = lines->form != FORWARD_LINES_NONE;
    forward->body.size =
        has_lines ? forward_lines_take(lines, buffer_slice(&forward->body), false) : 0;
    /* {"index":N,"status":503,"error":{…}}: this item and all later ones are of unknown outcome. */
    if (has_lines && lines->form == FORWARD_LINES_ARRAY && !lines->has_passed)
        buffer_append_byte(out, '[');
    buffer_printf(
        out, "{\"index\":%llu,\"status\":503,\"error\":", (unsigned long long)lines->next_index);
    buffer_note(out, exchange_error_write(exchange, &error, out));
    buffer_append_slice(out, SLICE("}\n"));
    if (!has_lines || lines->is_inside || buffer_status(out) != STATUS_OK) {
        finish(forward, FORWARD_OVER, LABEL_FORWARD_OUTCOME_UNKNOWN, reason);
        exchange_abort(exchange, STATUS_APPEND_OUTCOME_UNKNOWN);
        return;
    }
    finish(forward, FORWARD_DISCARDING, LABEL_FORWARD_OUTCOME_UNKNOWN, reason);
    exchange_ref(exchange);
    bool more = exchange_send(exchange, buffer_slice(&forward->body));
    if (!exchange_unref(exchange))
        return;
    if (more && forward->sent == REQUEST_SENT)
        discarded(forward);
    else if (forward->sent != REQUEST_SENT)
        exchange_resume(exchange);
}

static void pass(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    struct slice text = buffer_slice(&forward->body);
    bool has_items = exchange->match.route->flags & ROUTE_ITEMS;
    if (is_broken(forward) && !exchange_is_answered(exchange) && !has_items) {
        answer_unknown(forward, "the writer was lost within its answer");
        return;
    }
    if (!exchange_is_answered(exchange)) {
        /* Remembers why the writer refuses the client, for the operator of this node. */
        enum status refusal = forward_refusal(forward->answer.http_status, text);
        if (refusal != STATUS_OK)
            exchange_log_refusal(exchange, refusal, (struct slice){NULL, 0});
        begin_answer(forward);
    }
    if (is_broken(forward)) {
        pass_broken(forward);
        return;
    }
    if (!forward->upstream) {
        finish(forward, FORWARD_OVER, LABEL_FORWARD_OUTCOME_ANSWERED, "");
        exchange_end(exchange, text);
        return;
    }
    if (forward->lines.form != FORWARD_LINES_NONE)
        text.size = forward_lines_take(&forward->lines, text, text.size > LINE_BYTES_MAX);
    set_state(forward, FORWARD_PASSING);
    deadline_drop(&forward->deadline);
    if (text.size == 0) {
        passed(forward);
        return;
    }
    exchange_ref(exchange);
    bool more = exchange_send(exchange, text);
    buffer_consume(&forward->body, text.size);
    if (exchange_unref(exchange) && more)
        passed(forward);
}

/* A piece was written to the client. */
static void passed(struct forward *forward) {
    if (is_broken(forward)) {
        pass_broken(forward);
        return;
    }
    set_state(forward, FORWARD_EXCHANGING);
    await_writer(forward);
    outbound_resume(forward->upstream);
}

/* ---- the body ---- */

static void on_body(struct exchange *exchange, struct slice piece) {
    struct forward *forward = exchange->work;
    if (!forward->upstream)
        return;
    assert(passes_body(forward));
    forward->sent = REQUEST_SENDING;
    buffer_clear(&forward->request);
    enum status status = exchange->request->chunked ? http1_chunk(&forward->request, piece)
                                                    : buffer_append_slice(&forward->request, piece);
    if (status != STATUS_OK) {
        trouble(forward, "no memory");
        return;
    }
    if (send_part(forward) && forward->upstream && !outbound_is_clear(forward->upstream))
        exchange_pause(exchange);
}

static void on_body_end(struct exchange *exchange) {
    struct forward *forward = exchange->work;
    forward->sent = REQUEST_SENT;
    if (forward->state == FORWARD_DISCARDING) {
        discarded(forward);
        return;
    }
    exchange_watch_end(exchange);
    if (!forward->upstream)
        return;
    if (!exchange->request->chunked) {
        await_writer(forward);
        return;
    }
    buffer_clear(&forward->request);
    if (http1_chunk_end(&forward->request) == STATUS_OK)
        (void)send_part(forward);
    else
        trouble(forward, "no memory");
}

static void on_sent(struct exchange *exchange) {
    struct forward *forward = exchange->work;
    if (forward->state == FORWARD_DISCARDING && forward->sent == REQUEST_SENT)
        discarded(forward);
    else if (forward->state == FORWARD_PASSING)
        passed(forward);
}

static const struct exchange_stream forward_stream = {
    .body = on_body,
    .body_end = on_body_end,
    .sent = on_sent,
};

/* ---- events of the connection ---- */

static void on_opened(void *user) {
    struct forward *forward = user;
    if (is_over(forward))
        end_upstream(forward, false);
    else
        exchange_with(forward);
}

static void on_has_room(void *user) {
    struct forward *forward = user;
    struct exchange *exchange = forward->exchange;
    if (forward->state == FORWARD_EXCHANGING)
        await_writer(forward);
    if (!is_over(forward) && is_stream(forward) && passes_body(forward))
        exchange_resume(exchange);
}

static void on_lost(void *user, const char *reason) {
    struct forward *forward = user;
    /* It closed by itself. */
    (void)take_upstream(forward);
    trouble(forward, reason);
}

static const struct outbound_events upstream_events = {
    .opened = on_opened,
    .received = on_received,
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
    if (forward->state != FORWARD_DISCARDING && forward->state != FORWARD_OVER)
        finish(forward, FORWARD_OVER, LABEL_FORWARD_OUTCOME_ABANDONED, "the client disconnected");
    deadline_drop(&forward->deadline);
    end_upstream(forward, false);
    forward->all->request_bytes -= forward->charged_bytes;
    buffer_release(&forward->request);
    buffer_release(&forward->body);
    http1_answer_release(&forward->answer);
    free(forward);
}

enum forward_choice forward_choose(const struct exchange *exchange) {
    const struct forwards *all = conn_loop(exchange->conn)->forwards;
    struct slice sender;
    if (!all || !(exchange->match.route->flags & ROUTE_WRITER) ||
        writer_has_role(exchange->http->writer))
        return FORWARD_HERE;
    if (http1_header_find(exchange->request, FORWARDED_FIELD, &sender))
        return FORWARD_REFUSE;
    /* The answer of a node alone names its trouble with the store. The row of the writer may come
     * later than the word of the store that another node has the role. */
    return nodes_has_others(all->nodes) || writer_is_elsewhere(exchange->http->writer)
               ? FORWARD_PASS
               : FORWARD_HERE;
}

void forward_begin(struct exchange *exchange) {
    struct forward *forward = calloc(1, sizeof(*forward));
    if (!forward) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    forward->exchange = exchange;
    forward->all = conn_loop(exchange->conn)->forwards;
    forward->give_up_ms = now_ms(forward) + GIVE_UP_MS;
    http1_answer_init(&forward->answer, &node_peer);
    buffer_init(&forward->body, FORWARD_ANSWER_BYTES_MAX);
    buffer_init(&forward->request, FORWARD_OUT_BYTES_MAX);
    exchange->work = forward;
    exchange->work_free = work_free;
    exchange->stream = &forward_stream;
    if (is_stream(forward)) {
        exchange_pause(exchange);
    } else {
        struct forwards *all = forward->all;
        size_t bytes = exchange->body.size + FORWARD_OUT_BYTES_MAX;
        enum status status = STATUS_LIMIT_REACHED;
        if (bytes <= FORWARD_REQUESTS_BYTES_MAX - all->request_bytes) {
            forward->charged_bytes = bytes;
            all->request_bytes += bytes;
            buffer_init(&forward->request, bytes);
            forward->can_repeat = exchange->match.route->flags & ROUTE_APPEND &&
                                  forward_has_identity(buffer_slice(&exchange->body));
            status = write_request(forward);
            buffer_release(&exchange->body);
        }
        if (status != STATUS_OK) {
            refuse_client(forward, STATUS_LIMIT_REACHED, "too many bytes wait for the writer");
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
    for (size_t i = 0; i < FORWARD_KINDS; i++)
        fair_queue_init(&opened->waiting[i], 1, FORWARD_WAITING_MAX / 4,
                        FORWARD_REQUESTS_BYTES_MAX);
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
    for (size_t i = 0; forwards && i < FORWARD_KINDS; i++)
        fair_queue_release(&forwards->waiting[i]);
    free(forwards);
}

void forwards_drain(struct forwards *forwards) {
    if (!forwards)
        return;
    deadline_drop(&forwards->idle);
    outbound_close_idle(&forwards->group, 0);
}
