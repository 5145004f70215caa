/* Delivery: what every session and poll of the server needs, and what each io loop adds.
 * Thread: struct delivery is filled before the loops start and read-only afterwards; struct
 * delivery_loop belongs to its loop (delivery/serving.h opens and serves it).
 * Memory: both outlive every session. The compressor is made when a peer first agrees on it. */
#ifndef DELIVERY_DELIVERY_H
#define DELIVERY_DELIVERY_H

#include "auth/revocation.h"
#include "authority/writer.h"
#include "base/slab.h"
#include "delivery/consumers.h"
#include "delivery/feed.h"
#include "delivery/scheduler.h"
#include "delivery/snapshot/snapshots.h"
#include "delivery/telemetry.h"
#include "net/loop.h"
#include "store/store_pool.h"
#include "wire/websocket/ws_decoder.h"

struct delivery_options {
    uint64_t heartbeat_ms;
    uint64_t strike_check_ms; /* between two checks of a session that is behind */
    uint64_t lag_max;         /* frames; beyond it a blocked session gets strikes */
    bool lag_follows_budgets; /* a topic's lag_max is that of its policy, if it is larger */
    uint64_t strikes_max;
    size_t slice_frames; /* in one turn of a cold topic, if its principal has several topics */
};

struct delivery {
    struct delivery_options options;
    const struct policy_table *policies;
    const char *epoch; /* the log's */
    struct revocations *revocations;
    struct hub *hub;
    struct store_pool *store_pool;
    struct writer *writer;
    struct snapshot_service *snapshots;
    struct telemetry *telemetry;
    struct consumers *consumers;
    struct subscription_quota *subscription_quota; /* NULL: no limit */
    const void *dialects; /* struct dialect_settings, which delivery does not read */
};

struct session_work;
struct subscription_quota;

/* Openings and lookups of one principal that began in this turn of the loop. */
struct job_group {
    struct session_work *first;
    struct session_work *last;
};

struct delivery_loop {
    struct delivery *shared;
    struct io_loop *io;
    struct feeds feeds;         /* the topics that its connections read */
    struct scheduler scheduler; /* which subscriber is served next */
    struct slab sessions;       /* memory of these three, which idle connections have */
    struct slab subscribers;
    struct slab framings;
    struct ws_shared websockets;  /* memory that all WebSockets of the loop decode with */
    struct ws_deflater *deflater; /* NULL until a peer agrees on compression */
    struct job_group job_groups[JOB_GROUPS_MAX];
    size_t job_group_count;
};

#endif
