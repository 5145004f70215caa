#include "api/routes.h"

#include "api/handlers.h"
#include "api/key_request.h"
#include "api/mint.h"
#include "api/revoke.h"
#include "base/limits.h"
#include "dialect/dialects.h"

/* The roles of operator keys that may call a route. admin may call each that takes a key. */
#define NO_KEY       0
#define ROLE_ADMIN   KEY_ROLE_BIT(KEY_ROLE_ADMIN)
#define ROLE_APPEND  (ROLE_ADMIN | KEY_ROLE_BIT(KEY_ROLE_APPEND))
#define ROLE_MINT    (ROLE_ADMIN | KEY_ROLE_BIT(KEY_ROLE_MINT))
#define ROLE_READ    (ROLE_ADMIN | KEY_ROLE_BIT(KEY_ROLE_READ))
#define ROLE_METRICS (ROLE_READ | KEY_ROLE_BIT(KEY_ROLE_METRICS))

/* Routes of backends and operators. They need an operator key, or to read a token with the scope
 * runtime.dashboard. */
#define OPERATOR_GET(path, handle, parameters)                                                     \
    { HTTP1_METHOD_GET, "/internal/v1" path, handle, 0, ROUTE_OPERATOR, ROLE_READ, parameters }
/* Appends, under their two names. Tokens with the scope runtime.append or
 * runtime.cancel may use them too. */
#define APPEND_POST(path, handle)                                                                  \
    {HTTP1_METHOD_POST,                                                                            \
     "/internal/v1" path,                                                                          \
     handle,                                                                                       \
     0,                                                                                            \
     ROUTE_OPERATOR | ROUTE_PRODUCER | ROUTE_APPEND | ROUTE_WRITER,                                \
     ROLE_APPEND,                                                                                  \
     ANY},                                                                                         \
    {                                                                                              \
        HTTP1_METHOD_POST, "/v1" path, handle, 0, ROUTE_PRODUCER | ROUTE_APPEND | ROUTE_WRITER,    \
            ROLE_APPEND, ANY                                                                       \
    }

#define MINT_POST(path)                                                                            \
    {                                                                                              \
        HTTP1_METHOD_POST, path, handle_token, MINT_BYTES_MAX, ROUTE_OPERATOR | ROUTE_WRITER,      \
            ROLE_MINT, ANY                                                                         \
    }

/* Names of query parameters, for the last column. Routes that read answer 400 to other names, since
 * a misspelt one would change the answer unnoticed. */
#define NONE   ""
#define ANY    NULL /* not checked: writes, health checks, metrics, WebSockets, event streams */
#define EVENTS "after_seq since epoch limit"
#define ENTITIES                                                                                   \
    "after limit count sort status owner_user_id owner_guest_scope org_id created_after "          \
    "created_before updated_after updated_before"
#define RUNS ENTITIES " tag parent_run_id worker_id title"
#define POLL "after_seq since epoch from replay form fold limit wait_ms where conflate_ms"

