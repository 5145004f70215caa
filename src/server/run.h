/* Running the server: its listeners and loops, signals, readiness, and the orderly end.
 * server_run belongs to the main thread, which runs a loop of its own for signals.
 * Memory: everything it starts has ended when it returns.
 * Errors: a server that cannot start leaves the reason in server->message.
 * SIGTERM or SIGINT ends readiness, then drains after the delay, within the grace. A second one
 * ends at once. SIGHUP reads the keys and the certificate again. */
#ifndef SERVER_RUN_H
#define SERVER_RUN_H

#include "server/server.h"

/* config is set. Serves until a signal ends it. on_ready runs once, when connections are accepted.
 */
MUST_CHECK enum status server_run(struct server *server, void (*on_ready)(const struct server *));

#endif
