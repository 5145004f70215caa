/* A topic as an event stream: positions walk on as fast as the peer reads, and no faster. What is
 * being written is all that is held for it. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "delivery/stale.h"
#include "server/entitle.h"
#include "server/handlers.h"
#include "server/server.h"
#include "server/store_read.h"
#include "server/topic_reader.h"
#include "topic/topic_name.h"
#include "wire/json.h"
#include "wire/sse.h"

#define BATCH_FRAMES      256
#define BATCH_BYTES       (64u << 10)
#define PIECE_BYTES_MAX   (128u << 20)
#define LAST_ID_BYTES_MAX 20

struct sse {
    struct topic_reader reader; /* first: the work of the exchange */
    bool is_told;               /* of the bootstrap it began with */
    bool is_ending;
};

static void sse_free(void *work) {
    struct sse *sse = work;
    topic_reader_release(&sse->reader);
    free(sse);
}

/* False: touch the exchange no more until sent. */
static bool send_piece(struct sse *sse, struct buffer *piece, enum status status) {
    struct exchange *exchange = sse->reader.exchange;
    bool more = false;
    if (status != STATUS_OK)
        exchange_abort(exchange);
    else
        more = exchange_send(exchange, buffer_slice(piece));
    buffer_release(piece);
    return more;
}

static bool send_frames(struct sse *sse, struct delivery_batch *batch) {
    struct buffer piece;
    enum status status = STATUS_OK;
    buffer_init(&piece, PIECE_BYTES_MAX);
    for (size_t i = 0; status == STATUS_OK && i < batch->count; i++) {
        struct slice text;
        status = frame_encoded(batch->frames[i], &sse_form, &text);
        if (status == STATUS_OK)
            status = buffer_append_slice(&piece, text);
    }
    delivery_batch_release(batch);
    /* A batch without a frame for this principal. */
    if (status == STATUS_OK && piece.size == 0)
        return true;
    return send_piece(sse, &piece, status);
}

static bool send_stale(struct sse *sse) {
    struct subscription *subscription = &sse->reader.subscription;
    struct buffer body;
    struct buffer piece;
    buffer_init(&body, 65536);
    buffer_init(&piece, 65536);
    enum status status = stale_write_json(&body, &(struct stale_topic){subscription->options.topic,
                                                                       subscription->options.policy,
                                                                       &subscription->continuity});
    if (status == STATUS_OK)
        status = sse_event(&piece, &(struct sse_event){.event = SLICE("stale_cursor"),
                                                       .data = buffer_slice(&body)});
    buffer_release(&body);
    subscription_restart(subscription);
    sse->is_told = false;
    return send_piece(sse, &piece, status);
}

static bool send_bootstrap(struct sse *sse) {
    const struct subscription *subscription = &sse->reader.subscription;
    struct buffer body;
    struct buffer piece;
    buffer_init(&body, 4096);
    buffer_init(&piece, 4096);
    enum status status = buffer_append_slice(&body, SLICE("{\"topic\":"));
    if (status == STATUS_OK)
        status = json_write_string(&body, subscription->options.topic);
    if (status == STATUS_OK)
        status = buffer_printf(&body, ",\"from_seq\":%" PRIu64 ",\"truncated\":%s}",
                               subscription->bootstrap.from_seq,
                               subscription->bootstrap.truncated ? "true" : "false");
    if (status == STATUS_OK)
        status = sse_event(
            &piece, &(struct sse_event){.event = SLICE("bootstrap"), .data = buffer_slice(&body)});
    buffer_release(&body);
    sse->is_told = true;
    return send_piece(sse, &piece, status);
}

static void await_news(struct sse *sse) {
    io_loop_deadline(sse->reader.exchange->loop, &sse->reader.member.deadline, DEADLINE_HEARTBEAT);
}

/* One step; true when another may follow at once. */
static bool pump_once(struct sse *sse) {
    struct subscription *subscription = &sse->reader.subscription;
    struct delivery_batch batch;
    if (subscription->is_open && subscription->is_bootstrap && !sse->is_told)
        return send_bootstrap(sse);
    batch.count_max = BATCH_FRAMES;
    batch.bytes_max = BATCH_BYTES;
    switch (subscription_next(subscription, &batch)) {
    case SUBSCRIPTION_FRAMES:
        return send_frames(sse, &batch);
    case SUBSCRIPTION_WAIT:
        await_news(sse);
        return false;
    case SUBSCRIPTION_READ:
        topic_reader_read(&sse->reader);
        return false;
    case SUBSCRIPTION_STALE:
        return send_stale(sse);
    case SUBSCRIPTION_FAILED:
        log_event(LOG_WARN, "sse.failed", log_str("status", status_code(subscription->status)));
        exchange_abort(sse->reader.exchange);
        return false;
    }
    return false;
}

