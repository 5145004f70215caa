#include "server/server.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "delivery/telemetry.h"
#include "io/descriptors.h"
#include "io/listen.h"
#include "projector/verify.h"
#include "server/notify.h"
#include "server/process_stats.h"

#define READER_TASKS_MAX 100000
#define CAUSES_KEPT      1024
#define TOPICS_KEPT      1024
#define STORE_FAILED_MS  5000
#define KEY_BYTES_SHORT  16
#define LOOK_MS          1000
#define ITEM_BYTES       (512u << 10)
#define BODY_BYTES       (1u << 20)
#define TAIL_EVENTS      256
#define MS_PER_S         1000
#define US_PER_MS        1000
/* What a small machine welcomes, with TLS and a replay each. */
#define RETURNS_PER_MS 1
#define RETURN_MS_MAX  60000
/* For reads under way and the store's last checkpoint, which nothing interrupts. */
#define STOP_MARGIN_MS 20000

__attribute__((format(printf, 3, 4))) static enum status
refuse(struct server *server, enum status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(server->message, sizeof(server->message), format, arguments);
    va_end(arguments);
    log_event(LOG_ERROR, "server.refused", log_str("reason", server->message));
    return status;
}

static size_t loop_count_wanted(const struct config *config) {
    if (config->io_loops > 0)
        return config->io_loops;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores > CONFIG_LOOPS_MAX ? CONFIG_LOOPS_MAX : (size_t)cores;
}

void server_append_seen(struct server *server, enum status status, uint64_t mono_ms) {
    uint64_t failed_at_ms = atomic_load(&server->store_failed_at_ms);
    if (status == STATUS_STORE_UNAVAILABLE)
        atomic_store(&server->store_failed_at_ms, mono_ms);
    else if (status == STATUS_OK && failed_at_ms != 0)
        atomic_store(&server->store_failed_at_ms, 0);
}

bool server_store_works(const struct server *server, uint64_t mono_ms) {
    uint64_t failed_at_ms = atomic_load(&server->store_failed_at_ms);
    if (atomic_load(&server->is_store_moved))
        return false;
    /* After a while somebody must try, or a server that gets no appends would never recover. */
    /* The failure may have been seen by a loop whose turn began later than the asker's. */
    return failed_at_ms == 0 || mono_ms > failed_at_ms + STORE_FAILED_MS;
}

enum reason server_store_reason(const struct server *server) {
    enum reason reason = REASON_STORE_FAILED;
    if (atomic_load(&server->is_store_moved))
        return REASON_STORE_MOVED;
    return writer_is_failing(server->writer, &reason) ? reason : REASON_STORE_FAILED;
}

static void loops_end(struct server *server) {
    /* A loop waits for what it is owed, and a build may take its time. */
    snapshot_service_cancel(&server->snapshot_service);
    for (size_t i = 0; i < server->loops_started; i++)
        io_loop_end_post(&server->loops[i]);
}

static void on_grace_over(uv_timer_t *grace) {
    struct server *server = grace->data;
    log_event(LOG_WARN, "server.grace_over",
              log_int("loops", (int64_t)atomic_load(&server->loops_running)));
    loops_end(server);
}

/* All clients are told at once, so that the next server is soon there, and come back one after the
 * other, no more in a millisecond than it can welcome. */
static void spread_returns(struct server *server) {
    uint64_t spread_ms = atomic_load(&server->conn_count) / RETURNS_PER_MS;
    if (spread_ms > RETURN_MS_MAX)
        spread_ms = RETURN_MS_MAX;
    if (spread_ms > server->config.reconnect_jitter_ms)
        atomic_store(&server->return_spread_ms, spread_ms);
}

static void drain(struct server *server) {
    if (atomic_exchange(&server->draining, true))
        return;
    spread_returns(server);
    log_event(LOG_INFO, "server.draining",
              log_int("connections", (int64_t)atomic_load(&server->conn_count)),
              log_int("return_spread_ms", (int64_t)atomic_load(&server->return_spread_ms)),
              log_int("grace_ms", (int64_t)server->config.shutdown_grace_ms));
    notify_send("STATUS=Finishes the requests under way");
    retention_end_post(server->retention);
    for (size_t i = 0; i < server->loops_started; i++)
        io_loop_drain_post(&server->loops[i]);
    uv_timer_start(&server->grace, on_grace_over, server->config.shutdown_grace_ms, 0);
}

static void on_delay_over(uv_timer_t *grace) {
    drain(grace->data);
}

