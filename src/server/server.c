/* The parts of the server, opened in the order in which they need one another: store, folder, keys
 * and certificate, the check of the log's end, what the store says about itself, hub and counters,
 * writer, and the threads beside it. Then the contexts of http, delivery and api are filled, which
 * have what these layers may use. server_close stops all of it in the reverse order, and may find a
 * server that was opened in part. */
#include "server/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/append.h"
#include "api/process_stats.h"
#include "api/routes.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/dispatch.h"
#include "hub/hub.h"
#include "net/descriptors.h"
#include "projector/verify.h"
#include "server/config_options.h"
#include "server/shared_keys.h"

#define KEY_BYTES_SHORT 16
#define TAIL_EVENTS     256
/* Connections beyond the limits, for an operator when clients have filled the server. */
#define OPERATOR_RESERVE 64
#define MS_PER_S         1000

enum status server_refuse(struct server *server, enum status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(server->message, sizeof(server->message), format, arguments);
    va_end(arguments);
    /* The verb prints the message; a second copy is useful only to a program that reads the log. */
    if (server->config.log_format == LOG_JSON)
        log_event(LOG_ERROR, "server.refused", log_str("reason", server->message));
    return status;
}

/* ---- keys, tokens, TLS ---- */

/* The keys of operators and of minting, and those that sign and check tokens. */
static enum status keys_load(struct server *server) {
    struct http *http = &server->http;
    struct operator_key *key = &http->operator_key;
    struct slice mint_key = slice_of(server->config.mint_key);
    enum status status =
        operator_key_load(key, server->config.operator_key, server->config.data_dir);
    if (status == STATUS_INVALID_CONFIG)
        return server_refuse(server, status,
                             "%s does not hold an operator key; remove it to have one made",
                             key->path);
    if (status != STATUS_OK)
        return server_refuse(server, status, "cannot read or make %s: %s", key->path,
                             strerror(errno));
    operator_key_set_previous(key, slice_of(server->config.operator_key_previous));
    if (key->has_previous)
        log_event(LOG_INFO, "operator_key.previous_accepted",
                  log_str("setting", "KHALA_OPERATOR_KEY_PREVIOUS"));
    if (strlen(key->text) < KEY_BYTES_SHORT)
        log_event(LOG_WARN, "operator_key.short",
                  log_int("characters", (int64_t)strlen(key->text)));
    http->has_mint_key = mint_key.size > 0;
    if (http->has_mint_key) {
        status = operator_key_load(&http->mint_key, mint_key.data, "");
        if (status != STATUS_OK)
            return server_refuse(server, status,
                                 "KHALA_MINT_KEY must be 1 to 256 visible ASCII characters");
        if (operator_key_is(key, mint_key))
            return server_refuse(server, STATUS_INVALID_CONFIG,
                                 "KHALA_MINT_KEY must differ from the operator key");
        if (mint_key.size < KEY_BYTES_SHORT)
            log_event(LOG_WARN, "mint_key.short", log_int("characters", (int64_t)mint_key.size));
    }
    struct key_message message = {""};
    const struct gate_options options = config_gate_options(&server->config);
    status = gate_init(&http->gate, &options, &message);
    if (status != STATUS_OK)
        return server_refuse(server, status, "no keys for tokens: %.900s", message.text);
    keys_record(NULL, &http->gate, server->keys_digest);
    status = revoked_load(&server->revoked, http, server->store);
    if (status != STATUS_OK)
        return server_refuse(server, status, "cannot read what was revoked: %s",
                             status_message(status));
    return STATUS_OK;
}

static void log_certificate(const struct server *server, const char *event) {
    int64_t not_after_s = tls_context_not_after_s(server->http.tls);
    bool is_expired = not_after_s <= (int64_t)(clock_now().wall_ms / MS_PER_S);
    log_event(is_expired ? LOG_WARN : LOG_INFO, is_expired ? "tls.certificate_expired" : event,
              log_str("certificate", server->config.tls_cert_file),
              log_int("not_after_s", not_after_s));
}

