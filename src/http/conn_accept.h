/* Accepting: a socket becomes a connection of the loop with the fewest, within the limits.
 * Thread: the loop.
 * Memory: takes over the socket; the connection frees itself.
 * Errors: a socket without memory or beyond every limit is closed, counted and, in a flood, logged
 * every ten seconds.
 * Invariant: a connection that was silent without a key or token gives way to a new one. At most
 * CONN_HANDED_MAX sockets without a ticket are on their way to another loop. */
#ifndef HTTP_CONN_ACCEPT_H
#define HTTP_CONN_ACCEPT_H

#include "http/http.h"

struct conn;

/* The accept hook of a loop whose owner is a struct http_loop. */
void conn_accept(struct io_loop *io, enum listener_kind kind, int fd, const struct sockaddr *peer);
/* The task of a loop that another one has asked to close connections. */
void conn_displace_asked(struct loop_task *task);
/* Counts that a limit refuses the connection. */
void conn_count_refusal(const struct conn *conn);

#endif
