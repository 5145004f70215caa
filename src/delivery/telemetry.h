/* Decisions about clients: each is counted; refusals and disconnects are also kept for `khala why`
 * and logged.
 * Any thread. Allocates nothing. Cannot fail.
 * The texts belong to the caller. None may be a secret, so never a query string.
 * One call for each decision, so that counters, log and causes agree. */
#ifndef DELIVERY_TELEMETRY_H
#define DELIVERY_TELEMETRY_H

#include <stdatomic.h>

#include "auth/compatibility_claim.h"
#include "base/metrics.h"
#include "delivery/causes.h"
#include "delivery/topic_activity.h"
#include "hub/frame.h"
#include "topic/continuity.h"
#include "topic/policy.h"

struct telemetry {
    const struct policy_table *policies;
    struct causes *causes;
    struct topic_activity *activity;
    atomic_uint_fast64_t unlogged_count; /* decisions that were not logged since the last tick */
};

/* The texts of a cause, which the caller keeps as long as the cause. */
struct cause_names {
    char connection[CAUSE_CONNECTION_BYTES_MAX];
    char principal[CAUSE_PRINCIPAL_BYTES_MAX];
    char peer[CAUSE_PEER_BYTES_MAX];
};

/* The versions of a claim, which the caller keeps as long as the cause. */
struct cause_client telemetry_client(const struct compatibility_claim *claim);

/* A client is refused: for its principal, for its version, or for asking too much. The class is
 * that of the topic, where there is one. The cause's kind, time and status are set here. */
void telemetry_refused(struct telemetry *telemetry, struct cause cause, enum status status);
/* The server ends a connection. The cause's kind and time are set here. Counting the closed socket
 * is the session's, which also sees connections that the peer closed. */
void telemetry_disconnected(struct telemetry *telemetry, struct cause cause);
/* A cursor is too old; the cause says whose. An HTTP poll ends with it, a stream bootstraps. */
void telemetry_stale(struct telemetry *telemetry, struct cause cause,
                     const struct continuity *continuity);
/* A consumer is too slow, and is evicted. */
void telemetry_evicted(struct telemetry *telemetry, struct cause cause);
/* Frames were handed to a socket. now_ns is the monotonic clock, read for this. */
void telemetry_handed(enum label_dialect dialect, const struct policy *policy,
                      struct frame *const *frames, size_t count, uint64_t now_ns);

/* Once a second: says how many decisions were not logged, if any. */
void telemetry_tick(struct telemetry *telemetry);

#endif
