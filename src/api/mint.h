/* Minting: a request for a token in JSON, and the answer with the token in it.
 * Any thread. Appends to the caller's buffer, all or nothing.
 * STATUS_INVALID_REQUEST with why in words; STATUS_INVALID_TTL; what token_mint and the parser
 * answer.
 * What is answered is what the token says. */
#ifndef API_MINT_H
#define API_MINT_H

#include "base/uuid7.h"
#include "http/admit/gate.h"

#define MINT_BYTES_MAX CLAIMS_BYTES_MAX

/* What a token has from the moment it is made. */
struct mint_moment {
    uint64_t now_ms;
    struct uuid token_id;
    struct uuid session_id; /* where the request names none */
};

/* why is static text, or NULL where the status says it all. */
MUST_CHECK enum status mint(const struct gate *gate, struct slice request,
                            const struct mint_moment *moment, struct buffer *out, const char **why);

#endif
