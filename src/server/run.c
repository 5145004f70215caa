/* The run of a server. The sockets are bound after the store is open, every io loop gets its
 * sockets and a thread, and the main thread sleeps in the control loop, which has the signals and
 * timers. SIGTERM and SIGINT make the server unready; after the delay it drains: each loop answers
 * what is under way and closes, and the last one ends the control loop. The grace, or a second
 * signal, ends the loops at once. A new epoch of the store drains as well, and then restarts the
 * process. */
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/handlers.h"
#include "base/log.h"
#include "delivery/delivery.h"
#include "delivery/serving.h"
#include "delivery/session/session.h"
#include "delivery/session/session_events.h"
#include "dialect/dialects.h"
#include "http/conn.h"
#include "http/conn_accept.h"
#include "http/forward/forward.h"
#include "http/http_loop.h"
#include "net/descriptors.h"
#include "server/limits_report.h"
#include "server/notify.h"

#define CHECK_MS  1000
#define US_PER_MS 1000
/* Clients that a small machine can admit in a millisecond, each with TLS and a replay. */
#define RETURNS_PER_MS 1
#define RETURN_MS_MAX  60000
/* For the last reads and the store's last checkpoint, which cannot be interrupted. */
#define STOP_MARGIN_MS 20000
/* At most this part of the descriptors is reserved for the operator. */
#define RESERVE_PART 8
/* Of the command line. */
#define ARGUMENTS_MAX      64
#define ARGUMENT_BYTES_MAX 16384
/* Larger blocks of memory are mapped one by one; so much freed memory at the end of a heap is kept.
 */
#define MAPPED_BYTES_MIN (4 << 20)
#define FREED_BYTES_KEPT (16 << 20)

struct run;

struct run_loop {
    struct io_loop io;
    struct http_loop http;
    struct delivery_loop delivery;
    struct run *run;
};

struct run {
    struct server *server;
    struct run_loop *loops;
    size_t loop_count;
    atomic_size_t loops_running;
    uv_loop_t control; /* the loop of the main thread */
    uv_signal_t terminate;
    uv_signal_t interrupt;
    uv_signal_t hang_up;
    uv_timer_t grace; /* first runs the shutdown delay, then the grace */
    uv_timer_t check;
    uv_async_t loop_ended;
    struct watchdog watchdog;
    struct tls_context *cluster_tls; /* TLS with other nodes; NULL: none */
};

/* ---- the end ---- */

static void loops_end(struct run *run) {
    /* A loop waits for its calls, and the build of a snapshot may take long. */
    snapshot_service_cancel(&run->server->snapshot_service);
    for (size_t i = 0; i < run->server->http.loops_started; i++)
        io_loop_end_post(&run->loops[i].io);
}

static void on_grace_over(uv_timer_t *grace) {
    struct run *run = grace->data;
    log_event(LOG_WARN, "server.grace_over",
              log_int("loops", (int64_t)atomic_load(&run->loops_running)));
    loops_end(run);
}

static void drain(struct run *run) {
    struct server *server = run->server;
    if (atomic_exchange(&server->http.is_draining, true))
        return;
    /* All clients disconnect at once, so that the next server can start soon. Their reconnect times
     * are spread, so that no more clients return in a millisecond than a server can admit. */
    uint64_t spread_ms = conn_limits_count(&server->http.conn_limits) / RETURNS_PER_MS;
    if (spread_ms > RETURN_MS_MAX)
        spread_ms = RETURN_MS_MAX;
    if (spread_ms > server->config.reconnect_jitter_ms)
        atomic_store(&server->backoff.spread_ms, spread_ms);
    log_event(LOG_INFO, "server.draining",
              log_int("connections", (int64_t)conn_limits_count(&server->http.conn_limits)),
              log_int("return_spread_ms", (int64_t)atomic_load(&server->backoff.spread_ms)),
              log_int("grace_ms", (int64_t)server->config.shutdown_grace_ms));
    notify_send("STATUS=Finishes the requests under way");
    retention_end_post(server->retention);
    for (size_t i = 0; i < server->http.loops_started; i++)
        io_loop_drain_post(&run->loops[i].io);
    uv_timer_start(&run->grace, on_grace_over, server->config.shutdown_grace_ms, 0);
}