static const struct route routes[] = {
    {HTTP1_METHOD_GET, "/healthz/live", handle_live, 0, 0, NO_KEY, ANY},
    {HTTP1_METHOD_GET, "/healthz/ready", handle_ready, 0, 0, NO_KEY, ANY},
    APPEND_POST("/runs", handle_run_create),
    OPERATOR_GET("/runs", handle_runs, RUNS),
    OPERATOR_GET("/runs/{run_id}", handle_run, NONE),
    {HTTP1_METHOD_GET, "/v1/runs/{run_id}", handle_run, 0, ROUTE_TOKEN_OR_OPERATOR | ROUTE_RUN,
     ROLE_READ, NONE},
    APPEND_POST("/runs/{run_id}/events", handle_run_append),
    OPERATOR_GET("/runs/{run_id}/events", handle_run_events, EVENTS),
    OPERATOR_GET("/runs/{run_id}/tree", handle_run_tree, "after_seq limit"),
    OPERATOR_GET("/runs/{run_id}/replay", handle_run_replay, NONE),
    OPERATOR_GET("/runs/{run_id}/receipt", handle_run_receipt, NONE),
    APPEND_POST("/workers", handle_worker_create),
    OPERATOR_GET("/workers", handle_workers, ENTITIES),
    OPERATOR_GET("/workers/{worker_id}", handle_worker, NONE),
    APPEND_POST("/workers/{worker_id}/heartbeat", handle_worker_heartbeat),
    APPEND_POST("/workers/{worker_id}/status", handle_worker_status),
    APPEND_POST("/workers/{worker_id}/events", handle_worker_append),
    OPERATOR_GET("/workers/{worker_id}/events", handle_worker_events, EVENTS),
    APPEND_POST("/notifications", handle_notification),
    APPEND_POST("/topics/{topic}/events", handle_topic_append),
    OPERATOR_GET("/topics", handle_topics, "after class limit prefix"),
    OPERATOR_GET("/connections", handle_connections, "after limit prefix dialect"),
    OPERATOR_GET("/principals", handle_principals, "after limit prefix"),
    OPERATOR_GET("/topics/{topic}/events", handle_topic_events, EVENTS),
    OPERATOR_GET("/topics/{topic}/policy", handle_topic_policy, NONE),
    {HTTP1_METHOD_POST, "/internal/v1/events:batch", handle_batch, UINT64_MAX,
     ROUTE_OPERATOR | ROUTE_PRODUCER | ROUTE_STREAM | ROUTE_WRITER | ROUTE_ITEMS, ROLE_APPEND, ANY},
    {HTTP1_METHOD_POST, "/v1/events:batch", handle_batch, UINT64_MAX,
     ROUTE_PRODUCER | ROUTE_STREAM | ROUTE_WRITER | ROUTE_ITEMS, ROLE_APPEND, ANY},
    OPERATOR_GET("/projectors/checkpoints/{projection}/{entity}", handle_checkpoint, NONE),
    OPERATOR_GET("/projectors/run-summary/{run_id}", handle_run_summary, NONE),
    OPERATOR_GET("/projectors/worker-summary/{worker_id}", handle_worker_summary, NONE),
    OPERATOR_GET("/projectors/drift", handle_drift, "limit"),
    {HTTP1_METHOD_POST, "/internal/v1/projectors/reproject", handle_reproject, 4096,
     ROUTE_OPERATOR | ROUTE_WRITER | ROUTE_LONG, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_POST, "/internal/v1/retention/run", handle_retention_run, 4096,
     ROUTE_OPERATOR | ROUTE_WRITER | ROUTE_LONG, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_GET, "/api/events", handle_audit_list, 0, ROUTE_TOKEN_OR_OPERATOR | ROUTE_AUDIT,
     ROLE_READ, "after_cursor start_cursor since limit"},
    {HTTP1_METHOD_POST, "/api/events/ingest", handle_event_ingest, 0,
     ROUTE_OPERATOR | ROUTE_APPEND | ROUTE_WRITER, ROLE_APPEND, ANY},
    {HTTP1_METHOD_POST, "/api/events/import", handle_event_import, UINT64_MAX,
     ROUTE_OPERATOR | ROUTE_STREAM | ROUTE_WRITER | ROUTE_LONG, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_GET, "/api/events/export", handle_audit_export, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_AUDIT, ROLE_READ,
     "after_cursor start_cursor since until_cursor format"},
    {HTTP1_METHOD_POST, "/v1/cursors/plan", handle_cursors_plan, CURSORS_PLAN_BYTES_MAX,
     ROUTE_TOKEN_OR_OPERATOR, ROLE_READ, NONE},
    MINT_POST("/api/sync/token"),
    MINT_POST("/api/v1/sync/token"),
    MINT_POST("/internal/v1/sync/token"),
    {HTTP1_METHOD_GET, "/v1/runs", handle_own_runs, 0, ROUTE_TOKEN_OR_OPERATOR, ROLE_READ, RUNS},
    {HTTP1_METHOD_GET, "/v1/runs/{run_id}/tree", handle_run_tree, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_RUN, ROLE_READ, "after_seq limit"},
    {HTTP1_METHOD_GET, "/v1/workers", handle_own_workers, 0, ROUTE_TOKEN_OR_OPERATOR, ROLE_READ,
     ENTITIES},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}", handle_topic, 0, ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC,
     ROLE_READ, NONE},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}/messages", handle_messages, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC, ROLE_READ, POLL},
    {HTTP1_METHOD_GET, "/internal/v1/khala/topics/{topic}/messages", handle_messages, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC, ROLE_READ, POLL},
    {HTTP1_METHOD_GET, "/socket/websocket", handle_phoenix, 0,
     ROUTE_TOKEN | ROUTE_VERSION_AT_JOIN | ROUTE_STAYS_OPEN, NO_KEY, ANY},
    {HTTP1_METHOD_GET, "/sync/socket/websocket", handle_phoenix, 0,
     ROUTE_TOKEN | ROUTE_VERSION_AT_JOIN | ROUTE_STAYS_OPEN, NO_KEY, ANY},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}/sse", handle_sse, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC | ROUTE_STAYS_OPEN, ROLE_READ, ANY},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}/ws", handle_topic_ws, 0,
     ROUTE_TOKEN | ROUTE_TOPIC | ROUTE_STAYS_OPEN, NO_KEY, ANY},
    {HTTP1_METHOD_GET, "/internal/v1/khala/topics/{topic}/ws", handle_topic_ws, 0,
     ROUTE_TOKEN | ROUTE_TOPIC | ROUTE_STAYS_OPEN, NO_KEY, ANY},
    {HTTP1_METHOD_GET, "/events", handle_log_sse, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_AUDIT | ROUTE_STAYS_OPEN, ROLE_READ, ANY},
    /* Its first message carries the token. */
    {HTTP1_METHOD_GET, "/api/events/stream", handle_audit_ws, 0, ROUTE_TOKEN_IN_FIRST_MESSAGE,
     NO_KEY, ANY},
    {HTTP1_METHOD_GET, "/v1/topics/{topic}/snapshot", handle_snapshot, 0,
     ROUTE_TOKEN_OR_OPERATOR | ROUTE_TOPIC, ROLE_READ, "where"},
    OPERATOR_GET("/nodes", handle_nodes, NONE),
    OPERATOR_GET("/khala/snapshots", handle_snapshots, NONE),
    {HTTP1_METHOD_GET, "/metrics", handle_metrics, 0, ROUTE_OPERATOR | ROUTE_KEYLESS, ROLE_METRICS,
     ANY},
    OPERATOR_GET("/khala/fanout/hooks", handle_fanout_hooks, "topic_limit"),
    OPERATOR_GET("/khala/fanout/metrics", handle_fanout_metrics, "topic_limit"),
    OPERATOR_GET("/khala/why", handle_why, "connection principal topic limit"),
    OPERATOR_GET("/usage", handle_usage, "after limit"),
    OPERATOR_GET("/quotas", handle_quotas, "after limit"),
    OPERATOR_GET("/quotas/{owner}", handle_quota_get, NONE),
    {HTTP1_METHOD_PUT, "/internal/v1/quotas/{owner}", handle_quota_put, 4096,
     ROUTE_OPERATOR | ROUTE_WRITER, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_DELETE, "/internal/v1/quotas/{owner}", handle_quota_delete, 0,
     ROUTE_OPERATOR | ROUTE_WRITER, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_GET, "/internal/v1/keys", handle_keys, 0, ROUTE_OPERATOR, ROLE_ADMIN, NONE},
    {HTTP1_METHOD_POST, "/internal/v1/keys", handle_key_add, OPERATOR_KEY_BODY_BYTES_MAX,
     ROUTE_OPERATOR | ROUTE_WRITER, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_DELETE, "/internal/v1/keys/{name}", handle_key_remove, 0,
     ROUTE_OPERATOR | ROUTE_WRITER, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_POST, "/internal/v1/keys/{name}/rotate", handle_key_rotate,
     OPERATOR_KEY_BODY_BYTES_MAX, ROUTE_OPERATOR | ROUTE_WRITER, ROLE_ADMIN, ANY},
    {HTTP1_METHOD_POST, "/internal/v1/sync/sessions/revoke", handle_revoke, REVOKE_BYTES_MAX,
     ROUTE_OPERATOR, ROLE_ADMIN, ANY},
};

const struct route_table api_routes = {routes, sizeof(routes) / sizeof(routes[0])};
