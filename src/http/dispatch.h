/* The dispatcher: makes an exchange of each request, admits it and runs its route's handler.
 * Thread: the connection's loop.
 * Memory: one exchange for each request under way.
 * Errors: a request without a route, or one that is not admitted, is answered before its body is
 * read.
 * Invariant: a handler runs only after admission and entitlement. */
#ifndef HTTP_DISPATCH_H
#define HTTP_DISPATCH_H

#include "http/conn.h"

extern const struct conn_events dispatch_events;

#endif