/* The rules before stay in force if the file cannot be used. */
static void reload_topics(struct server *server) {
    const struct policy_table *policies = &server->config.policies;
    struct topics_message message = {""};
    char before[TOPIC_RULES_HASH_SIZE], after[TOPIC_RULES_HASH_SIZE];
    bool is_changed = false;
    (void)policy_rules_hash(policies, before);
    enum status status = topics_reload(&server->topics, &is_changed, &message);
    size_t rule_count = policy_rules_hash(policies, after);
    if (status != STATUS_OK)
        log_event(LOG_ERROR, "topics.reload_failed", log_str("reason", message.text),
                  log_str("effect", "the rules of before stay in force"));
    else
        log_event(LOG_INFO, is_changed ? "topics.reloaded" : "topics.unchanged",
                  log_str("file", server->topics.path), log_str("hash", after),
                  log_int("rules", (int64_t)rule_count));
    if (is_changed && status == STATUS_OK)
        topics_record(server->writer, before, after);
}

void server_reload(struct server *server) {
    struct tls_message message = {""};
    if (gate_reload(&server->http.gate, true))
        keys_record(server->writer, &server->http.gate, server->keys_digest);
    if (server->topics.table)
        reload_topics(server);
    if (!server->http.tls)
        return;
    /* Open connections keep their certificate. A certificate that cannot be used changes nothing.
     */
    if (tls_context_reload(server->http.tls, &message) == STATUS_OK)
        log_certificate(server, "tls.reloaded");
    else
        log_event(LOG_ERROR, "tls.reload_failed", log_str("reason", message.text));
}

/* ---- store, writer, delivery ---- */

static void on_commit(void *user, const struct store_batch *batch,
                      const struct store_entity *states) {
    struct server *server = user;
    hub_publish(server->hub, batch, states);
    if (batch->document_count > 0)
        sinks_wake(&server->sinks);
    /* Hints have a cost, and one node alone needs none. */
    bool is_followed = !store_is_shared(server->store) || nodes_has_others(server->nodes);
    if (batch->event_count > 0 && is_followed)
        fanout_announce(server->fanout, server->epoch,
                        batch->events[batch->event_count - 1].log_id);
    topic_activity_committed(server->telemetry.activity, batch);
}

/* The hint itself is not trusted: the log is read. A node on which no topic is watched need not
 * read it now: a reader that comes later reads the store first. */
static void on_hint(void *user, const struct hint *hint) {
    struct server *server = user;
    if (!hint || hint->log_id == HINT_LOG_ID_MAX)
        writer_beat_post(server->writer);
    else if (!hub_is_empty(server->hub))
        writer_hint_post(server->writer);
}

static void on_refused(void *user, const struct append_request *request) {
    const struct server *server = user;
    if (!request->refusal.topic.data)
        return;
    if (request->status == STATUS_KHALA_PUBLISH_RATE_LIMITED)
        topic_activity_violated(server->telemetry.activity, request->refusal.topic,
                                VIOLATION_PUBLISH_RATE);
    else if (request->status == STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE)
        topic_activity_violated(server->telemetry.activity, request->refusal.topic,
                                VIOLATION_FRAME_SIZE);
}

static enum status delivery_start(struct server *server) {
    const struct config *config = &server->config;
    const struct hub_options hub = {
        .window = {config->window_frames_max, config->window_bytes_max},
        .bytes_max = config->windows_bytes_max,
    };
    const struct consumers_options consumers = {
        .capacity = config->consumer_registry_capacity,
        .interval_ms_min = config->poll_min_interval_ms,
        .lag_max = config->slow_consumer_lag_threshold,
        .strikes_max = config->slow_consumer_max_strikes,
    };
    enum status status = hub_open(&server->hub, &hub);
    if (status == STATUS_OK)
        hub_set_projection_version(server->hub, slice_of(server->config.projection_version));
    if (status == STATUS_OK)
        status = consumers_open(&server->consumers, &consumers);
    if (status == STATUS_OK)
        status = subscription_quota_open(&server->subscription_quota, server->quotas);
    if (status == STATUS_OK)
        status = causes_open(&server->telemetry.causes, CAUSES_KEPT_MAX);
    return status == STATUS_OK ? topic_activity_open(&server->telemetry.activity, TOPICS_KEPT_MAX)
                               : status;
}

static void on_pruned(void *user, struct slice topic, uint64_t oldest_seq) {
    struct server *server = user;
    hub_prune(server->hub, topic, oldest_seq);
}

