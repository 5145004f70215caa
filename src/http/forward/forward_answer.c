/* The way back from the writer: a piece is read, waits for a pass over the log, and is passed on.
 * The next piece is read when the client has taken this one. */
#include <assert.h>

#include "base/limits.h"
#include "http/exchange.h"
#include "http/forward/forward_head.h"
#include "http/forward/forward_state.h"

#define FOLLOW_PAUSE_MS 100
/* An answer of 503 up to this size is read to its end: it may allow another attempt. */
#define REFUSAL_BYTES_MAX 4096
/* A longer line is passed on in pieces. */
#define LINE_BYTES_MAX (FORWARD_ANSWER_BYTES_MAX - LOOP_READ_BYTES)

#define UNKNOWN_MESSAGE "The writer did not confirm the request, which may have taken effect."

void forward_answer_unknown(struct forward *forward, const char *reason) {
    struct exchange *exchange = forward->exchange;
    struct http1_header retry = {SLICE("Retry-After"), SLICE("1")};
    forward_count(forward, LABEL_FORWARD_OUTCOME_UNKNOWN, reason);
    forward_end_upstream(forward, false);
    forward->state = FORWARD_OVER;
    deadline_drop(&forward->deadline);
    if (exchange->answered) {
        exchange_abort(exchange, STATUS_APPEND_OUTCOME_UNKNOWN);
        return;
    }
    exchange_answer_error(exchange,
                          &(struct exchange_error){.status = STATUS_APPEND_OUTCOME_UNKNOWN,
                                                   .message = UNKNOWN_MESSAGE,
                                                   .headers = &retry,
                                                   .header_count = 1});
}

/* ---- reading ---- */

/* The node that answered has no writer role any more, and stored nothing. */
static bool is_not_stored(const struct forward *forward) {
    struct slice body = buffer_slice(&forward->body);
    if (forward->answer.http_status != 503 || (forward->is_stream && forward->is_body_open))
        return false;
    return slice_starts(body, SLICE("{\"error\":\"not_writer\"")) ||
           slice_starts(body, SLICE("{\"error\":\"writer_lost\""));
}

static bool awaits_more(const struct forward *forward) {
    const struct http1_answer *answer = &forward->answer;
    bool is_refusal = answer->http_status == 503 && !forward->exchange->answered;
    if (http1_answer_is_done(answer))
        return false;
    return !answer->has_head || forward->body.size == 0 ||
           (is_refusal && forward->body.size < REFUSAL_BYTES_MAX);
}

void forward_received(void *user, struct slice input) {
    struct forward *forward = user;
    struct http1_answer *answer = &forward->answer;
    if (forward_is_over(forward)) {
        forward_end_upstream(forward, false);
        return;
    }
    if (http1_answer_read(answer, &input, &forward->body) != STATUS_OK) {
        forward_trouble(forward, "the answer is not understood");
        return;
    }
    if (answer->is_continued && !forward->is_body_open && !forward_open_body(forward))
        return;
    forward_await(forward);
    if (awaits_more(forward))
        return;
    if (http1_answer_is_done(answer)) {
        forward_end_upstream(forward,
                             answer->keep_alive && input.size == 0 && forward->is_request_over);
        if (!forward->exchange->answered && is_not_stored(forward)) {
            /* An attempt before this one may still be stored. */
            forward->may_have_effect = forward->is_repeated;
            forward_retry(forward, "the node has lost the writer role");
            return;
        }
    } else {
        outbound_pause(forward->upstream);
    }
    forward_follow(forward);
}

/* ---- the log ---- */

static void pass(struct forward *forward);

static void follow_returned(struct call *call) {
    struct forward *forward = container_of(call, struct forward, call);
    struct exchange *exchange = forward->exchange;
    if (!exchange_unref(exchange))
        return;
    assert(forward->state == FORWARD_FOLLOWING);
    if (forward->wait.status == STATUS_OK) {
        pass(forward);
    } else if (clock_mono_ms(&exchange->loop->clock) >= forward->follow_until_ms) {
        forward_answer_unknown(forward, "the log could not be read");
    } else {
        forward->state = FORWARD_FOLLOW_PAUSED;
        io_loop_deadline_in(exchange->loop, &forward->deadline, DEADLINE_FORWARD, FOLLOW_PAUSE_MS);
    }
}

/* On the writer's thread. */
static void followed(struct follow_wait *wait) {
    call_return_post(&container_of(wait, struct forward, wait)->call);
}

void forward_follow(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    if (forward->state != FORWARD_FOLLOW_PAUSED)
        forward->follow_until_ms = clock_mono_ms(&exchange->loop->clock) + forward->all->silence_ms;
    forward->state = FORWARD_FOLLOWING;
    forward_await(forward);
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
    forward->has_lines = forward->exchange->match.route->flags & ROUTE_ITEMS && answer->chunked &&
                         answer->http_status == 200;
    forward->lines.is_array = slice_equal(type, SLICE("application/json"));
    /* A body that the writer refused is not read, so the connection cannot be reused. */
    if (!forward->upstream && forward->is_stream && !forward->is_body_over)
        forward->exchange->conn->keep_alive = false;
    exchange_begin_forwarded(forward->exchange, answer->http_status, fields, count,
                             answer->chunked ? NULL : &answer->content_length);
}

