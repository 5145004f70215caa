#include "server/server.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "server/listen.h"

static size_t loop_count_wanted(const struct config *config) {
    if (config->io_loops > 0)
        return config->io_loops;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores > CONFIG_LOOPS_MAX ? CONFIG_LOOPS_MAX : (size_t)cores;
}

static void loops_end(struct server *server) {
    for (size_t i = 0; i < server->loops_started; i++)
        io_loop_end_post(&server->loops[i]);
}

static void on_grace_over(uv_timer_t *grace) {
    struct server *server = grace->data;
    log_event(LOG_WARN, "server.grace_over",
              log_int("loops", (int64_t)atomic_load(&server->loops_running)));
    loops_end(server);
}

static void on_signal(uv_signal_t *handle, int number) {
    struct server *server = handle->data;
    bool again = atomic_exchange(&server->draining, true);
    log_event(LOG_INFO, again ? "server.ending" : "server.draining",
              log_str("signal", strsignal(number)),
              log_int("grace_ms", again ? 0 : (int64_t)server->config.shutdown_grace_ms));
    if (again) {
        loops_end(server);
        return;
    }
    for (size_t i = 0; i < server->loops_started; i++)
        io_loop_drain_post(&server->loops[i]);
    uv_timer_start(&server->grace, on_grace_over, server->config.shutdown_grace_ms, 0);
}

static void control_close(struct server *server) {
    uv_close((uv_handle_t *)&server->terminate, NULL);
    uv_close((uv_handle_t *)&server->interrupt, NULL);
    uv_close((uv_handle_t *)&server->grace, NULL);
    uv_close((uv_handle_t *)&server->loop_ended, NULL);
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
    uv_timer_init(&server->control, &server->grace);
    uv_async_init(&server->control, &server->loop_ended, on_loop_ended);
    server->terminate.data = server->interrupt.data = server;
    server->grace.data = server->loop_ended.data = server;
    uv_signal_start(&server->terminate, on_signal, SIGTERM);
    uv_signal_start(&server->interrupt, on_signal, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    return STATUS_OK;
}

static enum status loops_start(struct server *server) {
    int fds[CONFIG_LOOPS_MAX];
    const struct config_address *address = &server->config.bind;
    server->loop_count = loop_count_wanted(&server->config);
    enum status status = listen_open(address, fds, server->loop_count, &server->port);
    if (status != STATUS_OK) {
        log_event(LOG_ERROR, "listen.failed", log_str("host", address->host),
                  log_int("port", address->port),
                  log_str("error", status == STATUS_SYSTEM_ERROR ? strerror(errno)
                                                                 : "the host does not resolve"));
        return status;
    }
    server->loops = calloc(server->loop_count, sizeof(*server->loops));
    if (!server->loops)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < server->loop_count; i++) {
        atomic_fetch_add(&server->loops_running, 1);
        status = io_loop_start(&server->loops[i], server, fds[i]);
        if (status != STATUS_OK) {
            atomic_fetch_sub(&server->loops_running, 1);
            log_event(LOG_ERROR, "loop.failed", log_int("loop", (int64_t)i));
            return status;
        }
        server->loops_started++;
    }
    return STATUS_OK;
}

enum status server_run(struct server *server, void (*on_ready)(const struct server *)) {
    enum status status = control_init(server);
    if (status != STATUS_OK)
        return status;
    status = loops_start(server);
    if (status == STATUS_OK) {
        log_event(LOG_INFO, "server.ready", log_str("host", server->config.bind.host),
                  log_int("port", server->port), log_int("loops", (int64_t)server->loop_count));
        on_ready(server);
    } else if (server->loops_started > 0) {
        loops_end(server);
    } else {
        control_close(server);
    }
    uv_run(&server->control, UV_RUN_DEFAULT);
    for (size_t i = 0; i < server->loops_started; i++)
        io_loop_join(&server->loops[i]);
    uv_loop_close(&server->control);
    free(server->loops);
    if (status == STATUS_OK)
        log_event(LOG_INFO, "server.ended", log_str("state", "clean"));
    return status;
}
