/* Minting: reads a JSON request for a token and writes the answer with the token. mint.c also has
 * the handler of the endpoint.
 * Thread: any.
 * Memory: the answer is appended to the caller's buffer, whole or not at all.
 * Errors: STATUS_INVALID_REQUEST, STATUS_INVALID_SCOPE and STATUS_FORBIDDEN_SCOPE with a reason;
 * STATUS_INVALID_TTL; those of token_mint and the parser.
 * Invariant: the answer has the same values as the token. */
#ifndef API_MINT_H
#define API_MINT_H

#include "base/uuid7.h"
#include "http/admit/gate.h"
#include "wire/object_writer.h"

#define MINT_BYTES_MAX CLAIMS_BYTES_MAX

/* The time and the new ids of a token. */
struct mint_moment {
    uint64_t now_ms;
    struct uuid token_id;
    struct uuid session_id; /* used if the request names none */
    bool has_mint_role;     /* the caller may not mint scopes that read beyond one owner */
};

/* A sentence that says more than the message of the status; empty: there is none. */
struct mint_reason {
    char text[CLAIMS_TEXT_BYTES_MAX + 512];
};

/* A token that opens nothing is minted; the answer then has warnings. record gets the members of
 * the event that records the token, without the token; NULL: none is recorded. */
MUST_CHECK enum status mint(const struct gate *gate, struct slice request,
                            const struct mint_moment *moment, struct buffer *out,
                            struct mint_reason *reason, struct object_writer *record);

#endif
