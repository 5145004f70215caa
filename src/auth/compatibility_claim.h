/* What a client says of itself, in a query or in JSON: client_build_id, protocol_version,
 * schema_version.
 * Any thread; pure. Memory: itself, whatever the client sent.
 * Reading cannot fail: what is malformed or too long counts as said wrongly, which the gate refuses
 * by its own code.
 * A reader overwrites what its source names and keeps the rest: first the socket's query, then the
 * join's payload. */
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

/* The query as it came, still encoded. */
void compatibility_claim_query(struct compatibility_claim *claim, struct slice query);
/* The members of an object; null is as good as absent. Any other value names nothing. */
void compatibility_claim_json(struct compatibility_claim *claim, struct json_value object);
/* For compatibility_check; points into the claim. */
struct compatibility_client compatibility_claim_client(const struct compatibility_claim *claim);

#endif
