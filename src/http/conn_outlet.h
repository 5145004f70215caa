/* The outlet of a connection: how a session of delivery/ writes to it.
 * Thread: the connection's loop.
 * Memory: the outlet is a member of the connection.
 * Errors: as delivery/session/outlet.h says.
 * Invariant: conn_attach comes after the session was made with conn_outlet. */
#ifndef HTTP_CONN_OUTLET_H
#define HTTP_CONN_OUTLET_H

#include "http/conn.h"

struct outlet *conn_outlet(struct conn *conn);
/* The connection is the session's from now on, and the exchange is gone. */
void conn_attach(struct conn *conn, struct session *session);

#endif
