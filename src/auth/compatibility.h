/* The compatibility gate: which client builds this server accepts.
 * Any thread; pure.
 * Writes into the caller's buffer.
 * Checked in this order: STATUS_INVALID_CLIENT_BUILD, STATUS_UNSUPPORTED_PROTOCOL_VERSION,
 * STATUS_UNSUPPORTED_SCHEMA_VERSION, STATUS_UPGRADE_REQUIRED, STATUS_UNSUPPORTED_CLIENT_BUILD.
 * Build ids are times as text (20260101T000000Z) and are compared as bytes. */
#ifndef AUTH_COMPATIBILITY_H
#define AUTH_COMPATIBILITY_H

#include "base/buffer.h"

#define COMPATIBILITY_SURFACE "khala_websocket"

struct compatibility_window {
    bool is_enforced;
    struct slice protocol_version;
    struct slice client_build_id_min;
    struct slice client_build_id_max; /* empty: no maximum */
    uint64_t schema_version_min;
    uint64_t schema_version_max;
};

/* The versions that a client states. Absent texts are empty. */
struct compatibility_client {
    struct slice client_build_id;
    struct slice protocol_version;
    bool has_schema_version;
    uint64_t schema_version;
};

/* STATUS_OK for every client while the gate is not enforced. */
MUST_CHECK enum status compatibility_check(const struct compatibility_window *window,
                                           const struct compatibility_client *client);
/* Whether the status is a refusal of compatibility_check. */
bool compatibility_refuses(enum status status);
/* Appends the body of a refusal, a JSON object. A failure leaves the buffer unchanged. */
MUST_CHECK enum status compatibility_write_json(const struct compatibility_window *window,
                                                enum status refusal, struct buffer *out);

#endif
