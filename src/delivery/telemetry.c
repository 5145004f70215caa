#include "delivery/telemetry.h"

#include "base/clock.h"
#include "base/log.h"
#include "http/admit/version_gate.h"
#include "http/conn.h"
#include "http/route.h"
#include "server/server.h"

/* ---- decisions about clients ---- */

static unsigned class_of(const struct server *server, struct slice topic) {
    return topic.data ? policy_of(&server->config.policies, topic)->topic_class : TOPIC_CLASS_COUNT;
}

/* The topic is last: it is the one that may be long. */
static void log_cause(const struct server *server, const struct cause *cause) {
    struct log_field fields[9];
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
    if (cause->close_code > 0)
        fields[count++] = log_int("close_code", cause->close_code);
    if (cause->topic.data) {
        fields[count++] = log_str(
            "topic_class",
            topic_class_name(policy_of(&server->config.policies, cause->topic)->topic_class));
        fields[count++] = log_slice("topic", cause->topic);
    }
    log_emit(LOG_INFO, cause->kind == CAUSE_DENIED ? "client.denied" : "client.disconnected",
             fields, count);
}

static void remember(struct server *server, struct cause cause, enum cause_kind kind) {
    struct clock_reading now = clock_now();
    cause.kind = kind;
    cause.at_ms = now.wall_ms;
    if (causes_add(server->causes, &cause, now.mono_ns / CLOCK_NS_PER_MS))
        log_cause(server, &cause);
    else
        atomic_fetch_add(&server->decisions_unlogged, 1);
}

void telemetry_tick(struct server *server) {
    uint64_t count = atomic_exchange(&server->decisions_unlogged, 0);
    if (count > 0)
        log_event(LOG_INFO, "client.decisions_unlogged", log_int("count", (int64_t)count));
}

void telemetry_refused(struct server *server, struct cause cause, enum status status) {
    cause.status = status;
    if (version_gate_refuses(status))
        metrics_add(METRIC_SYNC_SOCKET_COMPATIBILITY_REJECTED,
                    METRIC_LABELS(LABEL_SURFACE_KHALA_WEBSOCKET, status), 1);
    else if (status_http(status) == 401 || status_http(status) == 403)
        metrics_add(METRIC_AUTH_DENIALS, METRIC_LABELS(status, class_of(server, cause.topic)), 1);
    remember(server, cause, CAUSE_DENIED);
}

/* A shutdown sends everybody away, which would push out all that is worth remembering. */
void telemetry_disconnected(struct server *server, struct cause cause) {
    if (cause.status != STATUS_SHUTTING_DOWN)
        remember(server, cause, CAUSE_DISCONNECTED);
}

void telemetry_stale(struct server *server, struct cause cause,
                     const struct continuity *continuity) {
    unsigned topic_class = class_of(server, cause.topic);
    for (size_t i = 0; i < continuity->reason_count; i++)
        metrics_add(METRIC_SYNC_REPLAY_STALE, METRIC_LABELS(topic_class, continuity->reasons[i]),
                    1);
    topic_activity_stale(server->activity, cause.topic, continuity);
    cause.status = STATUS_STALE_CURSOR;
    cause.reason = continuity->reason_count > 0 ? reason_code(continuity->reasons[0]) : NULL;
    remember(server, cause,
             cause.dialect == LABEL_DIALECT_POLL ? CAUSE_DISCONNECTED : CAUSE_DENIED);
}

void telemetry_evicted(struct server *server, struct cause cause) {
    metrics_add(METRIC_SYNC_SLOW_CONSUMER_EVICTIONS,
                METRIC_LABELS(cause.dialect, class_of(server, cause.topic)), 1);
    if (cause.status == STATUS_OK)
        cause.status = STATUS_SLOW_CONSUMER;
    remember(server, cause, CAUSE_DISCONNECTED);
}

void telemetry_handed(enum label_dialect dialect, const struct policy *policy,
                      struct frame *const *frames, size_t count, uint64_t now_ns) {
    metrics_add(METRIC_KHALA_FANOUT_FRAMES, METRIC_LABELS(dialect, policy->topic_class), count);
    /* Frames of one commit follow one another. */
    for (size_t begin = 0, end; begin < count; begin = end) {
        uint64_t committed_ns = frames[begin]->committed_ns;
        for (end = begin + 1; end < count && frames[end]->committed_ns == committed_ns; end++)
            continue;
        if (committed_ns != 0)
            metrics_observe(METRIC_KHALA_FANOUT_LATENCY_SECONDS, METRIC_LABELS(dialect),
                            now_ns > committed_ns ? now_ns - committed_ns : 0, end - begin);
    }
}

/* ---- requests ---- */