static void pump(struct topic_reader *reader) {
    struct sse *sse = (struct sse *)reader;
    if (exchange_is_sending(reader->exchange))
        return;
    if (sse->is_ending) {
        exchange_end(reader->exchange, (struct slice){NULL, 0});
        return;
    }
    deadline_drop(&reader->member.deadline);
    while (pump_once(sse))
        continue;
}

static void heartbeat(struct topic_reader *reader) {
    struct sse *sse = (struct sse *)reader;
    struct buffer piece;
    buffer_init(&piece, 64);
    enum status status = sse_comment(&piece, SLICE(" heartbeat"));
    if (exchange_is_sending(reader->exchange))
        buffer_release(&piece);
    else if (send_piece(sse, &piece, status))
        await_news(sse);
}

static void sse_sent(struct exchange *exchange) {
    struct sse *sse = exchange->work;
    if (!sse->reader.subscription.is_reading)
        pump(&sse->reader);
}

static const struct exchange_stream sse_stream = {.sent = sse_sent};

/* Clients come back by themselves; spread, since all are told at once. */
static void sse_drain(struct exchange *exchange) {
    struct sse *sse = exchange->work;
    sse->is_ending = true;
    if (!sse->reader.subscription.is_reading)
        pump(&sse->reader);
}

/* The header of a client that reconnects wins over the query it first came with. */
static enum status read_cursor(const struct exchange *exchange, bool *has_cursor,
                               uint64_t *after_seq) {
    struct slice last_id;
    uint64_t absent = UINT64_MAX;
    *after_seq = absent;
    if (http1_header_find(exchange->request, SLICE("last-event-id"), &last_id) &&
        last_id.size > 0) {
        const struct json_limits limits = {LAST_ID_BYTES_MAX, 0};
        struct json_value value;
        *has_cursor = true;
        return json_parse(last_id, &limits, &value) == STATUS_OK &&
                       value.raw.size == last_id.size &&
                       json_u64(value, JSON_INTEGER_MAX, after_seq)
                   ? STATUS_OK
                   : STATUS_INVALID_CURSOR;
    }
    enum status status = query_number(exchange, SLICE("after_seq"), 0, JSON_INTEGER_MAX, after_seq);
    *has_cursor = *after_seq != absent;
    return status == STATUS_INVALID_REQUEST ? STATUS_INVALID_CURSOR : status;
}

static void sse_begin(struct sse *sse) {
    struct exchange *exchange = sse->reader.exchange;
    const struct http1_header headers[] = {
        {SLICE("Content-Type"), SLICE("text/event-stream")},
        {SLICE("Cache-Control"), SLICE("no-cache, no-transform")},
        {SLICE("X-Accel-Buffering"), SLICE("no")}, /* proxies hold streams back otherwise */
    };
    struct buffer piece;
    exchange->stream = &sse_stream;
    exchange->drain = sse_drain;
    exchange_begin_with(exchange, 200, headers, sizeof(headers) / sizeof(headers[0]));
    if (exchange_is_head(exchange)) {
        exchange_end(exchange, (struct slice){NULL, 0});
        return;
    }
    exchange_watch_end(exchange);
    buffer_init(&piece, 64);
    enum status status = sse_retry(&piece, topic_reader_backoff_ms(exchange));
    if (send_piece(sse, &piece, status))
        pump(&sse->reader);
}

static void sse_open(struct exchange *exchange) {
    uint64_t after_seq;
    bool has_cursor;
    struct sse *sse = NULL;
    enum status status = read_cursor(exchange, &has_cursor, &after_seq);
    if (status == STATUS_OK && atomic_load(&exchange->server->draining))
        status = STATUS_SHUTTING_DOWN;
    if (status == STATUS_OK) {
        sse = calloc(1, sizeof(*sse));
        status = sse ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    if (status == STATUS_OK) {
        exchange->work = sse;
        exchange->work_free = sse_free;
        sse->reader.go_on = pump;
        sse->reader.timed_out = heartbeat;
        status = topic_reader_open(&sse->reader, exchange, has_cursor, after_seq);
    }
    if (status == STATUS_OK)
        sse_begin(sse);
    else
        exchange_answer_status(exchange, status);
}

void handle_sse(struct exchange *exchange) {
    enum status status = topic_name_check(exchange->parameters[0]);
    if (status == STATUS_OK)
        entitle(exchange, exchange->parameters[0], sse_open);
    else
        exchange_answer_status(exchange, status);
}
