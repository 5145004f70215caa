/* The service manager, by the protocol of sd_notify (a datagram to a Unix socket), and its
 * watchdog, which reports for as long as every io loop responds.
 * Thread: main, which reads the environment and runs the control loop; each loop runs its probe.
 * Memory: nothing is allocated; the watchdog is a member of the server's run.
 * Errors: false if there is no manager or it does not accept the message. The server continues.
 * Invariant: sending never blocks. The watchdog reports only if all loops have run their probes
 * since the last report, so the manager restarts a server with a loop that hangs. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/listen.h"
#include "net/loop.h"

/* Sends lines of sd_notify(3), such as "READY=1", to the socket in NOTIFY_SOCKET: a path, or @ and
 * a name in the abstract namespace. */
bool notify_send(const char *lines);
/* The interval in which the manager expects "WATCHDOG=1" from this process; 0: it does not. */
uint64_t notify_watchdog_ms(void);

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
/* Called when the loops run. Does nothing without a watchdog interval. */
void watchdog_start(struct watchdog *watchdog, struct io_loop **loops, size_t loop_count);
/* Closes the timer. The loops may still run their probes. */
void watchdog_close(struct watchdog *watchdog);

#endif
