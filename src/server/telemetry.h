/* What the server says of its decisions: each is counted, and where somebody was told no or sent
 * away it is remembered for `khala why`, and logged.
 * Any thread. Allocates nothing. Cannot fail.
 * Texts given are the caller's; none may be a secret, so never a query string.
 * One call a decision: counters, log and ring cannot disagree. */
#ifndef SERVER_TELEMETRY_H
#define SERVER_TELEMETRY_H

#include "base/metrics.h"
#include "delivery/causes.h"
#include "hub/frame.h"
#include "topic/continuity.h"
#include "topic/policy.h"

struct exchange;
struct server;

/* Somebody may not do or read something. The topic, where there is one, says the class; the cause's
 * kind, time and status are set here. */
void telemetry_denied(struct server *server, struct cause cause, enum status status);
/* A client is too old, too new or of another protocol. The cause's kind, time and status are set
 * here. */
void telemetry_incompatible(struct server *server, struct cause cause, enum status status);
/* The server ends a connection. The cause's kind and time are set here. Counting the closed socket
 * is its owner's, who also sees those that went by themselves. */
void telemetry_disconnected(struct server *server, struct cause cause);
/* A cursor is too old; the cause says whose. An HTTP poll ends with it, a stream bootstraps. */
void telemetry_stale(struct server *server, struct cause cause,
                     const struct continuity *continuity);
/* A consumer is too slow, and sent away. */
void telemetry_evicted(struct server *server, struct cause cause);
/* Frames were handed to a socket. now_ns is the monotonic clock, read for this. */
void telemetry_handed(enum label_dialect dialect, const struct policy *policy,
                      struct frame *const *frames, size_t count, uint64_t now_ns);

/* An exchange's answer begins: counts it, logs it for those who debug. */
void telemetry_answered(struct exchange *exchange, unsigned http_status);
/* An exchange is refused for who asks. */
void telemetry_exchange_denied(struct exchange *exchange, enum status status);
/* The same for what its client is. */
void telemetry_exchange_incompatible(struct exchange *exchange, enum status status);

#endif