/* The manager would not wait for longer settings than the unit's author knew of. */
static void tell_stopping(const struct config *config) {
    char lines[128];
    uint64_t within_ms = config->shutdown_delay_ms + config->shutdown_grace_ms + STOP_MARGIN_MS;
    (void)snprintf(lines, sizeof(lines),
                   "STOPPING=1\nSTATUS=Is not ready any more\nEXTEND_TIMEOUT_USEC=%" PRIu64,
                   within_ms * US_PER_MS);
    notify_send(lines);
}

static void on_signal(uv_signal_t *handle, int number) {
    struct server *server = handle->data;
    const struct config *config = &server->config;
    bool again = atomic_exchange(&server->ending, true);
    log_event(LOG_INFO, again ? "server.ending" : "server.stopping",
              log_str("signal", strsignal(number)),
              log_int("delay_ms", again ? 0 : (int64_t)config->shutdown_delay_ms));
    if (again) {
        drain(server);
        loops_end(server);
        return;
    }
    tell_stopping(config);
    if (config->shutdown_delay_ms > 0)
        uv_timer_start(&server->grace, on_delay_over, config->shutdown_delay_ms, 0);
    else
        drain(server);
}

static void tell_certificate(const struct server *server, const char *event) {
    int64_t not_after_s = tls_context_not_after_s(server->tls);
    bool is_over = not_after_s <= (int64_t)(clock_now().wall_ms / MS_PER_S);
    log_event(is_over ? LOG_WARN : LOG_INFO, is_over ? "tls.certificate_expired" : event,
              log_str("certificate", server->config.tls_cert_file),
              log_int("not_after_s", not_after_s));
}

/* Connections keep what they began with; a certificate that cannot be used changes nothing. */
static void tls_reload(struct server *server) {
    struct tls_message message = {""};
    if (tls_context_reload(server->tls, &message) == STATUS_OK)
        tell_certificate(server, "tls.reloaded");
    else
        log_event(LOG_ERROR, "tls.reload_failed", log_str("reason", message.text));
}

static void on_hang_up(uv_signal_t *handle, int number) {
    struct server *server = handle->data;
    (void)number;
    gate_reload(&server->gate, true);
    if (server->tls)
        tls_reload(server);
}

/* Also without appends: who asks whether the server is ready, and who reads the log, learn of it
 * before the first is refused. */
static void look_at_store(struct server *server) {
    struct store_message message;
    bool is_moved = store_check_location(server->store, &message) != STATUS_OK;
    if (atomic_exchange(&server->is_store_moved, is_moved) == is_moved)
        return;
    if (is_moved)
        log_event(LOG_ERROR, "store.moved", log_str("error", message.text),
                  log_str("effect", "appends are refused until it is back"));
    else
        log_event(LOG_INFO, "store.back", log_str("effect", "appends are taken again"));
}

static void on_look(uv_timer_t *look) {
    struct server *server = look->data;
    look_at_store(server);
    gate_reload(&server->gate, false);
    telemetry_tick(server);
    process_stats_look();
}

/* Signals are still taken, and do nothing more, until the process is gone: one that comes while the
 * writer stores what it has must not end it. */
static void control_close(struct server *server) {
    uv_unref((uv_handle_t *)&server->terminate);
    uv_unref((uv_handle_t *)&server->interrupt);
    uv_unref((uv_handle_t *)&server->hang_up);
    uv_close((uv_handle_t *)&server->grace, NULL);
    uv_close((uv_handle_t *)&server->snapshot_service.timer, NULL);
    uv_close((uv_handle_t *)&server->look, NULL);
    uv_close((uv_handle_t *)&server->loop_ended, NULL);
    watchdog_close(&server->watchdog);
}

static void on_loop_ended(uv_async_t *handle) {
    struct server *server = handle->data;
    if (atomic_load(&server->loops_running) == 0)
        control_close(server);
}

void server_loop_ended_post(struct server *server) {
    atomic_fetch_sub(&server->loops_running, 1);
    uv_async_send(&server->loop_ended);
}

static enum status control_init(struct server *server) {
    if (uv_loop_init(&server->control) != 0)
        return STATUS_SYSTEM_ERROR;
    uv_signal_init(&server->control, &server->terminate);
    uv_signal_init(&server->control, &server->interrupt);
    uv_signal_init(&server->control, &server->hang_up);
    uv_timer_init(&server->control, &server->grace);
    uv_timer_init(&server->control, &server->look);
    uv_async_init(&server->control, &server->loop_ended, on_loop_ended);
    snapshot_service_timer(&server->snapshot_service, &server->control);
    watchdog_init(&server->watchdog, &server->control);
    server->terminate.data = server->interrupt.data = server;
    server->hang_up.data = server->look.data = server;
    server->grace.data = server->loop_ended.data = server;
    uv_signal_start(&server->terminate, on_signal, SIGTERM);
    uv_signal_start(&server->interrupt, on_signal, SIGINT);
    uv_signal_start(&server->hang_up, on_hang_up, SIGHUP);
    uv_timer_start(&server->look, on_look, LOOK_MS, LOOK_MS);
    return STATUS_OK;
}

