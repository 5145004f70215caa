#include "authority/outbox.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "wire/object_writer.h"

/* Room for the members around a row's texts, which escapes may make six times as long. */
#define BODY_BYTES_MAX(row_bytes) (6 * (row_bytes) + 1024)

struct outbox {
    struct append_group group; /* a request for each row */
    struct append_order order;
    struct outbox_row_reader reader;
    struct store_outbox_query query;
    struct store_outbox_limit limits[OUTBOX_KIND_COUNT];
    const struct policy_table *policies;
    struct append_request requests[OUTBOX_ROWS_MAX];
    int64_t ids[OUTBOX_ROWS_MAX];      /* the rows of the requests */
    int64_t answered[OUTBOX_ROWS_MAX]; /* ids of the rows that the commit removes */
    size_t answered_count;
    struct store_outbox_rejection rejections[OUTBOX_ROWS_MAX];
    enum status reasons[OUTBOX_ROWS_MAX]; /* the reasons of the rejections */
    size_t rejection_count;
    bool is_progressing;
    bool is_failing; /* logged once for each outage */
};

/* ---- a row ---- */

static const struct {
    const char *name;
    enum append_kind kind;
    enum policy_row policy;
} kinds[OUTBOX_KIND_COUNT] = {
    {"topic", APPEND_TOPIC_EVENT, POLICY_FALLBACK},
    {"run", APPEND_RUN_EVENT, POLICY_RUN_EVENTS},
    {"worker", APPEND_WORKER_EVENT, POLICY_WORKER_LIFECYCLE},
    {"notification", APPEND_NOTIFICATION, POLICY_NOTIFICATIONS},
};

void outbox_row_reader_init(struct outbox_row_reader *reader, size_t row_bytes_max) {
    reader->row_bytes_max = row_bytes_max;
    append_parser_init(&reader->parser, BODY_BYTES_MAX(row_bytes_max));
    buffer_init(&reader->body, BODY_BYTES_MAX(row_bytes_max));
}

void outbox_row_reader_release(struct outbox_row_reader *reader) {
    buffer_release(&reader->body);
    append_parser_release(&reader->parser);
}

/* A row is read as the body of the endpoint that appends the same. The payload is parsed alone
 * first, so that its text cannot add members to the body. */
enum status outbox_row_read(struct outbox_row_reader *reader, const struct store_outbox_row *row,
                            struct arena *arena, struct append_request *request) {
    const struct json_limits body_limits = {BODY_BYTES_MAX(reader->row_bytes_max), JSON_DEPTH_MAX};
    const struct json_limits payload_limits = {reader->row_bytes_max, JSON_DEPTH_MAX - 1};
    struct json_value body, payload = {0};
    enum append_kind kind = APPEND_KIND_COUNT;
    enum status status = STATUS_OK;
    if (row->is_oversized)
        return STATUS_PAYLOAD_TOO_LARGE;
    /* A node that is not the writer left this row. No function for users makes such a row. */
    bool is_audit = slice_equal(row->kind, SLICE("audit")) && row->event_type.data &&
                    append_type_is_reserved(row->event_type);
    if (is_audit)
        kind = APPEND_AUDIT_EVENT;
    for (size_t i = 0; i < OUTBOX_KIND_COUNT; i++)
        if (slice_equal(row->kind, slice_of(kinds[i].name)))
            kind = kinds[i].kind;
    if (kind == APPEND_KIND_COUNT) {
        request->refusal.message = "kind must be topic, run, worker or notification.";
        return STATUS_INVALID_REQUEST;
    }
    if (row->payload.data)
        status = json_parse(row->payload, &payload_limits, &payload);
    if (status != STATUS_OK)
        return status;
    buffer_clear(&reader->body);
    struct object_writer object = object_begin(&reader->body);
    object_text_given(&object, SLICE("event_type"), row->event_type);
    object_json_given(&object, SLICE("payload"), payload.raw);
    object_text_given(&object, SLICE("event_id"), row->event_id);
    object_text_given(&object, SLICE("idempotency_key"), row->idempotency_key);
    object_text_given(&object, SLICE("owner_user_id"), row->owner.user_id);
    object_text_given(&object, SLICE("owner_guest_scope"), row->owner.guest_scope);
    object_text_given(&object, SLICE("org_id"), row->owner.org_id);
    status = object_end(&object);
    if (status == STATUS_OK)
        status = json_parse(buffer_slice(&reader->body), &body_limits, &body);
    if (status != STATUS_OK)
        return status;
    reader->parser.takes_reserved = is_audit;
    return append_read(&reader->parser, kind, row->target, body, arena, request);
}

/* ---- the outbox ---- */

/* No client waits for the group. Its answers are in the batch. */
static void ignore_answer(struct append_group *group) {
    (void)group;
}

/* The functions that users call know kinds, not topics; the writer checks each topic's own limit.
 */
static void set_limits(struct outbox *outbox) {
    for (size_t i = 0; i < OUTBOX_KIND_COUNT; i++)
        outbox->limits[i] = (struct store_outbox_limit){
            slice_of(kinds[i].name), policy_largest_payload_of(outbox->policies, kinds[i].policy)};
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
    made->policies = policies;
    made->query.limits_edition = policy_generation(policies);
    set_limits(made);
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
    unsigned generation = policy_generation(outbox->policies);
    outbox->query.row_max = row_max;
    if (outbox->query.limits_edition != generation) {
        outbox->query.limits_edition = generation;
        set_limits(outbox);
    }
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
                  log_str("effect", "events appended by SQL wait; other appends are accepted"));
    outbox->is_failing = status != STATUS_OK;
    if (status == STATUS_OK && outbox->group.request_count == 0) {
        metrics_set(METRIC_OUTBOX_WAITING_ROWS, METRIC_PLAIN, 0);
        metrics_set(METRIC_OUTBOX_OLDEST_AGE_SECONDS, METRIC_PLAIN, 0);
    }
    return status;
}

/* ---- answering ---- */

void outbox_settle(struct outbox *outbox, struct ledger_batch *batch) {
    outbox->answered_count = outbox->rejection_count = 0;
    for (size_t i = 0; i < outbox->group.request_count; i++) {
        const struct append_request *request = &outbox->requests[i];
        enum status status = request->status;
        int http = status_http(status);
        /* A later attempt may succeed without any change of the row. */
        if (http == 503 || http == 429 || status == STATUS_NOT_ATTEMPTED)
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
