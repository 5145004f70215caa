/* The gate: who stands behind a request, by its token, and whether it may come in.
 * gate_init, gate_reload and gate_release belong to the main thread; the rest to any.
 * Owns the keys and the revocations; texts are the settings', which outlive it.
 * A principal that comes out is the caller's reference. Refusals are the 401s and 403s of
 * spec/status.json; STATUS_BAD_REQUEST for a query that does not decode.
 * The operator key is not a token, and no token is the operator key. No secret is logged. */
#ifndef HTTP_ADMIT_GATE_H
#define HTTP_ADMIT_GATE_H

#include "auth/compatibility.h"
#include "auth/keys.h"
#include "auth/revocation.h"
#include "auth/token.h"
#include "topic/topic_class.h"
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

/* Reads or makes the keys. What could not be had is in the message. */
MUST_CHECK enum status gate_init(struct gate *gate, const struct gate_options *options,
                                 struct key_message *message);
void gate_release(struct gate *gate);
/* Looks at the keys again: always, or only if their file changed. */
void gate_reload(struct gate *gate, bool always);

/* By ?token=, since browsers can put it nowhere else, or by Authorization: Bearer. The bearer may
 * be NULL, here and below. */
MUST_CHECK enum status gate_admit(struct gate *gate, const struct http1_request *request,
                                  uint64_t now_ms, const struct principal **principal,
                                  struct token_bearer *bearer);
/* Whether the query brings one, whatever it is. */
bool gate_has_token(const struct http1_request *request);
/* A token that came another way: a refresh, a capability. */
MUST_CHECK enum status gate_admit_token(struct gate *gate, struct slice token, uint64_t now_ms,
                                        const struct principal **principal,
                                        struct token_bearer *bearer);
/* STATUS_ORIGIN_NOT_ALLOWED for a page that may not connect; requests without Origin may. */
MUST_CHECK enum status gate_check_origin(const struct gate *gate,
                                         const struct http1_request *request);

/* Until when a revocation made now must be remembered: no token issued before it lives longer. */
uint64_t gate_revocation_expires_at_ms(const struct gate *gate, uint64_t now_ms);

#endif
