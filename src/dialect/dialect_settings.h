/* Settings that all dialects use beside those of delivery: the gate and some limits.
 * Filled before the loops start; read-only afterwards, except for the gate, which any thread uses.
 * Memory: outlives every session.
 * Errors: none.
 * struct delivery carries the pointer without knowing the type. */
#ifndef DIALECT_DIALECT_SETTINGS_H
#define DIALECT_DIALECT_SETTINGS_H

#include "delivery/session/session.h"
#include "http/admit/gate.h"
#include "http/admit/single_use.h"

struct dialect_settings {
    struct gate *gate;
    struct single_uses *single_uses;
    size_t message_bytes_max;       /* of a message from the peer */
    size_t first_message_bytes_max; /* of a message from a peer that has not authenticated */
    uint64_t messages_per_second;
    size_t subscriptions_max; /* of one connection */
    uint64_t audit_init_timeout_ms;
    bool token_single_use;
    bool legacy_cursors;
    uint64_t poll_default_limit;
    uint64_t poll_max_limit;
    uint64_t outbound_queue_limit;
};

static inline const struct dialect_settings *settings_of(const struct session *session) {
    return session->delivery->shared->dialects;
}

#endif
