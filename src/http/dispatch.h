/* The dispatcher: makes an exchange of each request, admits it and runs its route's handler.
 * Belongs to the connection's loop.
 * Memory: one exchange for each request under way.
 * Errors: a request that no route takes or that may not come in is answered before its body is
 * read. A handler runs only after admission and entitlement. */
#ifndef HTTP_DISPATCH_H
#define HTTP_DISPATCH_H

#include "http/conn.h"

extern const struct conn_events dispatch_events;

#endif
