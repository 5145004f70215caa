#include "http/route.h"

#include <assert.h>
#include <stdio.h>

#include "api/handlers.h"
#include "api/mint.h"
#include "api/revoke_request.h"

/* The backend's and the operator's, which need the operator key. */
#define OPERATOR_GET(path, handle)                                                                 \
    { HTTP1_METHOD_GET, "/internal/v1" path, handle, 0, ROUTE_OPERATOR }
#define OPERATOR_POST(path, handle)                                                                \
    { HTTP1_METHOD_POST, "/internal/v1" path, handle, 0, ROUTE_OPERATOR | ROUTE_APPEND }

static const struct route routes[] = {
    {HTTP1_METHOD_GET, "/healthz/live", handle_live, 0, 0},
    {HTTP1_METHOD_GET, "/healthz/ready", handle_ready, 0, 0},
    OPERATOR_POST("/runs", handle_run_create),
    OPERATOR_GET("/runs/{run_id}", handle_run),
    OPERATOR_POST("/runs/{run_id}/events", handle_run_append),
    OPERATOR_GET("/runs/{run_id}/events", handle_run_events),
    OPERATOR_GET("/runs/{run_id}/replay", handle_run_replay),
    OPERATOR_GET("/runs/{run_id}/receipt", handle_run_receipt),
    OPERATOR_POST("/workers", handle_worker_create),
    OPERATOR_GET("/workers/{worker_id}", handle_worker),
    OPERATOR_POST("/workers/{worker_id}/heartbeat", handle_worker_heartbeat),
    OPERATOR_POST("/workers/{worker_id}/status", handle_worker_status),
    OPERATOR_POST("/workers/{worker_id}/events", handle_worker_append),
    OPERATOR_GET("/workers/{worker_id}/events", handle_worker_events),
    OPERATOR_POST("/notifications", handle_notification),
    OPERATOR_POST("/topics/{topic}/events", handle_topic_append),
    OPERATOR_GET("/topics/{topic}/events", handle_topic_events),
    {HTTP1_METHOD_POST, "/internal/v1/events:batch", handle_batch, UINT64_MAX,
     ROUTE_OPERATOR | ROUTE_STREAM},
    OPERATOR_GET("/projectors/checkpoints/{projection}/{entity}", handle_checkpoint),
    OPERATOR_GET("/projectors/run-summary/{run_id}", handle_run_summary),
    OPERATOR_GET("/projectors/worker-summary/{worker_id}", handle_worker_summary),
    OPERATOR_GET("/projectors/drift", handle_drift),
    {HTTP1_METHOD_POST, "/internal/v1/projectors/reproject", handle_reproject, 4096,
     ROUTE_OPERATOR},
    {HTTP1_METHOD_POST, "/internal/v1/retention/run", handle_retention_run, 4096, ROUTE_OPERATOR},
    {HTTP1_METHOD_GET, "/api/events", handle_audit_list, 0, ROUTE_TOKEN_OR_OPERATOR | ROUTE_AUDIT},
    {HTTP1_METHOD_POST, "/api/events/ingest", handle_event_ingest, 0,
     ROUTE_OPERATOR | ROUTE_APPEND},
    {HTTP1_METHOD_GET, "/api/events/export", handle_audit_export, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_AUDIT},
    {HTTP1_METHOD_POST, "/v1/cursors/plan", handle_cursors_plan, CURSORS_PLAN_BYTES_MAX,
     ROUTE_TOKEN_OR_OPERATOR},
    {HTTP1_METHOD_POST, "/api/sync/token", handle_token, MINT_BYTES_MAX, ROUTE_OPERATOR},
    {HTTP1_METHOD_GET, "/internal/v1/khala/topics/{topic}/messages", handle_messages, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC},
    {HTTP1_METHOD_GET, "/socket/websocket", handle_phoenix, 0,
     ROUTE_TOKEN | ROUTE_VERSION_AT_JOIN | ROUTE_STAYS_OPEN},
    {HTTP1_METHOD_GET, "/sync/socket/websocket", handle_phoenix, 0,
     ROUTE_TOKEN | ROUTE_VERSION_AT_JOIN | ROUTE_STAYS_OPEN},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}/sse", handle_sse, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC | ROUTE_STAYS_OPEN},
    {HTTP1_METHOD_GET, "/internal/v1/khala/topics/{topic}/ws", handle_topic_ws, 0,
     ROUTE_TOKEN | ROUTE_TOPIC | ROUTE_STAYS_OPEN},
    {HTTP1_METHOD_GET, "/events", handle_log_sse, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_AUDIT | ROUTE_STAYS_OPEN},
    /* Its first message carries the token. */
    {HTTP1_METHOD_GET, "/api/events/stream", handle_audit_ws, 0, ROUTE_TOKEN_IN_FIRST_MESSAGE},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}/snapshot", handle_snapshot, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC},
    OPERATOR_GET("/khala/snapshots", handle_snapshots),
    {HTTP1_METHOD_GET, "/metrics", handle_metrics, 0, ROUTE_OPERATOR | ROUTE_KEYLESS},
    OPERATOR_GET("/khala/fanout/hooks", handle_fanout_hooks),
    OPERATOR_GET("/khala/fanout/metrics", handle_fanout_metrics),
    OPERATOR_GET("/khala/why", handle_why),
    {HTTP1_METHOD_POST, "/internal/v1/sync/sessions/revoke", handle_revoke, REVOKE_BYTES_MAX,
     ROUTE_OPERATOR},
};

