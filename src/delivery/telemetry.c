#include "delivery/telemetry.h"

#include "base/clock.h"
#include "base/log.h"

/* ---- decisions about clients ---- */

static unsigned class_of(const struct telemetry *telemetry, struct slice topic) {
    return topic.data ? policy_of(telemetry->policies, topic)->topic_class : TOPIC_CLASS_COUNT;
}

/* The topic is last: it is the one that may be long. */
static void log_cause(const struct telemetry *telemetry, const struct cause *cause) {
    struct log_field fields[15];
    size_t count = 0;
    bool is_request = cause->dialect == LABEL_DIALECT_HTTP || cause->dialect == LABEL_DIALECT_POLL;
    fields[count++] = log_str("code", status_code(cause->status));
    fields[count++] = log_slice(is_request ? "request_id" : "connection", cause->connection);
    fields[count++] = log_str("dialect", label_dialect_name(cause->dialect));
    if (cause->principal.data)
        fields[count++] = log_slice("principal", cause->principal);
    if (cause->peer.data)
        fields[count++] = log_slice("peer", cause->peer);
    if (cause->reason)
        fields[count++] = log_str("reason", cause->reason);
    if (cause->rule)
        fields[count++] = log_str("rule", cause->rule);
    if (cause->close_code > 0)
        fields[count++] = log_int("close_code", cause->close_code);
    if (cause->surface)
        fields[count++] = log_str("surface", cause->surface);
    if (cause->origin.data)
        fields[count++] = log_slice("origin", cause->origin);
    if (cause->client.build_id.data) {
        fields[count++] = log_slice("client_build_id", cause->client.build_id);
        fields[count++] = log_slice("protocol_version", cause->client.protocol_version);
        fields[count++] = log_slice("schema_version", cause->client.schema_version);
    }
    if (cause->topic.data) {
        fields[count++] =
            log_str("topic_class",
                    topic_class_name(policy_of(telemetry->policies, cause->topic)->topic_class));
        fields[count++] = log_slice("topic", cause->topic);
    }
    log_emit(LOG_INFO, cause->kind == CAUSE_DENIED ? "client.denied" : "client.disconnected",
             fields, count);
}

static void remember(struct telemetry *telemetry, struct cause cause, enum cause_kind kind) {
    struct clock_reading now = clock_now();
    cause.kind = kind;
    cause.at_ms = now.wall_ms;
    /* A session may end for another reason after one of its tokens was refused. */
    if (status_http(cause.status) != 401)
        cause.rule = NULL;
    if (causes_add(telemetry->causes, &cause, now.mono_ns / CLOCK_NS_PER_MS))
        log_cause(telemetry, &cause);
    else
        atomic_fetch_add(&telemetry->unlogged_count, 1);
}

void telemetry_tick(struct telemetry *telemetry) {
    uint64_t count = atomic_exchange(&telemetry->unlogged_count, 0);
    if (count > 0)
        log_event(LOG_INFO, "client.decisions_unlogged", log_int("count", (int64_t)count));
}

static struct slice text_slice(const struct compatibility_text *text) {
    return (struct slice){text->text, text->size};
}

struct cause_client telemetry_client(const struct compatibility_claim *claim) {
    return (struct cause_client){text_slice(&claim->client_build_id),
                                 text_slice(&claim->protocol_version),
                                 text_slice(&claim->schema_version)};
}

void telemetry_refused(struct telemetry *telemetry, struct cause cause, enum status status) {
    cause.status = status;
    if (compatibility_refuses(status)) {
        cause.surface = COMPATIBILITY_SURFACE;
        metrics_add(METRIC_SYNC_SOCKET_COMPATIBILITY_REJECTED,
                    METRIC_LABELS(LABEL_SURFACE_KHALA_WEBSOCKET, status), 1);
    } else if (status_http(status) == 401 || status_http(status) == 403)
        metrics_add(METRIC_AUTH_DENIALS, METRIC_LABELS(status, class_of(telemetry, cause.topic)),
                    1);
    remember(telemetry, cause, CAUSE_DENIED);
}

/* A shutdown disconnects all clients, which would evict every other cause. */
void telemetry_disconnected(struct telemetry *telemetry, struct cause cause) {
    if (cause.status != STATUS_SHUTTING_DOWN)
        remember(telemetry, cause, CAUSE_DISCONNECTED);
}

void telemetry_stale(struct telemetry *telemetry, struct cause cause,
                     const struct continuity *continuity) {
    unsigned topic_class = class_of(telemetry, cause.topic);
    for (size_t i = 0; i < continuity->reason_count; i++)
        metrics_add(METRIC_SYNC_REPLAY_STALE, METRIC_LABELS(topic_class, continuity->reasons[i]),
                    1);
    topic_activity_stale(telemetry->activity, cause.topic, continuity);
    cause.status = STATUS_STALE_CURSOR;
    cause.reason = continuity->reason_count > 0 ? reason_code(continuity->reasons[0]) : NULL;
    remember(telemetry, cause,
             cause.dialect == LABEL_DIALECT_POLL ? CAUSE_DISCONNECTED : CAUSE_DENIED);
}

void telemetry_evicted(struct telemetry *telemetry, struct cause cause) {
    metrics_add(METRIC_SYNC_SLOW_CONSUMER_EVICTIONS,
                METRIC_LABELS(cause.dialect, class_of(telemetry, cause.topic)), 1);
    if (cause.status == STATUS_OK)
        cause.status = STATUS_SLOW_CONSUMER;
    remember(telemetry, cause, CAUSE_DISCONNECTED);
}

void telemetry_handed(enum label_dialect dialect, const struct policy *policy,
                      struct frame *const *frames, size_t count, uint64_t now_ns) {
    metrics_add(METRIC_FANOUT_FRAMES, METRIC_LABELS(dialect, policy->topic_class), count);
    /* Frames of one commit follow one another. */
    for (size_t begin = 0, end; begin < count; begin = end) {
        uint64_t committed_ns = frames[begin]->committed_ns;
        for (end = begin + 1; end < count && frames[end]->committed_ns == committed_ns; end++)
            continue;
        if (committed_ns != 0)
            metrics_observe(METRIC_FANOUT_LATENCY_SECONDS, METRIC_LABELS(dialect),
                            now_ns > committed_ns ? now_ns - committed_ns : 0, end - begin);
    }
}
