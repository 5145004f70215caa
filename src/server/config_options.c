#include "server/config_options.h"

#include <stddef.h>

#include "server/config_table.h"

#define ITEM_BYTES   (512u << 10)
#define APPEND_BYTES (1u << 20)

struct tls_options config_tls_options(const struct config *config) {
    return (struct tls_options){config->tls_cert_file, config->tls_key_file,
                                (enum tls_version)config->tls_version_min};
}

struct gate_options config_gate_options(const struct config *config) {
    return (struct gate_options){
        .keys = {.jwks_file = config->jwks_file,
                 .secret = config->token_signing_key,
                 .folder = config->data_dir,
                 .previous_secrets = config->token_fallback_signing_keys},
        .policy = {.issuer = slice_of(config->token_issuer),
                   .audience = slice_of(config->token_audience),
                   .max_age_s = config->token_max_age_s,
                   .require_token_id = config->token_require_jti},
        .compatibility = {.is_enforced = config->compatibility_enforced,
                          .protocol_version = slice_of(config->compatibility_protocol_version),
                          .client_build_id_min =
                              slice_of(config->compatibility_min_client_build_id),
                          .client_build_id_max =
                              slice_of(config->compatibility_max_client_build_id),
                          .schema_version_min = config->compatibility_min_schema_version,
                          .schema_version_max = config->compatibility_max_schema_version},
        .enforces_origin = config->enforce_origin,
        .allowed_origins = slice_of(config->allowed_origins),
    };
}

/* Twice the largest payload, because a payload in a request may be longer than in canonical JSON.
 */
static uint64_t body_bytes_max(const struct config *config, uint64_t bytes_min) {
    uint64_t largest = policy_largest_payload(&config->policies);
    return 2 * largest > bytes_min ? 2 * largest : bytes_min;
}

const char *config_store_url(const struct config *config) {
    return *config->db_url ? config->db_url : config->data_dir;
}

uint64_t config_item_bytes_max(const struct config *config) {
    return body_bytes_max(config, ITEM_BYTES);
}

bool config_lag_follows_budgets(const struct config *config) {
    size_t index = 0;
    while (config_settings[index].offset != offsetof(struct config, slow_consumer_lag_threshold))
        index++;
    return config->sources[index] == CONFIG_DEFAULT;
}

struct http_options config_http_options(const struct config *config) {
    return (struct http_options){
        .request_head_bytes_max = config->request_head_bytes_max,
        .request_line_bytes_max = CONFIG_LINE_BYTES_MAX,
        .append_bytes_max = body_bytes_max(config, APPEND_BYTES),
        .request_timeout_ms = config->request_timeout_ms,
        .peer_timeout_ms = config->peer_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .silence_timeout_ms = config->silence_timeout_ms,
        .has_operator_listener = *config->operator_bind.host != '\0',
        .token_single_use = config->token_single_use,
        .legacy_cursors = config->legacy_cursors,
    };
}

struct quota_limits config_quota_limits(const struct config *config) {
    return (struct quota_limits){
        .of = {
            [QUOTA_BYTES_STORED] = config->quota_bytes_stored,
            [QUOTA_METADATA_BYTES] = config->quota_metadata_bytes,
            [QUOTA_OPEN_RUNS] = config->quota_open_runs,
            [QUOTA_OPEN_WORKERS] = config->quota_open_workers,
            [QUOTA_BYTES_PER_SECOND] = config->quota_bytes_per_second,
            [QUOTA_EVENTS_PER_SECOND] = config->quota_events_per_second,
            [QUOTA_ENTITIES_PER_MINUTE] = config->quota_entities_per_minute,
            [QUOTA_SUBSCRIPTIONS] = config->quota_subscriptions,
            [QUOTA_BATCH_BYTES] = config->quota_batch_bytes,
        }};
}

/* The last choice of RUNTIME_FANOUT_DRIVER, behind those of enum fanout_kind. */
#define CHOICE_AUTO FANOUT_KIND_COUNT

enum fanout_kind config_fanout_kind(const struct config *config) {
    if (config->fanout_driver == CHOICE_AUTO)
        return *config->db_url ? FANOUT_POSTGRES_NOTIFY : FANOUT_MEMORY;
    return (enum fanout_kind)config->fanout_driver;
}

const char *config_fanout_url(const struct config *config) {
    bool is_postgres = config_fanout_kind(config) == FANOUT_POSTGRES_NOTIFY;
    return is_postgres && !*config->fanout_url ? config->db_url : config->fanout_url;
}
