/* The answer to a stale cursor: why it is stale, and what the client needs to bootstrap.
 * Thread: any.
 * Memory: written into the caller's buffer, all or nothing.
 * Errors: the buffer's own.
 * Invariant: the body is the same in every dialect. */
#ifndef DELIVERY_STALE_H
#define DELIVERY_STALE_H

#include "topic/continuity.h"
#include "topic/policy.h"

#define SNAPSHOT_FORMAT         "openagents.sync.snapshot.v1"
#define SNAPSHOT_SCHEMA_VERSION 1

struct stale_topic {
    struct slice topic;
    const struct policy *policy;
    const struct continuity *continuity; /* the reasons of a rebootstrap */
    bool may_replay_all; /* the client may ask for everything that the log has instead */
    const struct topic_epoch
        *epoch; /* holds for positions from the bootstrap on; NULL: not known */
};

/* For one topic or several. */
MUST_CHECK enum status stale_write_json(struct buffer *out, const struct stale_topic *stale,
                                        size_t count);

#endif