static void on_delay_over(uv_timer_t *grace) {
    drain(grace->data);
}

/* ---- signals and time ---- */

static void on_signal(uv_signal_t *handle, int number) {
    struct run *run = handle->data;
    const struct config *config = &run->server->config;
    char lines[128];
    bool is_second = atomic_exchange(&run->server->api.is_ending, true);
    log_event(LOG_INFO, is_second ? "server.ending" : "server.stopping",
              log_str("signal", strsignal(number)),
              log_int("delay_ms", is_second ? 0 : (int64_t)config->shutdown_delay_ms));
    if (is_second) {
        drain(run);
        loops_end(run);
        return;
    }
    /* The time that the settings allow for stopping. */
    (void)snprintf(lines, sizeof(lines),
                   "STOPPING=1\nSTATUS=Is not ready any more\nEXTEND_TIMEOUT_USEC=%" PRIu64,
                   (config->shutdown_delay_ms + config->shutdown_grace_ms + STOP_MARGIN_MS) *
                       US_PER_MS);
    notify_send(lines);
    if (config->shutdown_delay_ms > 0)
        uv_timer_start(&run->grace, on_delay_over, config->shutdown_delay_ms, 0);
    else
        drain(run);
}

static void on_hang_up(uv_signal_t *handle, int number) {
    struct run *run = handle->data;
    (void)number;
    server_reload(run->server);
}

static void on_check(uv_timer_t *check) {
    struct run *run = check->data;
    server_check(run->server);
    if (following_end(&run->server->following) != FOLLOWING_GOES_ON)
        drain(run);
}

/* The signal handlers stay until the process is gone: a signal that arrives while the writer
 * finishes must not kill the process. */
static void control_close(struct run *run) {
    uv_unref((uv_handle_t *)&run->terminate);
    uv_unref((uv_handle_t *)&run->interrupt);
    uv_unref((uv_handle_t *)&run->hang_up);
    uv_close((uv_handle_t *)&run->grace, NULL);
    uv_close((uv_handle_t *)&run->server->snapshot_service.timer, NULL);
    uv_close((uv_handle_t *)&run->check, NULL);
    uv_close((uv_handle_t *)&run->loop_ended, NULL);
    watchdog_close(&run->watchdog);
}

static void on_loop_ended(uv_async_t *handle) {
    struct run *run = handle->data;
    if (atomic_load(&run->loops_running) == 0)
        control_close(run);
}

static enum status control_init(struct run *run) {
    uv_loop_t *control = &run->control;
    if (uv_loop_init(control) != 0)
        return STATUS_SYSTEM_ERROR;
    uv_signal_init(control, &run->terminate);
    uv_signal_init(control, &run->interrupt);
    uv_signal_init(control, &run->hang_up);
    uv_timer_init(control, &run->grace);
    uv_timer_init(control, &run->check);
    uv_async_init(control, &run->loop_ended, on_loop_ended);
    snapshot_service_timer(&run->server->snapshot_service, control);
    watchdog_init(&run->watchdog, control);
    run->terminate.data = run->interrupt.data = run->hang_up.data = run;
    run->check.data = run->grace.data = run->loop_ended.data = run;
    uv_signal_start(&run->terminate, on_signal, SIGTERM);
    uv_signal_start(&run->interrupt, on_signal, SIGINT);
    uv_signal_start(&run->hang_up, on_hang_up, SIGHUP);
    uv_timer_start(&run->check, on_check, CHECK_MS, CHECK_MS);
    return STATUS_OK;
}

/* ---- loops ---- */

static void loop_ended(struct io_loop *io) {
    struct run *run = container_of(io, struct run_loop, io)->run;
    atomic_fetch_sub(&run->loops_running, 1);
    uv_async_send(&run->loop_ended);
}

static bool loop_before_sleep(struct io_loop *io) {
    return delivery_loop_serve(&container_of(io, struct run_loop, io)->delivery);
}

static void loop_drain(struct io_loop *io) {
    http_loop_drain(io);
    forwards_drain(container_of(io, struct run_loop, io)->http.forwards);
}

static const struct io_loop_hooks loop_hooks = {
    .accept = conn_accept,
    .drain = loop_drain,
    .close_all = http_loop_close_all,
    .before_sleep = loop_before_sleep,
    .ended = loop_ended,
};