/* The first row that fits; texts are of the route's pattern, so nothing a peer sends adds one. */
static const struct {
    const char *prefix;
    const char *suffix;
    enum label_route_class route_class;
} route_classes[] = {
    {"/healthz/", "", LABEL_ROUTE_CLASS_HEALTH},
    {"/metrics", "", LABEL_ROUTE_CLASS_METRICS},
    {"/internal/v1/events:batch", "", LABEL_ROUTE_CLASS_BATCH},
    {"/api/sync/token", "", LABEL_ROUTE_CLASS_TOKEN},
    {"/v1/cursors/", "", LABEL_ROUTE_CLASS_CURSORS},
    {"/", "/messages", LABEL_ROUTE_CLASS_POLL},
    {"/", "/snapshot", LABEL_ROUTE_CLASS_SNAPSHOT},
    {"/", "/sse", LABEL_ROUTE_CLASS_SSE},
    {"/events", "", LABEL_ROUTE_CLASS_SSE},
    {"/", "/websocket", LABEL_ROUTE_CLASS_SOCKET},
    {"/", "/ws", LABEL_ROUTE_CLASS_SOCKET},
    {"/", "/stream", LABEL_ROUTE_CLASS_SOCKET},
    {"/api/events", "", LABEL_ROUTE_CLASS_AUDIT},
    {"/internal/v1/khala/", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/sync/", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/retention", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/projectors/reproject", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/", "", LABEL_ROUTE_CLASS_READ},
};

static enum label_route_class route_class_of(const struct route *route) {
    if (!route)
        return LABEL_ROUTE_CLASS_UNMATCHED;
    if (route->flags & ROUTE_APPEND)
        return LABEL_ROUTE_CLASS_APPEND;
    size_t i = 0;
    while (!slice_starts(slice_of(route->path), slice_of(route_classes[i].prefix)) ||
           !slice_ends(slice_of(route->path), slice_of(route_classes[i].suffix)))
        i++;
    return route_classes[i].route_class;
}

static const char *method_name(enum http1_method method) {
    static const char *const names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                        "PATCH", "DELETE", "OPTIONS", "OTHER"};
    return names[method];
}

/* The path alone: a query may hold a token. */
static void log_answer(struct exchange *exchange, unsigned http_status, uint64_t took_ns) {
    const struct http1_request *request = exchange->request;
    log_event(LOG_DEBUG, "http.request", log_slice("request_id", exchange_request_id(exchange)),
              log_str("method", request ? method_name(request->method) : "-"),
              log_int("status", http_status), log_int("took_us", (int64_t)(took_ns / 1000)),
              log_slice("path", request ? request->path : SLICE("-")));
}

void telemetry_answered(struct exchange *exchange, unsigned http_status) {
    uint64_t took_ns = clock_mono_ns(&exchange->loop->clock) - exchange->begun_ns;
    enum label_route_class route_class = route_class_of(exchange->route);
    metrics_add(METRIC_HTTP_REQUESTS, METRIC_LABELS(route_class, label_http_status(http_status)),
                1);
    metrics_observe(METRIC_HTTP_REQUEST_DURATION_SECONDS, METRIC_LABELS(route_class), took_ns, 1);
    if (log_wants(LOG_DEBUG))
        log_answer(exchange, http_status, took_ns);
}

/* An operator's route that answers anything but 401 has seen the key. */
static const struct principal *asker_of(const struct exchange *exchange, enum status status) {
    if (exchange->principal)
        return exchange->principal;
    bool is_operators = exchange->route && exchange->route->flags & ROUTE_OPERATOR;
    return is_operators && status_http(status) != 401 ? &principal_operator : NULL;
}

static struct slice topic_of(const struct exchange *exchange) {
    static const struct slice of_topic = SLICE("{topic}");
    bool has_one =
        exchange->route && exchange->parameter_count > 0 &&
        memmem(exchange->route->path, strlen(exchange->route->path), of_topic.data, of_topic.size);
    return has_one ? exchange->parameters[0] : (struct slice){NULL, 0};
}

static struct cause cause_of(struct exchange *exchange, enum status status,
                             struct cause_names *names) {
    const struct principal *asker = asker_of(exchange, status);
    struct cause cause = {.connection = exchange_request_id(exchange),
                          .topic = topic_of(exchange),
                          .status = status,
                          .dialect = LABEL_DIALECT_HTTP};
    if (asker)
        cause.principal = (struct slice){names->principal, principal_name(asker, names->principal)};
    else if (exchange->bearer)
        cause.principal = slice_of(exchange->bearer);
    if (exchange->conn)
        cause.peer = transport_peer(exchange->conn, names->peer);
    return cause;
}

void telemetry_exchange_refused(struct exchange *exchange, enum status status, struct slice topic) {
    int http_status = status_http(status);
    struct cause_names names;
    if (http_status != 401 && http_status != 403 && http_status != 413 && http_status != 426 &&
        http_status != 429)
        return;
    struct cause cause = cause_of(exchange, status, &names);
    if (topic.data)
        cause.topic = topic;
    telemetry_refused(exchange->server, cause, status);
}

void telemetry_exchange_ended(struct exchange *exchange, enum status status) {
    struct cause_names names;
    telemetry_disconnected(exchange->server, cause_of(exchange, status, &names));
}
