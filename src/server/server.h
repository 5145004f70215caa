/* The server: its settings, its loops, and the orderly start and end of both.
 * server_run belongs to the main thread, which watches for signals; loops only read the struct.
 * Process lifetime: the struct outlives every thread.
 * STATUS_SYSTEM_ERROR after logging what could not be had (address in use, no permission).
 * SIGTERM or SIGINT drains within the grace; a second one ends at once. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdatomic.h>

#include "server/config.h"
#include "server/loop.h"

struct server {
    struct config config;
    struct io_loop *loops;
    size_t loop_count;
    size_t loops_started;
    uint16_t port; /* the one in force, also when 0 was asked for */
    atomic_bool draining;
    atomic_size_t loops_running;
    atomic_size_t conn_count; /* over all loops, never more than connections_max stay */
    /* The main thread's own loop: signals, the grace, and word of loops that ended. */
    uv_loop_t control;
    uv_signal_t terminate;
    uv_signal_t interrupt;
    uv_timer_t grace;
    uv_async_t loop_ended;
};

/* Serves until a signal ends it. on_ready runs once, when connections are accepted. */
MUST_CHECK enum status server_run(struct server *server, void (*on_ready)(const struct server *));

/* Any thread: a loop's thread is about to end. */
void server_loop_ended_post(struct server *server);

#endif