static enum status addresses_open(struct server *server, const struct config_address *address,
                                  const char *setting, int *fds, uint16_t *port) {
    enum status status = listen_open(address, fds, server->loop_count, port);
    if (status == STATUS_OK)
        return STATUS_OK;
    const char *reason =
        status == STATUS_SYSTEM_ERROR ? strerror(errno) : "the host does not resolve";
    bool is_taken = status == STATUS_SYSTEM_ERROR && errno == EADDRINUSE;
    return refuse(server, status, "cannot listen on %s:%u: %s%s%s%s", address->host,
                  (unsigned)address->port, reason, is_taken ? "; " : "", is_taken ? setting : "",
                  is_taken ? " names another" : "");
}

static enum status listeners_open(struct server *server, int *fds, int *operator_fds) {
    const struct config *config = &server->config;
    enum status status =
        addresses_open(server, &config->bind, "--bind or RUNTIME_BIND_ADDR", fds, &server->port);
    if (status == STATUS_OK && *config->operator_bind.host)
        status = addresses_open(server, &config->operator_bind, "KHALA_OPERATOR_BIND_ADDR",
                                operator_fds, &server->operator_port);
    return status;
}

static enum status loop_start(struct server *server, struct io_loop *loop) {
    atomic_fetch_add(&server->loops_running, 1);
    enum status status = io_loop_start(loop);
    if (status != STATUS_OK) {
        atomic_fetch_sub(&server->loops_running, 1);
        return status;
    }
    server->loops_started++;
    /* It listens in its own table; here it would go on listening after the loop has ended. */
    if (loop->has_own_descriptors) {
        close(loop->listen_fd);
        if (loop->operator_fd >= 0)
            close(loop->operator_fd);
    }
    return STATUS_OK;
}

static enum status loops_start(struct server *server) {
    int fds[CONFIG_LOOPS_MAX];
    int operator_fds[CONFIG_LOOPS_MAX];
    for (size_t i = 0; i < CONFIG_LOOPS_MAX; i++)
        fds[i] = operator_fds[i] = -1;
    server->loop_count = loop_count_wanted(&server->config);
    enum status status = listeners_open(server, fds, operator_fds);
    if (status != STATUS_OK)
        return status;
    server->loops = calloc(server->loop_count, sizeof(*server->loops));
    if (!server->loops)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; status == STATUS_OK && i < server->loop_count; i++)
        status = io_loop_open(&server->loops[i], server, fds[i], operator_fds[i]);
    for (size_t i = 0; status == STATUS_OK && i < server->loop_count; i++)
        status = loop_start(server, &server->loops[i]);
    return status == STATUS_OK ? status
                               : refuse(server, status, "cannot start io loop %zu of %zu",
                                        server->loops_started + 1, server->loop_count);
}

/* Room for the largest payload there may be, written less tersely than canonical JSON. */
static void body_limits_set(struct server *server) {
    uint64_t largest = 0;
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++)
        if (server->config.policies.rows[i].max_payload_bytes > largest)
            largest = server->config.policies.rows[i].max_payload_bytes;
    server->item_bytes_max = 2 * largest > ITEM_BYTES ? 2 * largest : ITEM_BYTES;
    server->body_bytes_max = 2 * largest > BODY_BYTES ? 2 * largest : BODY_BYTES;
}

static enum status key_start(struct server *server) {
    struct operator_key *key = &server->operator_key;
    enum status status =
        operator_key_load(key, server->config.operator_key, server->config.data_dir);
    if (status == STATUS_INVALID_CONFIG)
        return refuse(server, status,
                      "%s does not hold an operator key; remove it to have one made", key->path);
    if (status != STATUS_OK)
        return refuse(server, status, "cannot read or make %s: %s", key->path, strerror(errno));
    if (strlen(key->text) < KEY_BYTES_SHORT)
        log_event(LOG_WARN, "operator_key.short",
                  log_int("characters", (int64_t)strlen(key->text)));
    return STATUS_OK;
}

static enum status add_revocation(void *user, const struct store_revocation *revocation) {
    struct server *server = user;
    return revocations_add(server->gate.revocations, revocation->kind, revocation->id,
                           revocation->expires_at_ms, revocation->revoked_at_ms);
}

