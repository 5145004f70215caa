/* The context of the handlers of api/. A handler gets it with api_of(exchange).
 * Thread: filled before the loops start; then read-only for every loop, except for its atomics.
 * Memory: the struct outlives every exchange; appends has one element for each loop. */
#ifndef API_API_H
#define API_API_H

#include <stdatomic.h>

#include "api/batch_shares.h"
#include "api/file_thread.h"
#include "api/spool.h"
#include "authority/writer.h"
#include "cluster/fanout.h"
#include "cluster/nodes.h"
#include "delivery/consumers.h"
#include "delivery/snapshot/snapshots.h"
#include "http/exchange.h"
#include "hub/hub.h"
#include "projector/projector.h"
#include "retention/retention.h"

struct append_memory;

struct store_health {
    atomic_uint_fast64_t failed_at_ms; /* monotonic clock; 0: the last append worked */
    atomic_bool is_moved;              /* the files of the store are not at their path */
};

struct api {
    struct http *http;
    const struct policy_table *policies;
    struct telemetry *telemetry;
    const struct store *store; /* its disk has a state */
    struct store_pool *store_pool;
    struct writer *writer;
    struct projector *projector;
    struct retention *retention;
    struct hub *hub;
    struct consumers *consumers;
    struct fanout *fanout;
    struct quota_table *quotas;
    struct nodes *nodes;
    bool is_shared;    /* several nodes may share the store */
    const char *epoch; /* the epoch of the log */
    struct snapshot_service *snapshot_service;
    struct slice projection_version;
    struct relay *const *relays; /* the sinks outside the store */
    size_t relay_count;
    struct append_memory *appends; /* one for each loop, by its index */
    const char *folder;            /* an import spools its files here */
    struct clock_reading started;
    uint64_t item_bytes_max;          /* the largest item of a batch */
    struct batch_shares batch_shares; /* memory of all batches, over all loops */
    struct file_thread files;
    struct spool_files batch_spools; /* unread answers of all batches */
    uint64_t snapshots_bytes_max;
    struct store_health health;
    atomic_bool is_ending;             /* a signal arrived: the server is not ready */
    atomic_size_t snapshot_gzip_count; /* answers that are being compressed */
};

static inline struct api *api_of(const struct exchange *exchange) {
    return exchange->http->api;
}

/* The producer whose token the request has; NULL: an operator. */
static inline const struct principal *api_producer(const struct exchange *exchange) {
    return principal_is_operator(exchange->principal) ? NULL : exchange->principal;
}

/* STATUS_OK while the token or key of the exchange may append: the body may come long after the
 * head that was admitted. */
MUST_CHECK enum status api_check_producer(const struct exchange *exchange);

#endif
