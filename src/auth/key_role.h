/* Roles of operator keys: what the bearer of a key may do.
 * Any thread; pure.
 * Allocates nothing.
 * Errors: none.
 * The route table says for each route which roles may call it; admin may call all of them. */
#ifndef AUTH_KEY_ROLE_H
#define AUTH_KEY_ROLE_H

#include "base/slice.h"

enum key_role {
    KEY_ROLE_NONE,    /* no operator key: a token */
    KEY_ROLE_ADMIN,   /* everything */
    KEY_ROLE_APPEND,  /* appends on behalf of anyone */
    KEY_ROLE_MINT,    /* mints tokens, but not with scopes that read beyond one owner */
    KEY_ROLE_READ,    /* reads everything, and changes nothing */
    KEY_ROLE_METRICS, /* reads /metrics */
    KEY_ROLE_COUNT,
};

/* Roles of a route, as a set. */
#define KEY_ROLE_BIT(role) (1u << (role))

static inline const char *key_role_name(enum key_role role) {
    static const char *const names[KEY_ROLE_COUNT] = {"none", "admin", "append",
                                                      "mint", "read",  "metrics"};
    return names[role];
}

/* False: no key can have that role. */
static inline bool key_role_parse(struct slice name, enum key_role *role) {
    for (unsigned i = KEY_ROLE_NONE + 1; i < KEY_ROLE_COUNT; i++)
        if (slice_equal(name, slice_of(key_role_name((enum key_role)i)))) {
            *role = (enum key_role)i;
            return true;
        }
    return false;
}

#endif