/* Before anybody can connect: what was revoked stays so, expired or not: the clock may be wrong. */
static enum status revocations_load(struct server *server) {
    struct store_session *session = NULL;
    enum status status = store_session_open(server->store, STORE_READ, &session);
    if (status == STATUS_OK)
        status = store_walk_revocations(session, 0, server, add_revocation);
    store_session_close(session);
    return status;
}

static enum status gate_start(struct server *server) {
    struct key_message message = {""};
    enum status status = gate_init(&server->gate, &server->config, &message);
    if (status != STATUS_OK)
        return refuse(server, status, "no keys for tokens: %.900s", message.text);
    status = revocations_load(server);
    if (status != STATUS_OK)
        return refuse(server, status, "cannot read what was revoked: %s", status_message(status));
    return STATUS_OK;
}

static enum status tls_start(struct server *server) {
    struct tls_message message = {""};
    const struct tls_options options = tls_options_of(&server->config);
    if (!*options.certificate_file)
        return STATUS_OK;
    enum status status = tls_context_open(&server->tls, &options, &message);
    if (status != STATUS_OK)
        return refuse(server, status, "no TLS: %s",
                      *message.text ? message.text : status_message(status));
    tell_certificate(server, "tls.ready");
    return STATUS_OK;
}

static void on_commit(void *user, const struct store_batch *batch,
                      const struct store_entity *states) {
    struct server *server = user;
    hub_publish(server->hub, batch, states);
    topic_activity_committed(server->activity, batch);
}

static void on_refused(void *user, const struct append_request *request) {
    const struct server *server = user;
    if (!request->refusal.topic.data)
        return;
    if (request->status == STATUS_KHALA_PUBLISH_RATE_LIMITED)
        topic_activity_violated(server->activity, request->refusal.topic, VIOLATION_PUBLISH_RATE);
    else if (request->status == STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE)
        topic_activity_violated(server->activity, request->refusal.topic, VIOLATION_FRAME_SIZE);
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
        status = consumers_open(&server->consumers, &consumers);
    if (status == STATUS_OK)
        status = causes_open(&server->causes, CAUSES_KEPT);
    return status == STATUS_OK ? topic_activity_open(&server->activity, TOPICS_KEPT) : status;
}

static void on_pruned(void *user, struct slice topic, uint64_t oldest_seq) {
    struct server *server = user;
    hub_prune(server->hub, topic, oldest_seq);
}

static enum status keeper_start(struct server *server) {
    const struct retention_options options = {
        .store = server->store,
        .writer = server->writer,
        .policies = &server->config.policies,
        .interval_ms = server->config.retention_interval_ms,
        .on_pruned = on_pruned,
        .on_pruned_user = server,
    };
    return retention_start(&server->retention, &options);
}

static enum status writer_and_readers_start(struct server *server) {
    const struct projector_options derive = {.sink = NULL};
    enum status status = projector_open(&server->projector, &derive);
    if (status != STATUS_OK)
        return status;
    const struct writer_options options = {.store = server->store,
                                           .policies = &server->config.policies,
                                           .projection = projector_projection(server->projector),
                                           .on_commit = on_commit,
                                           .on_refused = on_refused,
                                           .on_commit_user = server,
                                           .group_max = server->config.writer_queue_max,
                                           .bytes_max = server->config.writer_queue_bytes_max};
    status = writer_start(&server->writer, &options);
    if (status == STATUS_OK)
        status = keeper_start(server);
    if (status == STATUS_OK)
        status = store_pool_start(&server->store_pool, server->store, server->config.readers,
                                  READER_TASKS_MAX);
    if (status == STATUS_OK)
        status = snapshot_service_start(&server->snapshot_service, server);
    return status;
}

static enum status state_read(struct server *server) {
    struct store_session *session;
    struct store_state state;
    enum status status = store_session_open(server->store, STORE_READ, &session);
    if (status != STATUS_OK)
        return status;
    status = store_read_state(session, &state);
    store_session_close(session);
    if (status != STATUS_OK)
        return status;
    memcpy(server->epoch, state.epoch, sizeof(server->epoch));
    server->log_ms = state.log_id > 0 ? event_cursor_of(&state.cursor).timestamp_ms : 0;
    return STATUS_OK;
}

/* What a crash or a disk that lies about syncing harms first is the end of the log, on which the
 * writer would build; looking at all of it would keep a large store from starting for minutes. */
