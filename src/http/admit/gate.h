/* The gate: verifies the token of a request and returns its principal.
 * Thread: gate_init, gate_reload and gate_release belong to the main thread; the other functions
 * to any.
 * Memory: the gate owns the keys and the revocations. The texts of the settings outlive it. The
 * caller owns a reference to the principal it gets.
 * Errors: the 401 and 403 statuses of spec/status.json; STATUS_BAD_REQUEST for a query that does
 * not decode.
 * Invariant: the operator key is not a token, and a token is never the operator key. No secret is
 * logged. */
#ifndef HTTP_ADMIT_GATE_H
#define HTTP_ADMIT_GATE_H

#include "auth/compatibility.h"
#include "auth/keys.h"
#include "auth/revocation.h"
#include "auth/token.h"
#include "topic/policy.h"
#include "wire/http1_request.h"

struct gate_options {
    struct keys_options keys;
    struct token_policy policy;
    struct compatibility_window compatibility;
    bool enforces_origin;
    struct slice allowed_origins;
};

struct gate {
    struct keys *keys;
    struct revocations *revocations;
    struct token_policy policy;
    struct compatibility_window compatibility;
    bool enforces_origin;
    struct slice allowed_origins;
};

/* Reads or generates the keys. On failure the message has the reason. */
MUST_CHECK enum status gate_init(struct gate *gate, const struct gate_options *options,
                                 struct key_message *message);
void gate_release(struct gate *gate);
/* Reads the keys again: always, or only if their file changed. True: there is a new set. */
bool gate_reload(struct gate *gate, bool always);

/* The token is in ?token=, the only way for browsers, or in Authorization: Bearer. refusal,
 * which may be NULL here and below, says why a token is refused. */
MUST_CHECK enum status gate_admit(struct gate *gate, const struct http1_request *request,
                                  uint64_t now_ms, const struct principal **principal,
                                  struct token_refusal *refusal);
/* The same for a token in the header only. */
MUST_CHECK enum status gate_admit_header(struct gate *gate, const struct http1_request *request,
                                         uint64_t now_ms, const struct principal **principal,
                                         struct token_refusal *refusal);
/* Whether the query has a token parameter, valid or not. */
bool gate_has_token(const struct http1_request *request);
/* The same for a token that came another way, such as in a refresh message. */
MUST_CHECK enum status gate_admit_token(struct gate *gate, struct slice token, uint64_t now_ms,
                                        const struct principal **principal,
                                        struct token_refusal *refusal);
/* STATUS_ORIGIN_NOT_ALLOWED for a page that may not connect. Requests without Origin are allowed.
 */
MUST_CHECK enum status gate_check_origin(const struct gate *gate,
                                         const struct http1_request *request);

/* Until when a revocation made now must be remembered. Every earlier token has expired by then. */
uint64_t gate_revocation_expires_at_ms(const struct gate *gate, uint64_t now_ms);

#endif
