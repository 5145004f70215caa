/* The state of fan-out: the driver, the counters of delivery, the windows of the busiest topics,
 * and the nodes over the store. */
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "delivery/telemetry.h"
#include "http/store_read.h"
#include "store/topic_history.h"
#include "wire/object_writer.h"

#define TOPIC_LIMIT_DEFAULT 20
#define TOPIC_LIMIT_MAX     200
#define CAUSES_SHOWN        32
#define NOTE_OF_LOSS        "appends and delivery go on; other nodes notice commits at their poll interval"

/* ---- delivery ---- */

struct cause_list {
    struct buffer *out;
    size_t count;
};

static bool add_cause(void *user, const struct cause *cause) {
    struct cause_list *list = user;
    buffer_printf(list->out, "%s\"%s\"", list->count > 0 ? "," : "", status_code(cause->status));
    return ++list->count < CAUSES_SHOWN;
}

static void write_delivery(struct buffer *out, struct api *api) {
    const struct cause_filter filter = {.disconnected_only = true};
    struct cause_list list = {out, 0};
    struct object_writer object = object_begin(out);
    object_number(&object, SLICE("total_polls"), metrics_get_all(METRIC_FANOUT_POLLS));
    object_number(&object, SLICE("throttled_polls"),
                  metrics_get_all(METRIC_FANOUT_THROTTLED_POLLS));
    object_number(&object, SLICE("limited_polls"), metrics_get_all(METRIC_FANOUT_LIMITED_POLLS));
    object_number(&object, SLICE("fairness_limited_polls"),
                  metrics_get_all(METRIC_FANOUT_FAIRNESS_LIMITED_POLLS));
    object_number(&object, SLICE("slow_consumer_evictions"),
                  metrics_get_all(METRIC_SYNC_SLOW_CONSUMER_EVICTIONS));
    object_number(&object, SLICE("served_messages"), metrics_get_all(METRIC_FANOUT_FRAMES));
    object_number(&object, SLICE("active_consumers"),
                  consumers_active(api->consumers, clock_mono_now_ms()) +
                      metrics_get_all(METRIC_SYNC_SOCKET_CONNECTIONS));
    object_json(&object, SLICE("recent_disconnect_causes"), SLICE("["));
    causes_walk(api->telemetry->causes, &filter, &list, add_cause);
    buffer_append_byte(out, ']');
    object_close(&object);
}

/* ---- the windows ---- */

static void write_topic(struct buffer *out, const struct policy *policy,
                        const struct topic_counts *counts, const struct store_topic *topic) {
    const struct topic_window window = enforced_window(topic, policy);
    const uint64_t *violations = counts->violations;
    const char *last = counts->last_violation_reason;
    uint64_t oldest = window.oldest_seq;
    uint64_t head = window.head_seq;
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), counts->topic);
    object_text(&object, SLICE("topic_class"), slice_of(topic_class_name(policy->topic_class)));
    object_text(&object, SLICE("qos_tier"), slice_of(qos_tier_name(policy->qos_tier)));
    object_number(&object, SLICE("replay_budget_events"), policy->replay_budget_events);
    object_number(&object, SLICE("oldest_sequence"), oldest);
    object_number(&object, SLICE("head_sequence"), head);
    object_number(&object, SLICE("queue_depth"),
                  head > 0 && head >= oldest ? head - oldest + 1 : 0);
    object_number(&object, SLICE("dropped_messages"), oldest > 0 ? oldest - 1 : 0);
    /* null if no limit applies. */
    if (topic_has_documents_only(topic_kind_of(counts->topic, NULL))) {
        object_json(&object, SLICE("publish_class"), SLICE("null"));
        object_json(&object, SLICE("publish_rate_limit_per_second"), SLICE("null"));
        object_json(&object, SLICE("max_payload_bytes"), SLICE("null"));
    } else {
        object_text(&object, SLICE("publish_class"),
                    slice_of(publish_class_name(policy->publish_class)));
        object_number(&object, SLICE("publish_rate_limit_per_second"),
                      policy->publish_rate_per_second);
        object_number(&object, SLICE("max_payload_bytes"), policy->max_payload_bytes);
    }
    object_number(&object, SLICE("publish_rate_limited_count"), violations[VIOLATION_PUBLISH_RATE]);
    object_number(&object, SLICE("frame_size_rejected_count"), violations[VIOLATION_FRAME_SIZE]);
    object_number(&object, SLICE("stale_cursor_budget_exceeded_count"),
                  violations[VIOLATION_REPLAY_BUDGET]);
    object_number(&object, SLICE("stale_cursor_retention_floor_count"),
                  violations[VIOLATION_RETENTION_FLOOR]);
    object_text(&object, SLICE("last_violation_reason"),
                last ? slice_of(last) : (struct slice){NULL, 0});
    object_close(&object);
}

