/* Running the server: its listeners and loops, signals, readiness, and the orderly end.
 * Thread: main, which runs a loop of its own for signals.
 * Memory: all threads and parts have ended when server_run returns.
 * Errors: a server that cannot start leaves the reason in server->message.
 * Invariant: after SIGTERM or SIGINT the server is not ready. It drains after the delay, within the
 * grace. A second signal ends it at once. SIGHUP reloads the keys and the certificate. When the
 * store has another epoch, the server drains and replaces itself by a new process image.
 */
#ifndef SERVER_RUN_H
#define SERVER_RUN_H

#include "server/server.h"

/* config is set. Serves until a signal ends it. on_ready runs once, when connections are accepted.
 */
MUST_CHECK enum status server_run(struct server *server, void (*on_ready)(const struct server *));

#endif
