/* Sync tokens: checked into a principal, and made from a request.
 * Any thread; pure but for the keys' library.
 * A principal that comes out is the caller's reference; nothing of the token is kept.
 * Refusals are the 401s of spec/status.json. Before the signature holds there is one:
 * STATUS_INVALID_TOKEN; what is wrong with a claim is only told to who could sign it.
 * Sizes are checked before work is done: at most TOKEN_BYTES_MAX, lists of CLAIMS_LIST_MAX. */
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

/* What every token of this server must hold to. */
struct token_policy {
    struct slice issuer; /* empty: any, and none is written */
    struct slice audience;
    uint64_t max_age_s;
    bool require_token_id;
};

/* Whose a token was that is one of ours and is refused all the same, as principal_name says it: for
 * people, and nothing is opened by it. */
struct token_bearer {
    size_t size; /* 0: not known */
    char name[PRINCIPAL_NAME_BYTES_MAX];
};

/* The principal expires with the token or when that reaches its maximum age, whichever is first,
 * and without skew: clocks may differ, but nothing is delivered after the moment the token names.
 * The bearer may be NULL; it is set where a token is refused for its time or its id. */
MUST_CHECK enum status token_verify(const struct token_policy *policy, const struct key_set *keys,
                                    struct slice token, uint64_t now_ms,
                                    const struct principal **principal,
                                    struct token_bearer *bearer);
/* The claims of any token, unchecked: for people who look at one. The JSON goes to out. */
MUST_CHECK enum status token_peek(struct slice token, struct buffer *header, struct buffer *claims);

struct token_request {
    struct owner who;
    struct slice token_id;
    struct slice session_id;
    struct slice device_id; /* may be absent */
    struct grant_list scopes;
    struct grant_list topics;
    struct grant_list streams;
    uint64_t issued_at_s;
    uint64_t ttl_s;
};

/* "user:ID", "guest:SCOPE", "org:ID", or "service" for nobody in particular. */
MUST_CHECK enum status token_subject(const struct owner *who, struct buffer *out);
/* Appends the token. STATUS_INVALID_TTL, STATUS_PAYLOAD_TOO_LARGE for one that would not be taken
 * back, STATUS_SIGNING_KEY_MISSING when no key of the set signs. */
MUST_CHECK enum status token_mint(const struct token_policy *policy, const struct key_set *keys,
                                  const struct token_request *request, struct buffer *out);
/* The most that a token may be asked to live. */
uint64_t token_ttl_s_max(const struct token_policy *policy);

#endif