struct shown_topics {
    struct arena *arena;
    struct topic_counts *counts; /* room for limit */
    size_t count;
    size_t limit;
};

static enum status add_stored(void *user, const struct store_topic *topic) {
    struct shown_topics *shown = user;
    for (size_t i = 0; i < shown->count; i++)
        if (slice_equal(shown->counts[i].topic, topic->name))
            return STATUS_OK;
    if (shown->count == shown->limit)
        return STATUS_OK;
    struct slice name = arena_copy(shown->arena, topic->name);
    if (!name.data)
        return STATUS_OUT_OF_MEMORY;
    shown->counts[shown->count++] = (struct topic_counts){.topic = name};
    return STATUS_OK;
}

/* The busiest topics of this process. After a restart there are few; topics of the store follow,
 * the oldest first. */
static enum status write_windows(struct store_read *read, struct store_session *store) {
    struct api *api = api_of(read->exchange);
    struct shown_topics shown = {.arena = &read->arena, .limit = (size_t)read->limit};
    struct topic_counts *busiest = NULL;
    shown.counts = arena_alloc(&read->arena, shown.limit * sizeof(shown.counts[0]));
    if (!shown.counts)
        return STATUS_OUT_OF_MEMORY;
    enum status status = topic_activity_top(api->telemetry->activity, &read->arena, shown.limit,
                                            &busiest, &shown.count);
    if (status == STATUS_OK && shown.count > 0)
        memcpy(shown.counts, busiest, shown.count * sizeof(shown.counts[0]));
    /* Enough rows: at most count of them are shown already. */
    if (status == STATUS_OK && shown.count < shown.limit)
        status = store_walk_topics(store, 0, shown.limit, &shown, add_stored);
    for (size_t i = 0; status == STATUS_OK && i < shown.count; i++) {
        const struct topic_counts *counts = &shown.counts[i];
        struct store_topic topic = {0};
        status = store_load_topic(store, counts->topic, &read->arena, &topic);
        /* A topic whose only publish was refused does not exist, but has counters. */
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
        if (i > 0)
            buffer_append_byte(&read->out, ',');
        write_topic(&read->out, policy_of(api->policies, counts->topic), counts, &topic);
    }
    return status;
}

/* ---- the answers ---- */

static void write_metrics(struct store_read *read, struct store_session *store) {
    buffer_append_slice(&read->out, SLICE("\"delivery_metrics\":"));
    write_delivery(&read->out, api_of(read->exchange));
    buffer_append_slice(&read->out, SLICE(",\"topic_windows\":["));
    read->status = write_windows(read, store);
    buffer_append_slice(&read->out, SLICE("]}\n"));
}

static void read_metrics(struct store_read *read, struct store_session *store) {
    struct fanout_status status = fanout_status(api_of(read->exchange)->fanout);
    buffer_printf(&read->out, "{\"driver\":\"%s\",", fanout_kind_name(status.kind));
    write_metrics(read, store);
}

/* ---- the drivers ---- */

/* The loops of a process are woken in memory with every driver. */
static void write_hook(struct buffer *out, enum fanout_kind kind,
                       const struct fanout_status *status) {
    static const char *const notes[FANOUT_STATE_COUNT] = {
        [FANOUT_ACTIVE] = "commits wake the io loops of this process",
        [FANOUT_CONNECTING] = "the first attempt to connect is under way",
        [FANOUT_CONNECTED] = "commits wake other nodes",
        [FANOUT_RECONNECTING] = NOTE_OF_LOSS,
        [FANOUT_DOWN] = NOTE_OF_LOSS,
    };
    bool is_chosen = kind == status->kind;
    enum fanout_state state = kind == FANOUT_MEMORY ? FANOUT_ACTIVE : status->state;
    bool is_used = is_chosen || kind == FANOUT_MEMORY;
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("backend"), slice_of(fanout_kind_name(kind)));
    object_text(&object, SLICE("status"),
                slice_of(is_used ? fanout_state_name(state) : "inactive"));
    object_text(&object, SLICE("note"),
                slice_of(is_used ? notes[state] : "RUNTIME_FANOUT_DRIVER names another driver"));
    if (is_chosen && kind != FANOUT_MEMORY) {
        object_text(&object, SLICE("channel"), slice_of(status->channel));
        object_number(&object, SLICE("lag"), status->lag);
        object_text(&object, SLICE("last_error"),
                    *status->error ? slice_of(status->error) : (struct slice){NULL, 0});
        object_number(&object, SLICE("last_error_at_ms"), status->failed_ms);
        object_number(&object, SLICE("connects"), status->connects);
        object_number(&object, SLICE("failures"), status->failures);
        object_number(&object, SLICE("hints_sent"), status->sent);
        object_number(&object, SLICE("hints_received"), status->received);
        object_number(&object, SLICE("hints_ignored"), status->ignored);
    }
    object_close(&object);
}

