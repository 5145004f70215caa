/* A principal: who reads, what its token lets it read, and until when.
 * Any thread: immutable once made; its count alone changes, atomically.
 * Reference-counted. One allocation holds it and its texts. A principal that was not made by
 * principal_new (a constant, a local) has a count of 0: it is its owner's, and ref and unref leave
 * it alone. principal_new fails with STATUS_OUT_OF_MEMORY only; the rest cannot fail.
 * What belongs to nobody is for those who may read everything. */
#ifndef AUTH_PRINCIPAL_H
#define AUTH_PRINCIPAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "spec/codes.h"
#include "topic/owner.h"
#include "topic/topic_table.h"

/* Names a token grants: exact, or with one '*' (auth/grant.h says what that stands for). */
struct grant_list {
    const struct slice *names;
    size_t count;
};

struct principal {
    struct owner who; /* absent parts have data NULL, here and below */
    struct slice session_id;
    struct slice device_id;
    struct slice token_id;    /* the token's jti */
    uint64_t expires_at_ms;   /* nothing is delivered from then on; 0: never */
    bool read_all;            /* lifts ownership and scopes; grants still narrow */
    unsigned scopes;          /* bits of enum scope */
    struct grant_list topics; /* both empty: not narrowed */
    struct grant_list streams;
    atomic_uint ref_count;
};

/* Reads everything and never expires: whoever holds the operator key. */
extern const struct principal principal_operator;

/* A copy with texts of its own and one reference. */
MUST_CHECK enum status principal_new(const struct principal *from, const struct principal **made);
/* Answers the principal, so that a reference can be taken where it is stored. */
const struct principal *principal_ref(const struct principal *principal);
/* NULL is fine. */
void principal_unref(const struct principal *principal);

/* Its own user's or guest's; or its organisation's, where that has no user or guest. */
bool principal_may_read(const struct principal *principal, const struct owner *owner);

#define PRINCIPAL_NAME_BYTES_MAX 192
/* What people and fairness know it by: "user:42", "guest:…", "org:…", "operator", or "service" for
 * a token that speaks for none of them; cut where it is longer. Answers its size. */
size_t principal_name(const struct principal *principal, char text[PRINCIPAL_NAME_BYTES_MAX]);

static inline bool principal_is_expired(const struct principal *principal, uint64_t now_ms) {
    return principal->expires_at_ms != 0 && now_ms >= principal->expires_at_ms;
}

#endif
