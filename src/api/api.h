/* What the handlers of the api work on.
 * Filled before the loops start; then read-only, except for its atomics. Any loop's thread.
 * Memory: the struct outlives every exchange; parsers has one element a loop.
 * Errors: none.
 * A handler finds it as exchange->http->api. */
#ifndef API_API_H
#define API_API_H

#include <stdatomic.h>

#include "api/store_health.h"
#include "authority/append_read.h"
#include "authority/writer.h"
#include "delivery/consumers.h"
#include "delivery/snapshot/snapshot_service.h"
#include "http/exchange.h"
#include "hub/hub.h"
#include "projector/projector.h"
#include "retention/retention.h"

struct api {
    struct http *http;
    const struct policy_table *policies;
    struct telemetry *telemetry;
    struct store_pool *store_pool;
    struct writer *writer;
    struct projector *projector;
    struct retention *retention;
    struct hub *hub;
    struct consumers *consumers;
    struct snapshot_service *snapshot_service;
    struct append_parser *parsers; /* by the index of the loop */
    struct clock_reading started;
    uint64_t item_bytes_max; /* of an item of a batch */
    uint64_t batches_bytes_max;
    uint64_t snapshots_bytes_max;
    struct store_health health;
    atomic_bool is_ending;             /* a signal came: readiness says so */
    atomic_size_t batches_bytes;       /* that batches hold, over all loops */
    atomic_size_t snapshot_gzip_count; /* answers that are being compressed */
};

static inline struct api *api_of(const struct exchange *exchange) {
    return exchange->http->api;
}

static inline struct append_parser *api_parser(const struct exchange *exchange) {
    return &exchange->http->api->parsers[exchange->loop->index];
}

#endif