static void read_hooks(struct store_read *read, struct store_session *store) {
    struct fanout_status status = fanout_status(api_of(read->exchange)->fanout);
    buffer_printf(&read->out, "{\"driver\":\"%s\",", fanout_kind_name(status.kind));
    for (unsigned i = 0; i < FANOUT_KIND_COUNT; i++) {
        buffer_append_slice(&read->out, i == 0 ? SLICE("\"hooks\":[") : SLICE(","));
        write_hook(&read->out, (enum fanout_kind)i, &status);
    }
    buffer_append_slice(&read->out, SLICE("],"));
    write_metrics(read, store);
}

static void handle(struct exchange *exchange,
                   void (*run)(struct store_read *read, struct store_session *store)) {
    uint64_t limit = TOPIC_LIMIT_DEFAULT;
    enum status status = query_number(exchange, SLICE("topic_limit"), 1, TOPIC_LIMIT_MAX, &limit);
    if (status == STATUS_INVALID_REQUEST) {
        exchange_answer_error(
            exchange,
            &(struct exchange_error){.status = status,
                                     .message = "topic_limit is a whole number from 1 to 200."});
        return;
    }
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    struct store_read *read = store_read_new(exchange, ENTITY_RUN, run);
    if (!read)
        return;
    read->limit = limit;
    store_read_post(read);
}

void handle_fanout_hooks(struct exchange *exchange) {
    handle(exchange, read_hooks);
}

void handle_fanout_metrics(struct exchange *exchange) {
    handle(exchange, read_metrics);
}

/* ---- the nodes ---- */

/* GET /internal/v1/nodes: the nodes over the store, as this node read them last. */
void handle_nodes(struct exchange *exchange) {
    const struct api *api = api_of(exchange);
    struct buffer out;
    struct node_row *rows = calloc(NODES_MAX, sizeof(*rows));
    if (!rows) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    size_t count = nodes_list(api->nodes, rows);
    buffer_init(&out, NODES_ANSWER_BYTES_MAX);
    buffer_printf(&out, "{\"node_id\":\"%s\",\"role\":\"%s\",\"nodes\":[", nodes_self(api->nodes),
                  writer_has_role(api->writer) ? "writer" : "follower");
    for (size_t i = 0; i < count; i++) {
        const struct node_row *row = &rows[i];
        if (i > 0)
            buffer_append_byte(&out, ',');
        struct object_writer object = object_begin(&out);
        object_text(&object, SLICE("node_id"), slice_of(row->address.id));
        object_text(&object, SLICE("address"), slice_of(row->address.text));
        if (*row->address.operator_text)
            object_text(&object, SLICE("operator_address"), slice_of(row->address.operator_text));
        object_text(&object, SLICE("role"), row->is_writer ? SLICE("writer") : SLICE("follower"));
        object_text(&object, SLICE("status"), row->is_live ? SLICE("live") : SLICE("lost"));
        object_json(&object, SLICE("is_self"),
                    row->address.is_self ? SLICE("true") : SLICE("false"));
        object_text(&object, SLICE("version"), slice_of(row->version));
        object_number(&object, SLICE("schema_version"), row->schema_version);
        object_number(&object, SLICE("term"), row->term);
        object_number(&object, SLICE("log_id"), row->log_id);
        object_number(&object, SLICE("revocations_seen"), row->revocations_seen);
        if (row->knows_topics)
            object_text(&object, SLICE("topics_hash"), slice_of(row->topics_hash));
        object_number(&object, SLICE("started_at_ms"), row->started_at_ms);
        object_number(&object, SLICE("seen_ms_ago"), row->age_ms);
        object_close(&object);
    }
    buffer_append_slice(&out, SLICE("]}\n"));
    free(rows);
    exchange_answer_text(exchange, STATUS_OK, &out);
    buffer_release(&out);
}