static enum status address_open(struct run *run, const struct listen_address *address,
                                const char *setting, int *fds, uint16_t *port) {
    enum status status = listen_open(address, fds, fds ? run->loop_count : 0, port);
    if (status == STATUS_OK)
        return STATUS_OK;
    const char *reason =
        status == STATUS_SYSTEM_ERROR ? strerror(errno) : "the host does not resolve";
    bool is_taken = status == STATUS_SYSTEM_ERROR && errno == EADDRINUSE;
    return server_refuse(run->server, status, "cannot listen on %s:%u: %s%s%s%s", address->host,
                         (unsigned)address->port, reason, is_taken ? "; " : "",
                         is_taken ? setting : "", is_taken ? " names another" : "");
}

/* The sockets of loop i are fds[i] of each kind. fds NULL: only checks that the addresses are
 * free. */
static enum status listeners_open(struct run *run, int (*fds)[LISTEN_SOCKETS_MAX]) {
    struct server *server = run->server;
    const struct config *config = &server->config;
    enum status status = address_open(run, &config->bind, "--bind or RUNTIME_BIND_ADDR",
                                      fds ? fds[LISTENER_PUBLIC] : NULL, &server->port);
    if (status == STATUS_OK && *config->operator_bind.host)
        status = address_open(run, &config->operator_bind, "KHALA_OPERATOR_BIND_ADDR",
                              fds ? fds[LISTENER_OPERATOR] : NULL, &server->operator_port);
    return status;
}

static enum status loop_open(struct run *run, size_t index, const int *public_fds,
                             const int *operator_fds, const int *later_fds) {
    struct server *server = run->server;
    struct run_loop *loop = &run->loops[index];
    loop->run = run;
    const struct io_loop_options options = {
        .hooks = &loop_hooks,
        .owner = &loop->http,
        .backoff = &server->backoff,
        .index = index,
        .log_ms = server->log_ms,
        .fds = {public_fds[index], operator_fds[index]},
        .has_own_descriptors = server->config.own_descriptors,
        .later_fds = later_fds,
        .later_fd_count = LISTENER_COUNT * (run->loop_count - index - 1),
    };
    enum status status = io_loop_open(&loop->io, &options);
    if (status != STATUS_OK)
        return status;
    http_loop_open(&loop->http, &server->http, &loop->io);
    delivery_loop_open(&loop->delivery, &server->delivery, &loop->io);
    sessions_define_deadlines(&loop->delivery);
    deadline_queue_define(&loop->io.deadlines, DEADLINE_WAIT, 0, poll_expired);
    deadline_queue_define(&loop->io.deadlines, DEADLINE_BATCH,
                          server->http.options.request_timeout_ms, batch_expired);
    deadline_queue_define(&loop->io.deadlines, DEADLINE_BATCH_PEER, BATCH_PEER_MS,
                          batch_peer_check);
    loop->http.delivery = &loop->delivery;
    server->http.loops[index] = &loop->io;
    if (!store_is_shared(server->store))
        return STATUS_OK;
    return forwards_open(&loop->http.forwards, &(struct forwards_options){
                                                   .http = &server->http,
                                                   .loop = &loop->io,
                                                   .nodes = server->nodes,
                                                   .tls = run->cluster_tls,
                                                   .silence_ms = server->config.forward_timeout_ms,
                                               });
}

