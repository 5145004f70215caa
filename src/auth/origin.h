/* Origins: the pages from which a browser may connect. An origin is scheme://host[:port] (RFC
 * 6454). The list is separated by commas. An entry is an origin, an origin whose host begins with
 * "*." for all hosts below it, "null", or "*" for all.
 * Thread: any.
 * Errors: origin_list_check finds a malformed list at start.
 * Invariant: comparison ignores case, and the port if it is the default of the scheme. */
#ifndef AUTH_ORIGIN_H
#define AUTH_ORIGIN_H

#include "base/slice.h"

/* A scheme, a host of 253 characters at most, and a port. */
#define ORIGIN_BYTES_MAX 320

/* Whether every entry is well formed. An empty list is. */
bool origin_list_check(struct slice list);
bool origin_is_allowed(struct slice list, struct slice origin);

#endif
