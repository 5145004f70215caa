/* A principal: the identity of a reader or producer, the topics its token opens, its role if it
 * holds an operator key, and its expiry.
 * Thread: any: immutable once made. Only its reference count changes, atomically. A lock guards
 * the table of shared principals.
 * Memory: reference-counted. One allocation holds the principal and its texts. A constant or local
 * principal has a count of 0: ref and unref ignore it.
 * Errors: STATUS_OUT_OF_MEMORY from principal_new only.
 * Invariant: data without an owner is readable only for principals that read everything. */
#ifndef AUTH_PRINCIPAL_H
#define AUTH_PRINCIPAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "spec/codes.h"
#include "topic/owner.h"
#include "topic/topic_table.h"

/* Roles of operator keys. The route table says for each route which roles may call it. */
enum key_role {
    KEY_ROLE_NONE,    /* a token, no operator key */
    KEY_ROLE_ADMIN,   /* everything */
    KEY_ROLE_APPEND,  /* appends on behalf of anyone */
    KEY_ROLE_MINT,    /* mints tokens, but not with scopes that read beyond one owner */
    KEY_ROLE_READ,    /* reads everything, and changes nothing */
    KEY_ROLE_METRICS, /* reads /metrics */
    KEY_ROLE_COUNT,
};

/* Roles of a route, as a set. */
#define KEY_ROLE_BIT(role) (1u << (role))

const char *key_role_name(enum key_role role);
/* False: no key can have that role. */
bool key_role_parse(struct slice name, enum key_role *role);

/* Names that a token grants: exact, or with one '*' as auth/grant.h explains. */
struct grant_list {
    const struct slice *names;
    size_t count;
};

struct principal {
    struct owner identity; /* absent texts have data NULL, here and below */
    struct slice session_id;
    struct slice device_id;
    struct slice subject;     /* the sub of the token */
    struct slice token_id;    /* the jti of the token */
    uint64_t expires_at_ms;   /* no delivery from this time on; 0: never expires */
    enum key_role role;       /* the operator key's; KEY_ROLE_NONE: it has a token */
    bool read_all;            /* ignores ownership and scopes; grants still narrow */
    unsigned scopes;          /* bits of enum scope */
    struct grant_list topics; /* both empty: the token does not narrow */
    struct grant_list streams;
    uint64_t content_hash; /* set if it is shared */
    atomic_uint ref_count;
    atomic_bool is_shared;
};

#define PRINCIPAL_OPERATOR_NAME "operator"
/* The holder of the operator key that was generated or is a setting: may do everything, never
 * expires, and cannot be revoked. */
extern const struct principal principal_operator;
/* The holder of KHALA_MINT_KEY. */
extern const struct principal principal_mint_key;

/* The holder of an operator key of any role, which has no owner and no limits of an owner. */
static inline bool principal_is_operator(const struct principal *principal) {
    return principal->role != KEY_ROLE_NONE;
}
/* False for keys of the settings, which are valid until the next start. */
static inline bool principal_is_revocable(const struct principal *principal) {
    return !principal_is_operator(principal) || principal->token_id.data;
}

/* A deep copy with one reference. */
MUST_CHECK enum status principal_new(const struct principal *from, const struct principal **made);
/* Returns the principal. */
const struct principal *principal_ref(const struct principal *principal);
/* A reference to a principal with the same content, which other connections have too; or to this
 * one. Connections that live long keep this one, so that one token has one principal. */
const struct principal *principal_shared(const struct principal *principal);
/* NULL is fine. */
void principal_unref(const struct principal *principal);

/* Whether its token lists topics or streams, which then are all that it opens. */
static inline bool principal_is_narrowed(const struct principal *principal) {
    return principal->topics.count + principal->streams.count > 0;
}
/* True for the same user or guest. Data of an organisation without user or guest belongs to the
 * principals of that organisation. */
bool principal_owns(const struct principal *principal, const struct owner *owner);
/* The principal owns the data, or reads everything. */
bool principal_may_read(const struct principal *principal, const struct owner *owner);

/* Keys of readers and of owned data, which are listed by them. A principal that does not read
 * everything may read data only if the two have a key in common. A key is a hash with a secret of
 * the process, so two names rarely have the same. Data without an owner has no key. Returns the
 * number of keys. */
#define PRINCIPAL_KEYS_MAX 2
size_t principal_keys(const struct principal *principal, uint32_t keys[PRINCIPAL_KEYS_MAX]);
size_t owner_keys(const struct owner *owner, uint32_t keys[PRINCIPAL_KEYS_MAX]);

/* Whether it may replay everything that the log has of a topic it reads, beyond floor and budget.
 */
bool principal_may_replay_all(const struct principal *principal);

/* The kind of the name, and the longest text of a token. */
#define PRINCIPAL_KEY_BYTES_MAX (1 + 640)
/* The principal of every limit and every fair queue: connections, reads, unread answers, polls and
 * the turns of subscribers. It is the user, else the guest, the organisation, the subject, the
 * token id. Different principals have different keys. The text lives in key. */
struct slice principal_key(const struct principal *principal, char key[PRINCIPAL_KEY_BYTES_MAX]);

#define PRINCIPAL_NAME_BYTES_MAX 192
/* The name for people: "user:42", "guest:…", "org:…", "operator", "key:NAME" for an operator key
 * with a name, or "service" for a token without an identity. A longer name is truncated. Returns
 * the size. */
size_t principal_name(const struct principal *principal, char text[PRINCIPAL_NAME_BYTES_MAX]);

static inline bool principal_is_expired(const struct principal *principal, uint64_t now_ms) {
    return principal->expires_at_ms != 0 && now_ms >= principal->expires_at_ms;
}

#endif
