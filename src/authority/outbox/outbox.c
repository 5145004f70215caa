#include "authority/outbox/outbox.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"

struct outbox {
    struct append_group group; /* a request for each row */
    struct append_order order;
    struct outbox_row_reader reader;
    struct store_outbox_query query;
    struct store_outbox_limit limits[OUTBOX_KIND_COUNT];
    struct append_request requests[OUTBOX_ROWS_MAX];
    int64_t ids[OUTBOX_ROWS_MAX];      /* of the requests */
    int64_t answered[OUTBOX_ROWS_MAX]; /* ids of the rows that the commit removes */
    size_t answered_count;
    struct store_outbox_rejection rejections[OUTBOX_ROWS_MAX];
    enum status reasons[OUTBOX_ROWS_MAX]; /* of the rejections */
    size_t rejection_count;
    bool is_progressing;
    bool is_failing; /* logged once for each outage */
};

/* The writer answers the group to no one: what is left of it is in the batch. */
static void ignore_answer(struct append_group *group) {
    (void)group;
}

enum status outbox_open(struct outbox **outbox, size_t row_bytes_max,
                        const struct policy_table *policies) {
    struct outbox *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->query = (struct store_outbox_query){
        .row_max = OUTBOX_ROWS_MAX,
        .row_bytes_max = row_bytes_max,
        .bytes_max = row_bytes_max > OUTBOX_BATCH_BYTES ? row_bytes_max : OUTBOX_BATCH_BYTES,
        .limits = made->limits,
        .limit_count = OUTBOX_KIND_COUNT,
    };
    outbox_limits_of(policies, made->limits);
    arena_init(&made->group.arena, OUTBOX_ARENA_BYTES_MAX);
    append_order_init(&made->order);
    outbox_row_reader_init(&made->reader, row_bytes_max);
    made->group.requests = made->requests;
    made->group.order = &made->order;
    made->group.done = ignore_answer;
    *outbox = made;
    return STATUS_OK;
}

void outbox_close(struct outbox *outbox) {
    if (!outbox)
        return;
    outbox_row_reader_release(&outbox->reader);
    append_order_release(&outbox->order);
    arena_release(&outbox->group.arena);
    free(outbox);
}

struct append_group *outbox_group(struct outbox *outbox) {
    return &outbox->group;
}

bool outbox_is_progressing(const struct outbox *outbox) {
    return outbox->is_progressing;
}

/* ---- reading ---- */

static void add_row(void *user, const struct store_outbox_row *row) {
    struct outbox *outbox = user;
    size_t index = outbox->group.request_count;
    assert(index < OUTBOX_ROWS_MAX);
    struct append_request *request = &outbox->requests[index];
    if (index == 0) {
        metrics_set(METRIC_OUTBOX_WAITING_ROWS, METRIC_PLAIN, row->waiting_count);
        metrics_set(METRIC_OUTBOX_OLDEST_AGE_SECONDS, METRIC_PLAIN, row->age_ms * CLOCK_NS_PER_MS);
    }
    *request = (struct append_request){.kind = APPEND_KIND_COUNT};
    request->status = outbox_row_read(&outbox->reader, row, &outbox->group.arena, request);
    request->is_rate_free = true;
    outbox->ids[index] = row->id;
    outbox->group.request_count++;
}

enum status outbox_read(struct outbox *outbox, struct store_session *session, size_t row_max) {
    assert(row_max <= OUTBOX_ROWS_MAX);
    outbox->query.row_max = row_max;
    if (outbox->group.request_count > 0) {
        arena_reset(&outbox->group.arena);
        append_order_release(&outbox->order);
        append_order_init(&outbox->order);
    }
    outbox->group.request_count = 0;
    outbox->is_progressing = false;
    enum status status = store_read_outbox(session, &outbox->query, outbox, add_row);
    if (status != STATUS_OK && !outbox->is_failing)
        log_event(LOG_ERROR, "outbox.read_failed", log_str("status", status_code(status)),
                  log_str("error", store_session_error(session)),
                  log_str("effect", "events appended by SQL wait; other appends are taken"));
    outbox->is_failing = status != STATUS_OK;
    if (status == STATUS_OK && outbox->group.request_count == 0) {
        metrics_set(METRIC_OUTBOX_WAITING_ROWS, METRIC_PLAIN, 0);
        metrics_set(METRIC_OUTBOX_OLDEST_AGE_SECONDS, METRIC_PLAIN, 0);
    }
    return status;
}

/* ---- answering ---- */

/* Whether a later attempt may succeed without any change of the row. */
static bool is_for_now(enum status status) {
    int http = status_http(status);
    return http == 503 || http == 429 || status == STATUS_NOT_ATTEMPTED;
}

void outbox_settle(struct outbox *outbox, struct batch *batch) {
    outbox->answered_count = outbox->rejection_count = 0;
    for (size_t i = 0; i < outbox->group.request_count; i++) {
        const struct append_request *request = &outbox->requests[i];
        enum status status = request->status;
        if (status != STATUS_OK && is_for_now(status))
            continue;
        outbox->answered[outbox->answered_count++] = outbox->ids[i];
        if (status == STATUS_OK)
            continue;
        const char *message = request->refusal.message;
        outbox->reasons[outbox->rejection_count] = status;
        outbox->rejections[outbox->rejection_count++] = (struct store_outbox_rejection){
            .id = outbox->ids[i],
            .code = slice_of(status_code(status)),
            .message = slice_of(message ? message : status_message(status)),
        };
    }
    batch->outbox_ids = outbox->answered;
    batch->outbox_count = outbox->answered_count;
    batch->rejections = outbox->rejections;
    batch->rejection_count = outbox->rejection_count;
}

void outbox_committed(struct outbox *outbox) {
    metrics_add(METRIC_OUTBOX_ROWS, METRIC_PLAIN, outbox->answered_count);
    for (size_t i = 0; i < outbox->rejection_count; i++)
        metrics_add(METRIC_OUTBOX_REJECTED, METRIC_LABELS(outbox->reasons[i]), 1);
    outbox->is_progressing = outbox->answered_count > 0;
}
