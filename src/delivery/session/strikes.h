/* Whether a connection is too slow: a strike for each look at which it is behind and does not
 * catch up, and it is over with the last one.
 * Belongs to its loop's thread. A value; allocates nothing.
 * Cannot fail.
 * Who catches up, however far behind, never has a strike; nor has one that the server keeps
 * waiting. Lag alone is no fault: memory does not depend on it. */
#ifndef DELIVERY_SESSION_STRIKES_H
#define DELIVERY_SESSION_STRIKES_H

#include <stdbool.h>
#include <stdint.h>

struct strikes {
    uint64_t sent_bytes; /* at the last look */
    uint64_t lag;
    uint64_t count; /* one after the other */
    bool has_looked;
};

struct strikes_look {
    bool was_blocked;    /* its socket was full at some time since the last look */
    bool is_blocked;     /* and is now */
    uint64_t sent_bytes; /* that its socket ever took */
    uint64_t lag;        /* of all its topics, in frames */
    uint64_t lag_max;
    uint64_t strikes_max;
};

/* A full socket that took nothing since the last look is a strike; so is one whose lag is above
 * lag_max and not smaller than at the last look, while the socket was what held it up; a look
 * without a strike forgives those before. True: that was the last strike. */
bool strikes_look(struct strikes *strikes, const struct strikes_look *look);

#endif