/* The projector, the hints and the nodes come first: the writer announces its first commit. */
static enum status writer_open(struct server *server) {
    const struct projector_options derive = {
        .projection_version = slice_of(server->config.projection_version),
        .sink = sinks_of_commit(&server->config),
    };
    const struct fanout_options fanout = {
        .kind = config_fanout_kind(&server->config),
        .url = config_fanout_url(&server->config),
        .channel = server->fanout_channel,
        .log_id = server->log_id,
    };
    enum status status = projector_open(&server->projector, &derive);
    if (status == STATUS_OK)
        status = fanout_open(&server->fanout, &fanout);
    if (status == STATUS_OK)
        status = nodes_open(&server->nodes,
                            &(struct nodes_options){.version = KHALA_VERSION,
                                                    .policies = &server->config.policies});
    if (status != STATUS_OK)
        return status;
    server->following.hub = server->hub;
    server->following.activity = server->telemetry.activity;
    server->following.nodes = server->nodes;
    server->following.revoked = &server->revoked;
    server->following.quotas = server->quotas;
    server->following.operator_keys = server->http.operator_keys;
    server->following.folder = server->config.data_dir;
    server->following.epoch = server->epoch;
    server->following.schema_version =
        (uint64_t)store_schema_version(config_store_url(&server->config));
    const struct writer_options options = {.store = server->store,
                                           .policies = &server->config.policies,
                                           .quotas = server->quotas,
                                           .projection = projector_projection(server->projector),
                                           .on_commit = on_commit,
                                           .on_refused = on_refused,
                                           .user = server,
                                           .group_max = server->config.writer_queue_max,
                                           .bytes_max = server->config.writer_queue_bytes_max,
                                           .follow_poll_ms = server->config.follow_poll_ms,
                                           .follow = following_hooks(&server->following),
                                           .outbox_poll_ms = server->config.outbox_poll_ms,
                                           .outbox_row_bytes_max =
                                               config_item_bytes_max(&server->config)};
    status = writer_start(&server->writer, &options);
    server->revoked.writer = server->writer;
    server->following.writer = server->writer;
    if (status == STATUS_OK)
        fanout_listen(server->fanout, server, on_hint);
    return status;
}

/* The threads that work beside the writer: retention, store pool, snapshots, sinks, rebuild. */
static enum status workers_start(struct server *server) {
    const struct config *config = &server->config;
    const struct retention_options retention = {
        .store = server->store,
        .writer = server->writer,
        .policies = &config->policies,
        .interval_ms = config->retention_interval_ms,
        .on_pruned = on_pruned,
        .on_pruned_user = server,
    };
    const struct store_pool_options pool = {
        .thread_count = config->readers,
        .tasks_max = STORE_POOL_TASKS_MAX,
        .principal_tasks_max = config->reads_per_principal_max,
    };
    const struct rebuild_options rebuild = {
        .store = server->store,
        .writer = server->writer,
        .projector = server->projector,
        .projection_version = slice_of(config->projection_version),
        .folder = config->data_dir,
    };
    enum status status = retention_start(&server->retention, &retention);
    if (status == STATUS_OK)
        status = store_pool_start(&server->store_pool, server->store, &pool);
    const struct snapshot_service_options snapshots = {
        .policies = &config->policies,
        .folder = config->data_dir,
        .bytes_max = config->snapshots_bytes_max,
        .store = server->store,
        .store_pool = server->store_pool,
        .retention = server->retention,
        .writer = server->writer,
    };
    if (status == STATUS_OK)
        status = snapshot_service_start(&server->snapshot_service, &snapshots);
    if (status == STATUS_OK)
        status = sinks_start(&server->sinks, config, server->store, server->writer);
    return status == STATUS_OK && sinks_of_commit(config) == &sink_tables
               ? rebuild_start(&server->rebuild, &rebuild)
               : status;
}

/* The place of the store, for messages. */
static struct store_message store_label(const struct server *server) {
    struct store_message label;
    store_url_label(config_store_url(&server->config), label.text, sizeof(label.text));
    return label;
}

/* Checks the end of the log, and reads what the store says about itself. A crash, or a disk that
 * does not sync, damages the end of the log first, and the writer would append to it. Checking the
 * whole log would delay the start of a large store by minutes. */
