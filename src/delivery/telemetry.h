/* Decisions about clients: each is counted; refusals and disconnects are also kept as causes for
 * `khala why`, and logged.
 * Thread: any; the lock of the causes is held for one walk over all entries and one copy.
 * Memory: the causes are allocated at opening, never more; the oldest decision is evicted. Texts
 * are copied, truncated to their maximum size, and always UTF-8.
 * Errors: STATUS_OUT_OF_MEMORY at opening; the rest cannot fail.
 * Invariant: one call for each decision, so that counters, log and causes agree. No text is a
 * secret: a principal is named by the claims of its token, not by the token. No client evicts all
 * others: one principal, or one address without a principal, has at most a sixteenth of the
 * entries; addresses without a principal have at most half of them in total. */
#ifndef DELIVERY_TELEMETRY_H
#define DELIVERY_TELEMETRY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "auth/compatibility.h"
#include "base/metrics.h"
#include "base/slice.h"
#include "delivery/topic_activity.h"
#include "hub/frame.h"
#include "spec/codes.h"
#include "spec/metrics.h"
#include "topic/continuity.h"
#include "topic/policy.h"
#include "topic/stream_id.h"

/* ---- causes ---- */

#define CAUSE_CONNECTION_BYTES_MAX 64
#define CAUSE_PRINCIPAL_BYTES_MAX  192
#define CAUSE_PEER_BYTES_MAX       46
#define CAUSE_VERSION_BYTES_MAX    64
#define CAUSE_ORIGIN_BYTES_MAX     320
/* A decision that evicts a younger one than this comes too fast to be logged. */
#define CAUSE_PACE_MS 10000

enum cause_kind {
    CAUSE_DENIED,       /* refused: the connection may continue */
    CAUSE_DISCONNECTED, /* the server ended the connection, or an HTTP consumer's turn */
};

/* The versions that a client stated. The gate refused one of them. */
struct cause_client {
    struct slice build_id;
    struct slice protocol_version;
    struct slice schema_version;
};

struct cause {
    enum cause_kind kind;
    uint64_t at_ms;             /* since 1970 */
    struct slice connection;    /* its name in answers and logs; the id of a request */
    struct slice principal;     /* "user:42", "operator"; absent: not known */
    struct slice peer;          /* the address it came from; absent: not known */
    struct slice topic;         /* absent: none */
    struct slice origin;        /* the origin that the server refused; absent: it refused none */
    struct cause_client client; /* absent: the decision is not about a version */
    enum status status;
    const char *reason;  /* static: a reason code that says more, or NULL */
    const char *rule;    /* static: the claim and the rule of a refused token, or NULL */
    const char *surface; /* static: the surface whose compatibility rules refused, or NULL */
    unsigned close_code; /* 0: none was given */
    enum label_dialect dialect;
};

struct causes;

MUST_CHECK enum status causes_open(struct causes **causes, size_t capacity);
void causes_close(struct causes *causes);
/* mono_ms: now, by a monotonic clock. False: too many recent entries, for this principal or in
 * total, to log each of them. The entry is kept all the same. */
bool causes_add(struct causes *causes, const struct cause *cause, uint64_t mono_ms);

/* Which causes to walk: all given fields must be equal. A principal may be given without its kind:
 * "42" is user:42, guest:42 and org:42. */
struct cause_filter {
    struct slice connection; /* absent: any */
    struct slice principal;
    struct slice topic;
    bool disconnected_only;
};

/* The latest first; texts live during the call, which holds the lock: it may write to memory only.
 * False ends the walk. */
typedef bool cause_cb(void *user, const struct cause *cause);
void causes_walk(struct causes *causes, const struct cause_filter *filter, void *user,
                 cause_cb *callback);

/* ---- decisions ---- */

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
