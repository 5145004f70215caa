/* Sync tokens: verified into a principal, and minted from a request.
 * Thread: any.
 * Memory: the caller owns the reference to the principal. Nothing of the token is kept.
 * Errors: refusals are the 401s of spec/status.json. Without a valid signature every fault is
 * STATUS_INVALID_TOKEN: only callers whose token a known key signed learn details of claims.
 * Invariant: sizes are checked first: at most TOKEN_BYTES_MAX, lists of CLAIMS_LIST_MAX. */
#ifndef AUTH_TOKEN_H
#define AUTH_TOKEN_H

#include "auth/claims.h"
#include "auth/key_set.h"
#include "auth/principal.h"

#define TOKEN_BYTES_MAX 8192
#define TOKEN_SKEW_S    30
#define TOKEN_TTL_S     300
#define TOKEN_TTL_S_MIN 60
#define TOKEN_TTL_S_MAX 900

/* The rules for every token of this server. */
struct token_policy {
    struct slice issuer; /* never empty: always checked, and written into minted tokens */
    struct slice audience;
    uint64_t max_age_s;
    bool require_token_id;
};

/* The reason of a refusal, for operators only. The peer gets the reason code and no details. */
struct token_refusal {
    const char *rule; /* static: the claim and its rule, "exp: must be later than now" */
    /* The principal_name, if a token of this server is refused for its times or its id. */
    size_t name_size; /* 0: not known */
    char name[PRINCIPAL_NAME_BYTES_MAX];
};

/* The rules that are checked outside token_verify. */
#define TOKEN_RULE_REVOKED "jti, oa_session_id, oa_device_id: one of them is revoked"
#define TOKEN_RULE_USED    "jti: may open only one connection, and has opened one"

/* The principal expires with the token or at its maximum age, whichever is first. A token is
 * refused from that time on. TOKEN_SKEW_S applies to nbf and to an iat in the future only. refusal
 * may be NULL. Each refusal sets it. */
MUST_CHECK enum status token_verify(const struct token_policy *policy, const struct key_set *keys,
                                    struct slice token, uint64_t now_ms,
                                    const struct principal **principal,
                                    struct token_refusal *refusal);
/* Header and claims of any token as JSON, unverified: for display only. */
MUST_CHECK enum status token_peek(struct slice token, struct buffer *header, struct buffer *claims);

struct token_request {
    struct owner identity;
    struct slice token_id;
    struct slice session_id;
    struct slice device_id; /* may be absent */
    struct grant_list scopes;
    struct grant_list topics;
    struct grant_list streams;
    uint64_t issued_at_s;
    uint64_t ttl_s;
};

/* "user:ID", "guest:SCOPE", "org:ID", or "service" without an identity. */
MUST_CHECK enum status token_subject(const struct owner *identity, struct buffer *out);
/* Appends the token. STATUS_INVALID_TTL; STATUS_PAYLOAD_TOO_LARGE for a token that token_verify
 * would refuse; STATUS_SIGNING_KEY_MISSING when no key of the set signs. */
MUST_CHECK enum status token_mint(const struct token_policy *policy, const struct key_set *keys,
                                  const struct token_request *request, struct buffer *out);
/* The longest lifetime that a request may ask for. */
uint64_t token_ttl_s_max(const struct token_policy *policy);

#endif
