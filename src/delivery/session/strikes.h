/* Strikes: whether a connection is too slow. Each check at which it is behind and does not catch up
 * is a strike, and the last strike evicts it.
 * Belongs to its loop's thread.
 * Memory: a value; allocates nothing.
 * Cannot fail.
 * A connection that catches up never has a strike, however far behind it is; nor has one that the
 * server keeps waiting. Lag alone is no fault: memory does not depend on it. */
#ifndef DELIVERY_SESSION_STRIKES_H
#define DELIVERY_SESSION_STRIKES_H

#include <stdbool.h>
#include <stdint.h>

struct strikes {
    uint64_t sent_bytes; /* at the last check */
    uint64_t lag;
    uint64_t count; /* one after the other */
    bool has_sample;
};

struct strikes_sample {
    bool was_blocked;    /* its socket was full at some time since the last check */
    bool is_blocked;     /* and is now */
    uint64_t sent_bytes; /* that its socket ever took */
    uint64_t lag;        /* of all its topics, in frames */
    uint64_t lag_max;
    uint64_t strikes_max;
};

/* A full socket that took nothing since the last check is a strike. So is a lag above lag_max that
 * is not smaller than at the last check, if the socket was full meanwhile. A check without a strike
 * clears those before. True: that was the last strike. */
bool strikes_check(struct strikes *strikes, const struct strikes_sample *sample);

#endif
