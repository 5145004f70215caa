/* The versions that a client states in a query or in JSON: client_build_id, protocol_version,
 * schema_version.
 * Any thread; pure.
 * Holds copies of the texts, bounded by COMPATIBILITY_TEXT_BYTES_MAX.
 * Cannot fail: a malformed or long text becomes an empty one, which the gate refuses.
 * Members of a later source replace those of an earlier one: first the query, then the join. */
#ifndef AUTH_COMPATIBILITY_CLAIM_H
#define AUTH_COMPATIBILITY_CLAIM_H

#include "auth/compatibility.h"
#include "wire/json.h"

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
