/* Serving: the subscribers of a loop that have something to send are served in turns.
 * Belongs to the loop's thread; called before the loop sleeps, so nothing here calls back into
 * itself.
 * Memory: pages that several subscribers share live until no subscriber has a turn.
 * Errors end the session they are about.
 * One call serves a bounded number of turns, so that sockets are read in between. */
#ifndef DELIVERY_SESSION_SESSION_SERVE_H
#define DELIVERY_SESSION_SESSION_SERVE_H

#include "delivery/delivery.h"

/* True: turns are left, and the loop must not sleep. */
bool sessions_serve(struct delivery_loop *delivery);

#endif