static enum status state_read(struct server *server) {
    const struct verify_sample sample = {.stretch_count = 1, .stretch_events = TAIL_EVENTS};
    struct store_session *session;
    struct verify_result result;
    struct store_state state;
    enum status status = store_session_open(server->store, STORE_READ, &session);
    if (status != STATUS_OK)
        return status;
    status = verify_sample(session, &sample, &result);
    if (status == STATUS_OK && result.is_broken) {
        store_session_close(session);
        return server_refuse(
            server, STATUS_INVALID_CONFIG,
            "the log in %s is damaged at log id %llu (%.200s): %s: 'khala doctor' says "
            "what to do",
            store_label(server).text, (unsigned long long)result.broken.log_id,
            result.broken.entity, result.broken.message);
    }
    if (status == STATUS_OK)
        status = store_read_state(session, &state);
    if (status == STATUS_OK)
        status = quota_table_read(server->quotas, session);
    if (status == STATUS_OK)
        status = operator_keys_read(server->http.operator_keys, session);
    store_session_close(session);
    if (status != STATUS_OK)
        return status;
    memcpy(server->epoch, state.epoch, sizeof(server->epoch));
    snprintf(server->fanout_channel, sizeof(server->fanout_channel), "khala.%02x%02x%02x",
             state.id_mark.bytes[0], state.id_mark.bytes[1], state.id_mark.bytes[2]);
    server->log_id = state.log_id;
    server->log_ms = state.log_id > 0 ? event_cursor_of(&state.cursor).timestamp_ms : 0;
    return STATUS_OK;
}

/* Loads the keys, and generates those that are missing. */
static enum status keys_start(struct server *server) {
    const char *folder = server->config.data_dir;
    struct store_session *lock = NULL;
    enum status shared = shared_keys_fetch(server->store, folder, &lock);
    enum status status = shared == STATUS_OK ? keys_load(server) : shared;
    if (status == STATUS_OK)
        status = shared = shared_keys_keep(lock, folder);
    if (shared != STATUS_OK)
        status = server_refuse(
            server, shared, "cannot share the keys in %s with the database: %s", folder,
            shared == STATUS_SYSTEM_ERROR ? strerror(errno) : status_message(shared));
    store_session_close(lock);
    return status;
}

static enum status store_open_all(struct server *server) {
    struct store_message message = {""};
    enum status status = store_join(&server->store, config_store_url(&server->config), &message);
    if (status != STATUS_OK)
        return server_refuse(server, status, "%s", message.text);
    store_set_reserve(server->store, server->config.disk_reserve_bytes);
    /* The embedded store makes its folder. A store elsewhere leaves it to the server, for keys and
     * temporary files. */
    const char *folder = server->config.data_dir;
    if (*server->config.db_url && mkdir(folder, 0700) != 0 && errno != EEXIST)
        return server_refuse(server, STATUS_STORE_UNAVAILABLE,
                             "%s: cannot make the folder: %s; --data-dir or KHALA_DATA_DIR names "
                             "another",
                             folder, strerror(errno));
    status = keys_start(server);
    if (status != STATUS_OK)
        return status;
    const struct tls_options tls = config_tls_options(&server->config);
    if (*tls.certificate_file) {
        struct tls_message reason = {""};
        status = tls_context_open(&server->http.tls, &tls, &reason);
        if (status != STATUS_OK)
            return server_refuse(server, status, "no TLS: %s",
                                 *reason.text ? reason.text : status_message(status));
        log_certificate(server, "tls.ready");
    }
    const struct quota_limits quotas = config_quota_limits(&server->config);
    status = quota_table_open(&server->quotas, &quotas);
    if (status == STATUS_OK)
        status = operator_keys_open(&server->http.operator_keys);
    if (status == STATUS_OK)
        status = state_read(server);
    if (status == STATUS_INVALID_CONFIG)
        return status;
    if (status == STATUS_OK)
        status = delivery_start(server);
    if (status == STATUS_OK)
        status = writer_open(server);
    if (status == STATUS_OK)
        status = workers_start(server);
    if (status == STATUS_INTERNAL_ERROR)
        return server_refuse(
            server, status,
            "the store in %s is damaged: 'khala verify' names the place; restore a backup",
            store_label(server).text);
    if (status != STATUS_OK)
        return server_refuse(server, status, "cannot work on the store in %s: %s",
                             store_label(server).text, status_message(status));
    return STATUS_OK;
}