/* Binds the sockets, opens all loops, and then starts their threads. */
static enum status loops_start(struct run *run) {
    struct server *server = run->server;
    struct conn_limits *limits = &server->http.conn_limits;
    int fds[LISTENER_COUNT][LISTEN_SOCKETS_MAX];
    int later_fds[LISTENER_COUNT * LISTEN_SOCKETS_MAX]; /* those of all loops, one after another */
    for (size_t i = 0; i < LISTEN_SOCKETS_MAX; i++)
        fds[LISTENER_PUBLIC][i] = fds[LISTENER_OPERATOR][i] = -1;
    enum status status = listeners_open(run, fds);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < run->loop_count; i++)
        for (size_t kind = 0; kind < LISTENER_COUNT; kind++)
            later_fds[LISTENER_COUNT * i + kind] = fds[kind][i];
    run->loops = calloc(run->loop_count, sizeof(*run->loops));
    server->http.loops = calloc(run->loop_count, sizeof(struct io_loop *));
    if (!run->loops || !server->http.loops)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; status == STATUS_OK && i < run->loop_count; i++)
        status = loop_open(run, i, fds[LISTENER_PUBLIC], fds[LISTENER_OPERATOR],
                           &later_fds[LISTENER_COUNT * (i + 1)]);
    /* Connections beyond the descriptors could not be accepted, and would take those of the store.
     */
    uint64_t left = descriptors_left();
    if (limits->reserved_max > left / RESERVE_PART)
        limits->reserved_max = left / RESERVE_PART;
    limits->table_conn_max = left > limits->reserved_max ? left - limits->reserved_max : 1;
    for (size_t i = 0; status == STATUS_OK && i < run->loop_count; i++) {
        struct io_loop *io = &run->loops[i].io;
        /* A later loop would copy the listening sockets of one that shares this table. */
        if (i > 0 && !run->loops[i - 1].io.has_own_descriptors)
            io->has_own_descriptors = false;
        atomic_fetch_add(&run->loops_running, 1);
        status = io_loop_start(io);
        if (status != STATUS_OK) {
            atomic_fetch_sub(&run->loops_running, 1);
            break;
        }
        server->http.loops_started++;
        /* The loop listens in its own descriptor table. In this table its sockets would outlive it.
         */
        for (size_t kind = 0; io->has_own_descriptors && kind < LISTENER_COUNT; kind++)
            if (io->listeners[kind].watch.fd >= 0)
                close(io->listeners[kind].watch.fd);
    }
    return status == STATUS_OK
               ? STATUS_OK
               : server_refuse(server, status, "cannot start io loop %zu of %zu",
                               (size_t)server->http.loops_started + 1, run->loop_count);
}

/* ---- the whole ---- */

static void write_address(const struct server *server, char text[NODE_TEXT_BYTES], const char *host,
                          uint16_t port) {
    snprintf(text, NODE_TEXT_BYTES, strchr(host, ':') ? "%s[%s]:%u" : "%s%s:%u",
             server->http.tls ? "https://" : "", host, (unsigned)port);
}

/* The address under which other nodes reach this one, when the sockets are bound: a port may be
 * chosen then. Other nodes may use it from now on. */
static void announce(struct server *server) {
    const struct config *config = &server->config;
    bool is_given = *config->advertise.host != '\0';
    const char *host = is_given ? config->advertise.host : config->bind.host;
    uint16_t port = is_given ? config->advertise.port : server->port;
    char address[NODE_TEXT_BYTES];
    char operator_address[NODE_TEXT_BYTES] = "";
    write_address(server, address, host, port);
    if (server->operator_port > 0)
        write_address(server, operator_address, is_given ? host : config->operator_bind.host,
                      server->operator_port);
    bool is_wildcard = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    if (store_is_shared(server->store) && is_wildcard)
        log_event(LOG_WARN, "nodes.address_unknown", log_str("address", address),
                  log_str("effect", "other nodes cannot reach this one; set KHALA_ADVERTISE_ADDR"));
    nodes_set_address(server->nodes, address, operator_address);
    revoked_serve(&server->revoked);
    writer_beat_post(server->writer);
}

