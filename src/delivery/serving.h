/* Serving: the subscribers of a loop that have something to send are served in turns.
 * Belongs to the loop's thread; called before the loop sleeps, so nothing here calls back into
 * itself.
 * Memory: pages that several subscribers share live until no subscriber has a turn.
 * Errors end the session they are about.
 * One call serves a bounded number of turns, so that sockets are read in between. */
#ifndef DELIVERY_SERVING_H
#define DELIVERY_SERVING_H

#include "delivery/delivery.h"

/* After io_loop_open, before io_loop_start. */
void delivery_loop_open(struct delivery_loop *delivery, struct delivery *shared,
                        struct io_loop *io);
/* After the loop's thread has ended. */
void delivery_loop_release(struct delivery_loop *delivery);

/* True: turns are left, and the loop must not sleep. */
bool sessions_serve(struct delivery_loop *delivery);

#endif