/* ---- contexts ---- */

static void delivery_fill(struct server *server) {
    const struct config *config = &server->config;
    server->dialects = (struct dialect_settings){
        .gate = &server->http.gate,
        .single_uses = &server->http.single_uses,
        .message_bytes_max = config->message_bytes_max,
        .first_message_bytes_max = config->request_head_bytes_max < config->message_bytes_max
                                       ? config->request_head_bytes_max
                                       : config->message_bytes_max,
        .messages_per_second = config->messages_per_second,
        .subscriptions_max = config->subscriptions_max,
        .audit_init_timeout_ms = config->audit_init_timeout_ms,
        .token_single_use = config->token_single_use,
        .legacy_cursors = config->legacy_cursors,
        .poll_default_limit = config->poll_default_limit,
        .poll_max_limit = config->poll_max_limit,
        .outbound_queue_limit = config->outbound_queue_limit,
    };
    server->delivery = (struct delivery){
        .options = {.heartbeat_ms = config->heartbeat_ms,
                    .strike_check_ms = config->slow_consumer_check_ms,
                    .lag_max = config->slow_consumer_lag_threshold,
                    .lag_follows_budgets = config_lag_follows_budgets(config),
                    .strikes_max = config->slow_consumer_max_strikes,
                    .slice_frames = config->fair_topic_slice_limit},
        .policies = &config->policies,
        .epoch = server->epoch,
        .revocations = server->http.gate.revocations,
        .hub = server->hub,
        .store_pool = server->store_pool,
        .writer = server->writer,
        .snapshots = &server->snapshot_service,
        .telemetry = &server->telemetry,
        .consumers = server->consumers,
        .subscription_quota = server->subscription_quota,
        .dialects = &server->dialects,
    };
}

static enum status api_fill(struct server *server, size_t loop_count) {
    struct api *api = &server->api;
    api->http = &server->http;
    api->policies = &server->config.policies;
    api->telemetry = &server->telemetry;
    api->store_pool = server->store_pool;
    api->writer = server->writer;
    api->projector = server->projector;
    api->retention = server->retention;
    api->hub = server->hub;
    api->consumers = server->consumers;
    api->fanout = server->fanout;
    api->quotas = server->quotas;
    api->nodes = server->nodes;
    api->is_shared = store_is_shared(server->store);
    api->epoch = server->epoch;
    api->snapshot_service = &server->snapshot_service;
    api->projection_version = slice_of(server->config.projection_version);
    api->relays = server->sinks.relays;
    api->relay_count = server->sinks.count;
    api->started = clock_now();
    api->item_bytes_max = config_item_bytes_max(&server->config);
    api->batch_shares.bytes_max = server->config.batches_bytes_max;
    api->batch_shares.quotas = server->quotas;
    batch_shares_init(&api->batch_shares);
    api->folder = server->config.data_dir;
    api->store = server->store;
    api->batch_spools.thread = &api->files;
    api->batch_spools.folder = server->config.data_dir;
    api->batch_spools.bytes_max = server->config.batch_spool_bytes_max;
    api->batch_spools.files_max = descriptors_for_answers();
    api->batch_spools.disk_free_bytes_min = SPOOL_DISK_FREE_BYTES_MIN;
    spool_files_init(&api->batch_spools);
    api->snapshots_bytes_max = server->config.snapshots_bytes_max;
    api->appends = calloc(loop_count, sizeof(*api->appends));
    if (!api->appends)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < loop_count; i++)
        append_memory_init(&api->appends[i], server->http.options.append_bytes_max);
    return file_thread_start(&api->files);
}