/* Remembers why the writer refuses the client, for the operator of this node. */
static void note_refusal(struct forward *forward) {
    static const struct slice start = SLICE("{\"error\":\"");
    struct slice body = buffer_slice(&forward->body);
    if (forward->answer.http_status < 400 || !slice_starts(body, start))
        return;
    body = slice_from(body, start.size);
    for (int status = 0; status < STATUS_COUNT; status++) {
        struct slice code = slice_of(status_code((enum status)status));
        if (slice_starts(body, code) && body.size > code.size && body.data[code.size] == '"')
            exchange_log_refusal(forward->exchange, (enum status)status, (struct slice){NULL, 0});
    }
}

/* {"index":N,"status":503,"error":{…}}: this item and all later ones are of unknown outcome. */
static enum status write_unknown_item(struct forward *forward) {
    struct buffer *out = &forward->body;
    const struct exchange_error error = {.status = STATUS_APPEND_OUTCOME_UNKNOWN,
                                         .message = "The writer was lost. This item and all later "
                                                    "ones may be stored."};
    bool is_first = forward->lines.is_array && !forward->lines.has_passed;
    enum status status = is_first ? buffer_append_byte(out, '[') : STATUS_OK;
    if (status == STATUS_OK)
        status = buffer_printf(out, "{\"index\":%llu,\"status\":503,\"error\":",
                               (unsigned long long)forward->lines.next_index);
    if (status == STATUS_OK)
        status = exchange_error_write(forward->exchange, &error, out);
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("}\n")) : status;
}

static struct slice tail_of(const struct forward *forward) {
    return forward->lines.is_array ? SLICE("]\n") : SLICE("");
}

void forward_discarded(struct forward *forward) {
    /* The last line is still being sent: the sent event follows. */
    if (exchange_is_sending(forward->exchange))
        return;
    forward->state = FORWARD_OVER;
    exchange_end(forward->exchange, tail_of(forward));
}

/* The writer is lost. The answer ends with the first item of unknown outcome. The client's body is
 * read to its end, because most clients write all of it before they read. */
static void pass_broken(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    forward_count(forward, LABEL_FORWARD_OUTCOME_UNKNOWN, "the writer was lost within its answer");
    deadline_drop(&forward->deadline);
    forward->body.size =
        forward->has_lines
            ? forward_lines_take(&forward->lines, buffer_slice(&forward->body), false)
            : 0;
    if (!forward->has_lines || forward->lines.is_inside ||
        write_unknown_item(forward) != STATUS_OK) {
        forward->state = FORWARD_OVER;
        exchange_abort(exchange, STATUS_APPEND_OUTCOME_UNKNOWN);
        return;
    }
    forward->state = FORWARD_DISCARDING;
    exchange_ref(exchange);
    bool more = exchange_send(exchange, buffer_slice(&forward->body));
    if (!exchange_unref(exchange))
        return;
    if (more && forward->is_body_over)
        forward_discarded(forward);
    else if (!forward->is_body_over)
        exchange_resume(exchange);
}

static void pass(struct forward *forward) {
    struct exchange *exchange = forward->exchange;
    struct slice text = buffer_slice(&forward->body);
    bool has_items = exchange->match.route->flags & ROUTE_ITEMS;
    if (forward->is_broken && !exchange->answered && !has_items) {
        forward_answer_unknown(forward, "the writer was lost within its answer");
        return;
    }
    if (!exchange->answered) {
        note_refusal(forward);
        begin_answer(forward);
    }
    if (forward->is_broken) {
        pass_broken(forward);
        return;
    }
    if (!forward->upstream) {
        forward_count(forward, LABEL_FORWARD_OUTCOME_ANSWERED, "");
        forward->state = FORWARD_OVER;
        deadline_drop(&forward->deadline);
        exchange_end(exchange, text);
        return;
    }
    if (forward->has_lines)
        text.size = forward_lines_take(&forward->lines, text, text.size > LINE_BYTES_MAX);
    forward->state = FORWARD_PASSING;
    deadline_drop(&forward->deadline);
    if (text.size == 0) {
        forward_passed(forward);
        return;
    }
    exchange_ref(exchange);
    bool more = exchange_send(exchange, text);
    buffer_consume(&forward->body, text.size);
    if (exchange_unref(exchange) && more)
        forward_passed(forward);
}

void forward_passed(struct forward *forward) {
    forward->state = FORWARD_EXCHANGING;
    if (forward->is_broken) {
        pass_broken(forward);
        return;
    }
    forward_await(forward);
    outbound_resume(forward->upstream);
}
