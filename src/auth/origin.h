/* Origins: from which pages a browser may connect.
 * Any thread; pure; allocates nothing.
 * A list that cannot be meant is false where it is checked, at start.
 * An origin is scheme://host[:port] (RFC 6454). The list is comma-separated; an entry is an
 * origin, or one whose host begins with "*." for any host below, or "null", or "*" for any.
 * Compared without case, and without the port where it is the scheme's own. */
#ifndef AUTH_ORIGIN_H
#define AUTH_ORIGIN_H

#include "base/slice.h"

/* Whether every entry is one; an empty list is. */
bool origin_list_check(struct slice list);
bool origin_is_allowed(struct slice list, struct slice origin);

#endif
