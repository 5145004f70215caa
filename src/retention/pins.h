/* Positions that somebody still reads from, such as a snapshot that promises its tail: pruning
 * stops short of them.
 * Any thread. Memory is the pinner's: a pin is a member of its own object. Cannot fail.
 * From the moment pins_add returns the floor of the topic does not rise above seq + 1. Whether it
 * was above before, the pinner finds by reading the topic afterwards. Adding waits for the one
 * batch that may be under way, which is some milliseconds: not for an io loop. */
#ifndef RETENTION_PINS_H
#define RETENTION_PINS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"

struct retention_pin {
    struct slice topic; /* lives as long as the pin */
    uint64_t seq;       /* frames after it stay */
    struct retention_pin *previous;
    struct retention_pin *next;
};

struct pins {
    pthread_mutex_t lock;
    struct retention_pin *first;
    _Atomic uint64_t count; /* so that telling it waits for nobody */
};

void pins_init(struct pins *pins);
/* Without pins. */
void pins_release(struct pins *pins);
void pins_add(struct pins *pins, struct retention_pin *pin, struct slice topic, uint64_t seq);
void pins_remove(struct pins *pins, struct retention_pin *pin);
uint64_t pins_count(const struct pins *pins);

/* Around a batch: nothing is pinned or let go between them. */
void pins_lock(struct pins *pins);
void pins_unlock(struct pins *pins);
/* How far a topic may be pruned, of below_seq at most. With the lock. */
uint64_t pins_below_seq(const struct pins *pins, struct slice topic, uint64_t below_seq);

#endif
