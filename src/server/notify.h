/* Word to a service manager that waits for it: sd_notify's protocol, a datagram to a Unix socket.
 * Main thread only: it reads the environment. Allocates nothing.
 * Nobody listening, or a message that does not get through, is no error: false, and the server goes
 * on. No message is ever waited for. */
#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Lines as sd_notify(3) lists them, "READY=1", to the socket that NOTIFY_SOCKET names: a path, or
 * one beginning with @ for the abstract namespace. */
bool notify_send(const char *lines);
/* How often the manager wants to hear "WATCHDOG=1" from this process; 0: it does not. */
uint64_t notify_watchdog_ms(void);

#endif