enum status server_open(struct server *server, size_t loop_count) {
    const struct config *config = &server->config;
    struct http *http = &server->http;
    uint64_t failures = config->auth_failures_per_minute;
    server->telemetry.policies = &config->policies;
    server->backoff.base_ms = config->reconnect_base_backoff_ms;
    atomic_init(&server->backoff.spread_ms, config->reconnect_jitter_ms);
    struct topics_message message = {""};
    enum status status =
        topics_open(&server->topics, &server->config.policies, config->topics_file, &message);
    if (status != STATUS_OK)
        return server_refuse(server, status, "KHALA_TOPICS_FILE: %.900s", message.text);
    status = store_open_all(server);
    if (status != STATUS_OK)
        return status;
    http->options = config_http_options(config);
    http->routes = api_routes;
    http->conn_events = &dispatch_events;
    http->telemetry = &server->telemetry;
    http->store_pool = server->store_pool;
    unread_answers_init(&http->unread_answers, config->unread_bytes_per_principal_max);
    http->writer = server->writer;
    single_uses_init(&http->single_uses, server->writer);
    rate_table_init(&http->auth_failures,
                    &(struct rate_options){.interval_ms = failures < 60000 ? 60000 / failures : 1,
                                           .burst = failures / 3 > 0 ? failures / 3 : 1,
                                           .count_max = RATE_ADDRESSES_MAX});
    http->api = &server->api;
    http->loop_count = loop_count;
    http->conn_limits.conn_max = config->connections_max;
    http->conn_limits.unauthenticated_max = config->connections_unauthenticated_max;
    http->conn_limits.reserved_max = OPERATOR_RESERVE;
    http->conn_shares.principal_max = config->connections_per_principal_max;
    http->conn_shares.address_max = config->connections_per_address_max;
    status = conn_shares_init(&http->conn_shares);
    if (status != STATUS_OK)
        return status;
    delivery_fill(server);
    return api_fill(server, loop_count);
}

void server_close(struct server *server) {
    if (server->store_pool)
        store_pool_stop(server->store_pool);
    sinks_stop(&server->sinks);
    rebuild_stop(server->rebuild);
    /* Snapshots hold pins of the retention, and the retention prunes through the writer. So they
     * stop in this order. */
    snapshot_service_stop(&server->snapshot_service);
    if (server->retention)
        retention_stop(server->retention);
    if (server->fanout)
        fanout_listen(server->fanout, NULL, NULL);
    if (server->writer)
        writer_stop(server->writer);
    fanout_close(server->fanout);
    nodes_close(server->nodes);
    if (server->projector)
        projector_close(server->projector);
    quota_table_close(server->quotas);
    operator_keys_close(server->http.operator_keys);
    if (server->consumers)
        consumers_close(server->consumers);
    subscription_quota_close(server->subscription_quota);
    single_uses_release(&server->http.single_uses);
    rate_table_release(&server->http.auth_failures);
    causes_close(server->telemetry.causes);
    topic_activity_close(server->telemetry.activity);
    if (server->hub)
        hub_close(server->hub);
    gate_release(&server->http.gate);
    tls_context_close(server->http.tls);
    if (server->store)
        store_close(server->store);
    for (size_t i = 0; server->api.appends && i < server->http.loop_count; i++)
        append_memory_release(&server->api.appends[i]);
    free(server->api.appends);
    free(server->http.loops);
    conn_shares_release(&server->http.conn_shares);
    unread_answers_release(&server->http.unread_answers);
    batch_shares_release(&server->api.batch_shares);
    file_thread_stop(&server->api.files);
    spool_files_release(&server->api.batch_spools);
    topics_close(&server->topics);
}

/* ---- while it runs ---- */

void server_check(struct server *server) {
    struct store_message message;
    /* Checked also without appends, so that readiness and the log show a moved store before the
     * first append is refused. */
    bool is_moved = store_check_location(server->store, &message) != STATUS_OK;
    bool was_moved = atomic_exchange(&server->api.health.is_moved, is_moved);
    if (is_moved && !was_moved)
        log_event(LOG_ERROR, "store.moved", log_str("error", message.text),
                  log_str("effect", "appends are refused until it is back"));
    else if (was_moved && !is_moved)
        log_event(LOG_INFO, "store.back", log_str("effect", "appends are taken again"));
    if (gate_reload(&server->http.gate, false))
        keys_record(server->writer, &server->http.gate, server->keys_digest);
    if (!store_is_shared(server->store))
        revoked_check_keys(&server->revoked);
    telemetry_tick(&server->telemetry);
    process_stats_refresh();
}
