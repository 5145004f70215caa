/* The consumers that poll: how often each may poll, and whether it keeps up.
 * Any thread: one lock, held for a lookup. Memory: at most capacity consumers; the one that polled
 * longest ago is evicted.
 * STATUS_RATE_LIMITED, with the time to wait; STATUS_SLOW_CONSUMER_EVICTED, which also forgets the
 * strikes; STATUS_OUT_OF_MEMORY.
 * A poll that is refused changes nothing: it neither prolongs the wait nor counts as a strike. */
#ifndef DELIVERY_CONSUMERS_H
#define DELIVERY_CONSUMERS_H

#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

/* How long a poll makes its topic an active one. */
#define CONSUMER_ACTIVE_MS 60000

struct consumers;

struct consumers_options {
    size_t capacity;
    uint64_t interval_ms_min;
    uint64_t lag_max;
    uint64_t strikes_max;
};

/* A principal and the topic it polls. */
struct consumer_key {
    struct slice principal; /* without NUL */
    struct slice topic;
};

struct consumer_state {
    uint64_t retry_after_ms; /* with STATUS_RATE_LIMITED */
    size_t active_topics;    /* that the principal polled recently */
    uint64_t strikes;
};

MUST_CHECK enum status consumers_open(struct consumers **consumers,
                                      const struct consumers_options *options);
void consumers_close(struct consumers *consumers);
/* A poll begins. */
MUST_CHECK enum status consumers_admit(struct consumers *consumers, const struct consumer_key *key,
                                       uint64_t mono_ms, struct consumer_state *state);
/* A poll is about to be answered, and leaves the consumer so far behind. Behind by more than
 * lag_max and not catching up is a strike. */
MUST_CHECK enum status consumers_served(struct consumers *consumers, const struct consumer_key *key,
                                        uint64_t lag, struct consumer_state *state);

/* Those that polled within CONSUMER_ACTIVE_MS. */
size_t consumers_active(struct consumers *consumers, uint64_t mono_ms);

#endif
