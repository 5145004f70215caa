/* Notifications to a service manager by the protocol of sd_notify: a datagram to a Unix socket.
 * Main thread only, because it reads the environment.
 * Memory: none.
 * Errors: false if there is no manager or it does not take the message. The server continues.
 * Sending never blocks. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Sends lines of sd_notify(3), such as "READY=1", to the socket in NOTIFY_SOCKET: a path, or @ and
 * a name in the abstract namespace. */
bool notify_send(const char *lines);
/* The interval in which the manager expects "WATCHDOG=1" from this process; 0: it does not. */
uint64_t notify_watchdog_ms(void);

#endif
