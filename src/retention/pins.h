/* Pins: positions that a reader still needs, such as a snapshot that promises the frames after it.
 * Pruning stops at them.
 * Any thread.
 * A pin is embedded in an object of its caller.
 * Cannot fail.
 * After pins_add the floor of the topic does not rise above seq + 1. The floor may have been above
 * it before: read the topic afterwards. pins_add waits for the current batch, which takes
 * milliseconds, so an io loop must not call it. */
#ifndef RETENTION_PINS_H
#define RETENTION_PINS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"

struct retention_pin {
    struct slice topic;    /* lives as long as the pin */
    uint64_t seq;          /* later frames are kept */
    struct list_node node; /* in pins.list */
};

struct pins {
    pthread_mutex_t lock;
    struct list list;
    _Atomic uint64_t count; /* readable without the lock */
};

void pins_init(struct pins *pins);
/* Only without pins. */
void pins_release(struct pins *pins);
void pins_add(struct pins *pins, struct retention_pin *pin, struct slice topic, uint64_t seq);
void pins_remove(struct pins *pins, struct retention_pin *pin);
uint64_t pins_count(const struct pins *pins);

/* For the duration of a batch: pins do not change while locked. */
void pins_lock(struct pins *pins);
void pins_unlock(struct pins *pins);
/* The seq below which a topic may be pruned, at most below_seq. With the lock. */
uint64_t pins_below_seq(const struct pins *pins, struct slice topic, uint64_t below_seq);

#endif
