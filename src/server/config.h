/* The server's settings: one table has the environment names, flags, checks, and help texts of
 * `khala config` and the documentation.
 * Loaded once before threads start; read-only afterwards.
 * Memory: the struct owns no heap.
 * Errors: STATUS_INVALID_CONFIG for a bad value, with the name of the setting in the message.
 * A flag overrides the environment, which overrides the file, which overrides the default. Each
 * setting remembers its source. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdio.h>

#include "auth/token.h"
#include "base/log.h"
#include "base/slice.h"
#include "http/admit/gate.h"
#include "io/listen.h"
#include "io/tls.h"
#include "server/config_file.h"
#include "topic/policy_key.h"

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
    uint64_t log_format;
    uint64_t log_level;
    uint64_t io_loops;
    bool own_descriptors;
    uint64_t connections_max;
    uint64_t request_head_bytes_max;
    uint64_t request_timeout_ms;
    uint64_t idle_timeout_ms;
    uint64_t shutdown_delay_ms;
    uint64_t shutdown_grace_ms;
    char operator_key_previous[CONFIG_TEXT_MAX]; /* empty: none */
    char operator_key[CONFIG_TEXT_MAX];          /* empty: the key in the data folder */
    char tls_cert_file[CONFIG_TEXT_MAX];         /* empty, both: no TLS */
    char tls_key_file[CONFIG_TEXT_MAX];
    uint64_t tls_version_min; /* enum tls_version */
    uint64_t readers;
    uint64_t writer_queue_max;
    uint64_t writer_queue_bytes_max;
    uint64_t batches_bytes_max;
    uint64_t poll_default_limit;
    uint64_t poll_max_limit;
    uint64_t outbound_queue_limit;
    uint64_t fair_topic_slice_limit;
    uint64_t poll_min_interval_ms;
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
    uint64_t audit_init_timeout_ms;
    uint64_t window_frames_max;
    uint64_t window_bytes_max;
    uint64_t windows_bytes_max;
    uint64_t snapshots_bytes_max;
    uint64_t retention_interval_ms;
    uint64_t clock_offset_ms;
    char token_fallback_signing_keys[CONFIG_TEXT_MAX];
    char token_signing_key[CONFIG_TEXT_MAX]; /* empty: not given, like the texts below */
    char jwks_file[CONFIG_TEXT_MAX];
    char token_issuer[CONFIG_TEXT_MAX];
    char token_audience[CONFIG_TEXT_MAX];
    uint64_t token_max_age_s;
    bool token_require_jti;
    bool token_single_use;
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

/* A setting given on the command line: "--bind", "127.0.0.1:0". */
struct config_flag {
    const char *name;
    const char *value; /* NULL: not given */
};

/* Reads the file (NULL: none), which outlives config, then the environment, then the flags.
 * environment(name) answers NULL where unset. A bad value in the file is refused also where
 * another source overrides it. */
MUST_CHECK enum status config_load(struct config *config, const struct config_file *file,
                                   const char *(*environment)(const char *),
                                   const struct config_flag *flags, size_t flag_count,
                                   struct config_error *error);
/* Fills in all flags, without values. Returns their number, at most CONFIG_SETTINGS_MAX. */
size_t config_flags(struct config_flag *flags);

/* The description of a setting, for help texts. */
struct config_setting {
    const char *name;
    const char *flag;  /* NULL: environment only */
    const char *takes; /* "HOST:PORT", "text|json", "N" */
    const char *fallback;
    const char *help;
};

/* False: there is no setting with this index. Topic policies are not included. */
bool config_setting_at(size_t index, struct config_setting *setting);
/* The effective settings with their sources, secrets masked, one a line or as JSON. */
void config_print(const struct config *config, FILE *out, bool json);
/* Prints docs/configuration.md. */
void config_print_markdown(FILE *out);

#endif
