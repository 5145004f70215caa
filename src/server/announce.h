/* The address under which other nodes reach this one.
 * The main thread.
 * Memory: none.
 * Cannot fail: a wildcard address is logged, because other nodes cannot use it.
 * Runs after the sockets are bound, because a port may be chosen then. */
#ifndef SERVER_ANNOUNCE_H
#define SERVER_ANNOUNCE_H

#include "server/server.h"

/* Other nodes may reach this one from now on. */
void server_announce(struct server *server);

#endif
