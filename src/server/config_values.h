/* The values of all settings, as the table of settings fills them.
 * Thread: main fills them before others start; read-only afterwards.
 * Memory: the struct owns no heap.
 * Errors: none.
 * Invariant: every member has a row in config_table.c, or is a topic policy. */
#ifndef SERVER_CONFIG_VALUES_H
#define SERVER_CONFIG_VALUES_H

#include "auth/token.h"
#include "base/log.h"
#include "base/slice.h"
#include "http/admit/gate.h"
#include "net/listen.h"
#include "net/tls.h"
#include "server/config_file.h"
#include "topic/policy.h"

#define CONFIG_TEXT_MAX       512
#define CONFIG_LOOPS_MAX      LISTEN_SOCKETS_MAX
#define CONFIG_SETTINGS_MAX   160
#define CONFIG_POLICY_KEY_MAX 64
/* The longest line of a request head. The largest token fits into it, with a path or in a header.
 */
#define CONFIG_LINE_BYTES_MAX (TOKEN_BYTES_MAX + 4096)

enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_FLAG };

struct config {
    struct listen_address bind;
    struct listen_address operator_bind; /* no host: operator routes are on bind */
    char data_dir[CONFIG_TEXT_MAX];
    char db_url[CONFIG_TEXT_MAX]; /* may hold a password */
    uint64_t disk_reserve_bytes;
    uint64_t outbox_poll_ms;
    uint64_t follow_poll_ms;
    uint64_t forward_timeout_ms;
    char cluster_ca_file[CONFIG_TEXT_MAX];
    struct listen_address advertise; /* no host: the bound address */
    uint64_t log_format;
    uint64_t log_level;
    uint64_t io_loops;
    bool own_descriptors;
    uint64_t connections_max;
    uint64_t connections_unauthenticated_max;
    uint64_t connections_per_principal_max;
    uint64_t connections_per_address_max; /* 0: no limit */
    uint64_t request_head_bytes_max;
    uint64_t request_timeout_ms;
    uint64_t peer_timeout_ms;
    uint64_t idle_timeout_ms;
    uint64_t shutdown_delay_ms;
    uint64_t shutdown_grace_ms;
    char operator_key_previous[CONFIG_TEXT_MAX]; /* empty: none */
    char mint_key[CONFIG_TEXT_MAX];              /* empty: none */
    char operator_key[CONFIG_TEXT_MAX];          /* empty: the key in the data folder */
    char tls_cert_file[CONFIG_TEXT_MAX];         /* empty, both: no TLS */
    char tls_key_file[CONFIG_TEXT_MAX];
    uint64_t tls_version_min; /* enum tls_version */
    uint64_t readers;
    uint64_t reads_per_principal_max;
    uint64_t unread_bytes_per_principal_max;
    uint64_t writer_queue_max;
    uint64_t writer_queue_bytes_max;
    uint64_t batches_bytes_max;
    uint64_t quota_batch_bytes;
    uint64_t batch_spool_bytes_max;
    uint64_t poll_default_limit;
    uint64_t poll_max_limit;
    uint64_t outbound_queue_limit;
    uint64_t fair_topic_slice_limit;
    uint64_t poll_min_interval_ms;
    char topics_file[CONFIG_TEXT_MAX];
    uint64_t slow_consumer_lag_threshold;
    uint64_t slow_consumer_max_strikes;
    uint64_t consumer_registry_capacity;
    uint64_t reconnect_base_backoff_ms;
    uint64_t reconnect_jitter_ms;
    uint64_t heartbeat_ms;
    uint64_t silence_timeout_ms;
    uint64_t slow_consumer_check_ms;
    uint64_t message_bytes_max;
    uint64_t messages_per_second;
    uint64_t subscriptions_max;
    uint64_t auth_failures_per_minute;
    uint64_t quota_bytes_stored;
    uint64_t quota_metadata_bytes;
    uint64_t quota_open_runs;
    uint64_t quota_open_workers;
    uint64_t quota_bytes_per_second;
    uint64_t quota_events_per_second;
    uint64_t quota_entities_per_minute;
    uint64_t quota_subscriptions;
    uint64_t audit_init_timeout_ms;
    uint64_t window_frames_max;
    uint64_t window_bytes_max;
    uint64_t windows_bytes_max;
    uint64_t snapshots_bytes_max;
    uint64_t retention_interval_ms;
    uint64_t sink;
    char fanout_sinks[CONFIG_TEXT_MAX];
    uint64_t fanout_driver;              /* as config_fanout_kind reads it */
    char fanout_url[CONFIG_TEXT_MAX];    /* empty: not given */
    char sink_nats_url[CONFIG_TEXT_MAX]; /* empty: none, like the next one */
    char sink_webhook_url[CONFIG_TEXT_MAX];
    char sink_webhook_key[CONFIG_TEXT_MAX]; /* empty: the webhook gets no key */
    char sink_nats_subject[CONFIG_TEXT_MAX];
    char projection_version[CONFIG_TEXT_MAX];
    uint64_t clock_offset_ms;
    char token_fallback_signing_keys[CONFIG_TEXT_MAX];
    char token_signing_key[CONFIG_TEXT_MAX]; /* empty: not given, like the texts below */
    char jwks_file[CONFIG_TEXT_MAX];
    char token_issuer[CONFIG_TEXT_MAX];
    char token_audience[CONFIG_TEXT_MAX];
    uint64_t token_max_age_s;
    bool token_require_jti;
    bool token_single_use;
    bool legacy_cursors;
    bool enforce_origin;
    char allowed_origins[CONFIG_TEXT_MAX];
    bool compatibility_enforced;
    char compatibility_protocol_version[CONFIG_TEXT_MAX];
    char compatibility_min_client_build_id[CONFIG_TEXT_MAX];
    char compatibility_max_client_build_id[CONFIG_TEXT_MAX];
    uint64_t compatibility_min_schema_version;
    uint64_t compatibility_max_schema_version;
    struct policy_table policies;
    enum config_source sources[CONFIG_SETTINGS_MAX];
    enum config_source policy_sources[CONFIG_POLICY_KEY_MAX];
    const struct config_file *file; /* NULL: no file was read */
};

#endif