static enum status serve(struct run *run, void (*on_ready)(const struct server *)) {
    struct server *server = run->server;
    enum status status = control_init(run);
    if (status != STATUS_OK)
        return server_refuse(server, status, "cannot start: %s", status_message(status));
    /* Nodes that have a certificate reach one another by TLS. */
    if (server->http.tls && store_is_shared(server->store)) {
        const char *ca_file = server->config.cluster_ca_file;
        struct tls_message message = {""};
        status = tls_context_open_client(&run->cluster_tls, *ca_file ? ca_file : NULL, &message);
        if (status != STATUS_OK)
            status = server_refuse(server, status, "no TLS with other nodes: %s",
                                   *message.text ? message.text : status_message(status));
    }
    if (status == STATUS_OK)
        status = loops_start(run);
    size_t started = server->http.loops_started;
    if (status == STATUS_OK) {
        /* Only a loop that has started knows whether the system gave it a descriptor table of its
         * own. */
        const struct conn_limits *limits = &server->http.conn_limits;
        uint64_t tables = 0;
        for (size_t i = 0; i < started; i++)
            tables += run->loops[i].io.has_own_descriptors;
        tables += tables < started; /* the loops without one share a table */
        if (tables * limits->table_conn_max < limits->conn_max)
            log_event(LOG_WARN, "server.connections_clamped",
                      log_int("connections", (int64_t)(tables * limits->table_conn_max)),
                      log_int("connections_max", (int64_t)limits->conn_max),
                      log_int("descriptor_tables", (int64_t)tables),
                      log_int("reserved_for_operator", (int64_t)limits->reserved_max));
        log_event(LOG_INFO, "server.ready", log_str("host", server->config.bind.host),
                  log_int("port", server->port), log_int("loops", (int64_t)run->loop_count));
        limits_report_log(&server->config);
        announce(server);
        on_ready(server);
        watchdog_start(&run->watchdog, server->http.loops, started);
        notify_send("READY=1\nSTATUS=Serves");
    } else if (started > 0) {
        loops_end(run);
    } else {
        control_close(run);
    }
    uv_run(&run->control, UV_RUN_DEFAULT);
    revoked_stop(&server->revoked);
    for (size_t i = 0; i < started; i++) {
        io_loop_join(&run->loops[i].io);
        delivery_loop_release(&run->loops[i].delivery);
        http_loop_release(&run->loops[i].http);
    }
    for (size_t i = 0; run->loops && i < run->loop_count; i++)
        forwards_free(run->loops[i].http.forwards);
    tls_context_close(run->cluster_tls);
    free(run->loops);
    return status;
}

/* Runs the same program with the same arguments in this process. Returns only when that failed. */
static enum status restart(struct server *server) {
    static char text[ARGUMENT_BYTES_MAX];
    char *arguments[ARGUMENTS_MAX + 1] = {NULL};
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    size_t count = 0;
    for (ssize_t at = 0; at < size && count < ARGUMENTS_MAX; at += (ssize_t)strlen(text + at) + 1)
        arguments[count++] = text + at;
    if (count > 0)
        execv("/proc/self/exe", arguments);
    return server_refuse(server, STATUS_SYSTEM_ERROR, "cannot start again in the new epoch: %s",
                         strerror(errno));
}

enum status server_run(struct server *server, void (*on_ready)(const struct server *)) {
    /* Static, because the signal handlers use it until the process ends. */
    static struct run run;
    run = (struct run){.server = server, .loop_count = limits_loop_count(&server->config)};
    signal(SIGPIPE, SIG_IGN);
    /* Ignored until the keys and the certificate are loaded. */
    signal(SIGHUP, SIG_IGN);
    /* A file that may not grow is a full disk like any other, and the store reports it. */
    signal(SIGXFSZ, SIG_IGN);
    uint64_t wanted = descriptors_for(server->config.connections_max);
    uint64_t given = descriptors_raise(wanted);
    if (given < wanted)
        log_event(LOG_WARN, "server.descriptors_few", log_int("given", (int64_t)given),
                  log_int("wanted", (int64_t)wanted),
                  log_int("connections_max", (int64_t)server->config.connections_max));
    /* A batch takes and frees a few megabytes. Without this the memory goes back to the system
     * after each batch, and the next one faults it in again, page by page. */
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    (void)mallopt(M_TRIM_THRESHOLD, FREED_BYTES_KEPT);
    /* A server that cannot listen must not create a data folder. The sockets themselves are bound
     * when the store is open: a bound socket that does not listen yet would not keep another
     * server from the address. */
    enum status status = listeners_open(&run, NULL);
    if (status == STATUS_OK)
        status = server_open(server, run.loop_count);
    if (status == STATUS_OK)
        status = serve(&run, on_ready);
    server_close(server);
    telemetry_tick(&server->telemetry);
    if (status == STATUS_OK)
        log_event(LOG_INFO, "server.ended", log_str("state", "clean"));
    enum following_end end =
        server->api.is_ending ? FOLLOWING_GOES_ON : following_end(&server->following);
    if (status == STATUS_OK && end == FOLLOWING_EPOCH_OLD)
        return restart(server);
    if (status == STATUS_OK && end == FOLLOWING_SCHEMA_NEW)
        return server_refuse(server, STATUS_INVALID_CONFIG,
                             "a newer khala has changed the schema of the database, and this one "
                             "cannot read it: run the newer khala");
    return status;
}
