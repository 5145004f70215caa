/* The consumers that poll: how often each may poll, and whether it keeps up.
 * Thread: any; one lock, held for a lookup.
 * Memory: at most capacity consumers; the one that polled longest ago is evicted.
 * Errors: STATUS_RATE_LIMITED, with the time to wait; STATUS_SLOW_CONSUMER_EVICTED, which also
 * forgets the strikes; STATUS_OUT_OF_MEMORY.
 * Invariant: a poll that is refused changes nothing: it neither prolongs the wait nor counts as a
 * strike. Only a consumer that has everything must wait between its polls. */
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

/* A session and the topic it polls. The sessions of a principal do not limit each other. */
struct consumer_key {
    struct slice principal; /* its principal_key; without NUL, as all three */
    struct slice topic;
    struct slice session; /* may be empty */
};

struct consumer_state {
    uint64_t retry_after_ms; /* with STATUS_RATE_LIMITED */
    size_t active_topics;    /* topics that the principal polled recently, in all its sessions */
    uint64_t strikes;
    uint64_t interval_start_ms; /* before this poll, for consumers_rejected */
};

/* What a poll is about to be answered with. */
struct consumer_page {
    uint64_t lag;        /* how far the page leaves the consumer behind */
    uint64_t lag_max;    /* of the topic; a smaller one than that of the options has no effect */
    bool lag_is_minimum; /* not all frames were counted */
    uint64_t through_seq;
    bool is_complete;  /* replay_complete */
    bool is_bootstrap; /* begins with a bootstrap: never a strike */
};

MUST_CHECK enum status consumers_open(struct consumers **consumers,
                                      const struct consumers_options *options);
void consumers_close(struct consumers *consumers);
/* A poll begins. */
MUST_CHECK enum status consumers_admit(struct consumers *consumers, const struct consumer_key *key,
                                       uint64_t mono_ms, struct consumer_state *state);
/* A poll is about to be answered with a page. Behind by more than both lag_max and not catching up
 * is a strike. */
MUST_CHECK enum status consumers_served(struct consumers *consumers, const struct consumer_key *key,
                                        const struct consumer_page *page,
                                        struct consumer_state *state);
/* An admitted poll is not answered with a page: the time to wait is as before the poll. */
void consumers_rejected(struct consumers *consumers, const struct consumer_key *key,
                        const struct consumer_state *state);

/* Those that polled within CONSUMER_ACTIVE_MS. */
size_t consumers_active(struct consumers *consumers, uint64_t mono_ms);

#endif
