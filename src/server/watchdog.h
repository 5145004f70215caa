/* The watchdog: reports to the service manager for as long as every io loop responds.
 * Belongs to the control loop; each loop runs its probe on its own thread.
 * Memory: the struct is a member of the server's run and allocates nothing.
 * Errors: none; without a watchdog interval it does nothing.
 * It reports only when all loops have run their probes since the last report. So the manager
 * restarts a server with a loop that hangs, which a timer of the control loop alone would not
 * notice. */
#ifndef SERVER_WATCHDOG_H
#define SERVER_WATCHDOG_H

#include <stdatomic.h>

#include "io/listen.h"
#include "io/loop.h"

struct watchdog_probe {
    struct loop_task task;
    atomic_bool is_pending;
};

struct watchdog {
    uv_timer_t timer;
    struct io_loop **loops;
    size_t loop_count;
    struct watchdog_probe probes[LISTEN_SOCKETS_MAX];
};

void watchdog_init(struct watchdog *watchdog, uv_loop_t *control);
/* Called when the loops run. */
void watchdog_start(struct watchdog *watchdog, struct io_loop **loops, size_t loop_count);
/* Closes the timer. The loops may still run their probes. */
void watchdog_close(struct watchdog *watchdog);

#endif