#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

/* The segment behind the slash that stands in front, which a path has until it is used up. */
static struct slice segment_take(struct slice *path) {
    struct slice rest = slice_from(*path, 1);
    const char *slash = memchr(rest.data, '/', rest.size);
    size_t size = slash ? (size_t)(slash - rest.data) : rest.size;
    *path = slice_from(rest, size);
    return (struct slice){rest.data, size};
}

bool route_path_matches(const char *pattern, struct slice path, struct slice *parameters,
                        size_t *parameter_count) {
    struct slice wanted = slice_of(pattern);
    assert(slice_starts(wanted, SLICE("/")));
    *parameter_count = 0;
    if (!slice_starts(path, SLICE("/")))
        return false;
    while (wanted.size > 0 && path.size > 0) {
        struct slice expected = segment_take(&wanted);
        struct slice segment = segment_take(&path);
        if (!slice_starts(expected, SLICE("{"))) {
            if (!slice_equal(expected, segment))
                return false;
            continue;
        }
        if (segment.size == 0)
            return false;
        assert(*parameter_count < EXCHANGE_PARAMETERS_MAX);
        parameters[(*parameter_count)++] = segment;
    }
    return wanted.size == 0 && path.size == 0;
}

static enum status parameters_decode(struct exchange *exchange, const struct slice *raw) {
    struct buffer *memory = &exchange->parameter_memory;
    for (size_t i = 0; i < exchange->parameter_count; i++) {
        size_t begin = memory->size;
        enum status status = http1_percent_decode(raw[i], memory);
        if (status != STATUS_OK)
            return status;
        exchange->parameters[i].size = memory->size - begin;
    }
    /* Only now: the memory may have moved while it grew. */
    const char *data = memory->data;
    for (size_t i = 0; i < exchange->parameter_count; i++) {
        exchange->parameters[i].data = data;
        data += exchange->parameters[i].size;
    }
    return STATUS_OK;
}

static bool method_matches(enum http1_method wanted, enum http1_method given) {
    return wanted == given || (wanted == HTTP1_METHOD_GET && given == HTTP1_METHOD_HEAD);
}

enum status route_find(struct exchange *exchange) {
    struct slice raw[EXCHANGE_PARAMETERS_MAX];
    bool path_known = false;
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (routes[i].flags & exchange->routes_hidden ||
            !route_path_matches(routes[i].path, exchange->request->path, raw,
                                &exchange->parameter_count))
            continue;
        path_known = true;
        if (method_matches(routes[i].method, exchange->request->method)) {
            exchange->route = &routes[i];
            return parameters_decode(exchange, raw);
        }
    }
    return path_known ? STATUS_METHOD_NOT_ALLOWED : STATUS_NOT_FOUND;
}

void route_allowed(struct slice path, unsigned hidden, char text[64]) {
    static const char *const names[] = {"GET, HEAD", "HEAD",   "POST",    "PUT",
                                        "PATCH",     "DELETE", "OPTIONS", ""};
    struct slice raw[EXCHANGE_PARAMETERS_MAX];
    size_t count;
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        if (!(routes[i].flags & hidden) && size < 64 &&
            route_path_matches(routes[i].path, path, raw, &count))
            size += (size_t)snprintf(text + size, 64 - size, size ? ", %s" : "%s",
                                     names[routes[i].method]);
}
