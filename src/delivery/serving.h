/* Serving: the subscribers of a loop that have something to send are served in turns.
 * Thread: the loop's; delivery_loop_serve is called before the loop sleeps, so nothing here calls
 * back into itself. delivery_loop_release belongs to the main thread.
 * Memory: pages that several subscribers share live until no subscriber has a turn.
 * Errors: an error ends the session that it is about.
 * Invariant: one call serves a bounded number of turns, so that sockets are read in between. */
#ifndef DELIVERY_SERVING_H
#define DELIVERY_SERVING_H

#include "delivery/delivery.h"

/* After io_loop_open, before io_loop_start. */
void delivery_loop_open(struct delivery_loop *delivery, struct delivery *shared,
                        struct io_loop *io);
/* After the loop's thread has ended. */
void delivery_loop_release(struct delivery_loop *delivery);

/* True: turns are left, and the loop must not sleep. */
bool delivery_loop_serve(struct delivery_loop *delivery);

#endif