static enum status tail_check(struct server *server) {
    const struct verify_sample sample = {.stretch_count = 1, .stretch_events = TAIL_EVENTS};
    struct store_session *session = NULL;
    struct verify_result result;
    enum status status = store_session_open(server->store, STORE_READ, &session);
    if (status != STATUS_OK)
        return status;
    status = verify_sample(session, &sample, &result);
    store_session_close(session);
    if (status == STATUS_OK && result.is_broken)
        return refuse(server, STATUS_INVALID_CONFIG,
                      "the log in %s is damaged at log id %llu (%.200s): %s: 'khala doctor' says "
                      "what to do",
                      server->config.data_dir, (unsigned long long)result.broken.log_id,
                      result.broken.entity, result.broken.what);
    return status;
}

static enum status store_start(struct server *server) {
    const char *folder = server->config.data_dir;
    struct store_message message = {""};
    enum status status = store_open(&server->store, folder, true, &message);
    if (status != STATUS_OK)
        return refuse(server, status, "%s", message.text);
    status = key_start(server);
    if (status == STATUS_OK)
        status = gate_start(server);
    if (status == STATUS_OK)
        status = tls_start(server);
    if (status != STATUS_OK)
        return status;
    status = tail_check(server);
    if (status == STATUS_INVALID_CONFIG)
        return status;
    if (status == STATUS_OK)
        status = state_read(server);
    if (status == STATUS_OK)
        status = delivery_start(server);
    if (status == STATUS_OK)
        status = writer_and_readers_start(server);
    if (status == STATUS_INTERNAL_ERROR)
        return refuse(
            server, status,
            "the store in %s is damaged: 'khala verify' names the place; restore a backup", folder);
    if (status != STATUS_OK)
        return refuse(server, status, "cannot work on the store in %s: %s", folder,
                      status_message(status));
    return STATUS_OK;
}

/* After the loops, which post to all of these. */
static void store_stop(struct server *server) {
    if (server->store_pool)
        store_pool_stop(server->store_pool);
    /* Its snapshots hold pins of the retention, which prunes through the writer. */
    snapshot_service_stop(&server->snapshot_service);
    if (server->retention)
        retention_stop(server->retention);
    if (server->writer)
        writer_stop(server->writer);
    if (server->projector)
        projector_close(server->projector);
    if (server->consumers)
        consumers_close(server->consumers);
    causes_close(server->causes);
    topic_activity_close(server->activity);
    if (server->hub)
        hub_close(server->hub);
    gate_release(&server->gate);
    tls_context_close(server->tls);
    if (server->store)
        store_close(server->store);
}

static enum status serve(struct server *server, void (*on_ready)(const struct server *)) {
    enum status status = control_init(server);
    if (status != STATUS_OK)
        return refuse(server, status, "cannot start: %s", status_message(status));
    status = loops_start(server);
    if (status == STATUS_OK) {
        log_event(LOG_INFO, "server.ready", log_str("host", server->config.bind.host),
                  log_int("port", server->port), log_int("loops", (int64_t)server->loop_count));
        on_ready(server);
        watchdog_start(&server->watchdog, server->loops, server->loops_started);
        notify_send("READY=1\nSTATUS=Serves");
    } else if (server->loops_started > 0) {
        loops_end(server);
    } else {
        control_close(server);
    }
    uv_run(&server->control, UV_RUN_DEFAULT);
    for (size_t i = 0; i < server->loops_started; i++)
        io_loop_join(&server->loops[i]);
    free(server->loops);
    return status;
}

static void descriptors_raise(const struct config *config) {
    uint64_t wanted = limits_descriptors_for(config->connections_max);
    uint64_t given = limits_descriptors_raise(wanted);
    if (given < wanted)
        log_event(LOG_WARN, "server.descriptors_few", log_int("given", (int64_t)given),
                  log_int("wanted", (int64_t)wanted),
                  log_int("connections_max", (int64_t)config->connections_max));
}

enum status server_run(struct server *server, void (*on_ready)(const struct server *)) {
    signal(SIGPIPE, SIG_IGN);
    /* Until there is something to read again. */
    signal(SIGHUP, SIG_IGN);
    /* A file that may not grow is a full disk like any other, which the store answers for. */
    signal(SIGXFSZ, SIG_IGN);
    server->started = clock_now();
    body_limits_set(server);
    atomic_init(&server->return_spread_ms, server->config.reconnect_jitter_ms);
    descriptors_raise(&server->config);
    enum status status = store_start(server);
    if (status == STATUS_OK)
        status = serve(server, on_ready);
    store_stop(server);
    telemetry_tick(server);
    if (status == STATUS_OK)
        log_event(LOG_INFO, "server.ended", log_str("state", "clean"));
    return status;
}
