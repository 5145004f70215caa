/* Keeps a service manager's watchdog quiet for as long as every io loop answers.
 * Belongs to the control loop; each loop runs its probe on its own thread.
 * A member of the server; allocates nothing. Cannot fail: without a watchdog it does nothing.
 * A word is sent only when all loops have answered since the last: one that hangs lets the manager
 * restart the server, which a timer of the control loop alone would keep from being noticed. */
#ifndef SERVER_WATCHDOG_H
#define SERVER_WATCHDOG_H

#include <stdatomic.h>

#include "io/listen.h"
#include "io/loop.h"

struct watchdog_probe {
    struct loop_task task;
    atomic_bool is_under_way;
};

struct watchdog {
    uv_timer_t timer;
    struct io_loop **loops;
    size_t loop_count;
    struct watchdog_probe probes[LISTEN_SOCKETS_MAX];
};

void watchdog_init(struct watchdog *watchdog, uv_loop_t *control);
/* Once the loops run. */
void watchdog_start(struct watchdog *watchdog, struct io_loop **loops, size_t loop_count);
/* Closes its handle; the loops may still run what was posted to them. */
void watchdog_close(struct watchdog *watchdog);

#endif
