/* The compatibility gate: which clients this server speaks with.
 * Any thread; pure. Writes into the caller's buffer.
 * A client outside the window has one code: STATUS_INVALID_CLIENT_BUILD,
 * STATUS_UNSUPPORTED_PROTOCOL_VERSION, STATUS_UNSUPPORTED_SCHEMA_VERSION, STATUS_UPGRADE_REQUIRED
 * or STATUS_UNSUPPORTED_CLIENT_BUILD, looked for in that order. Build ids are times as text
 * (20260101T000000Z) and compared as bytes. */
#ifndef AUTH_COMPATIBILITY_H
#define AUTH_COMPATIBILITY_H

#include "base/buffer.h"

#define COMPATIBILITY_SURFACE "khala_websocket"

struct compatibility_window {
    bool is_enforced;
    struct slice protocol_version;
    struct slice client_build_id_min;
    struct slice client_build_id_max; /* empty: none */
    uint64_t schema_version_min;
    uint64_t schema_version_max;
};

/* What a client says of itself; absent texts are empty. */
struct compatibility_client {
    struct slice client_build_id;
    struct slice protocol_version;
    bool has_schema_version;
    uint64_t schema_version;
};

/* STATUS_OK for everybody while the gate is not enforced. */
MUST_CHECK enum status compatibility_check(const struct compatibility_window *window,
                                           const struct compatibility_client *client);
/* Whether the status is a refusal of compatibility_check. */
bool compatibility_refuses(enum status status);
/* The body of a refusal, a JSON object, all or nothing. */
MUST_CHECK enum status compatibility_write_json(const struct compatibility_window *window,
                                                enum status refusal, struct buffer *out);

#endif
