/* The compatibility gate: which client builds this server accepts, and the versions that a client
 * states in a query or in JSON: client_build_id, protocol_version, schema_version.
 * Thread: any.
 * Memory: the caller's. A claim holds copies of the texts, bounded by
 * COMPATIBILITY_TEXT_BYTES_MAX.
 * Errors: checked in this order: STATUS_INVALID_CLIENT_BUILD, STATUS_UNSUPPORTED_PROTOCOL_VERSION,
 * STATUS_UNSUPPORTED_SCHEMA_VERSION, STATUS_UPGRADE_REQUIRED, STATUS_UNSUPPORTED_CLIENT_BUILD.
 * Reading a claim cannot fail: a malformed or long text becomes an empty one, which the gate
 * refuses.
 * Invariant: build ids are times as text (20260101T000000Z) and are compared as bytes. Members of
 * a later source replace those of an earlier one: first the query, then the join. */
#ifndef AUTH_COMPATIBILITY_H
#define AUTH_COMPATIBILITY_H

#include "base/buffer.h"
#include "wire/json.h"

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

/* ---- claims ---- */

#define COMPATIBILITY_TEXT_BYTES_MAX 64

struct compatibility_text {
    size_t size;
    char text[COMPATIBILITY_TEXT_BYTES_MAX];
};

struct compatibility_claim {
    struct compatibility_text client_build_id;
    struct compatibility_text protocol_version;
    struct compatibility_text schema_version; /* its digits */
};

/* Reads the query, which is still percent-encoded. */
void compatibility_claim_query(struct compatibility_claim *claim, struct slice query);
/* Reads the members of an object; null counts as absent. A value that is no object is ignored. */
void compatibility_claim_json(struct compatibility_claim *claim, struct json_value object);
/* The input of compatibility_check. It points into the claim. */
struct compatibility_client compatibility_claim_client(const struct compatibility_claim *claim);

#endif
