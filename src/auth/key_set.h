/* A set of keys by their ids: the current key, previous keys, keys of other issuers.
 * Thread: one fills it. Then it is immutable, and any thread reads it.
 * Memory: reference-counted. At most KEY_SET_COUNT_MAX keys, from files of at most
 * KEY_SET_BYTES_MAX.
 * Errors: STATUS_INVALID_CONFIG for a bad secret or a text without a usable key; the message has
 * the reason. A bad key among others of a JWKS is left out and remembered as refused, and so is a
 * key with the id of an earlier one. Keys of other types or for encryption are skipped.
 * Invariant: the signer is the key that began to sign last, and the first of those that began
 * together. */
#ifndef AUTH_KEY_SET_H
#define AUTH_KEY_SET_H

#include <stdatomic.h>

#include "auth/key.h"

#define KEY_SET_COUNT_MAX 64
#define KEY_MESSAGE_MAX   1536

/* A message for logs and terminals. It holds no secret. */
struct key_message {
    char text[KEY_MESSAGE_MAX];
};

/* A key that was left out. */
struct key_refusal {
    char id[KEY_ID_BYTES_MAX + 1]; /* its kid; "#2": the third key of the list has no valid one */
    const char *reason;            /* static */
};

struct key_set {
    atomic_uint ref_count;
    size_t count;
    struct key keys[KEY_SET_COUNT_MAX];
    size_t refused_count; /* may be above the number of those that are remembered */
    struct key_refusal refused[KEY_SET_COUNT_MAX];
};

static inline size_t key_set_refusals(const struct key_set *set) {
    return set->refused_count < KEY_SET_COUNT_MAX ? set->refused_count : KEY_SET_COUNT_MAX;
}

/* Empty, with one reference; NULL without memory. */
struct key_set *key_set_new(void);
struct key_set *key_set_ref(struct key_set *set);
/* NULL is fine. */
void key_set_unref(struct key_set *set);

/* Only before the set is shared. */
MUST_CHECK enum status key_set_add_secret(struct key_set *set, struct slice id, struct slice secret,
                                          struct key_message *message);
/* A secret that still verifies and no longer signs. It may share the id of another key. */
MUST_CHECK enum status key_set_add_previous(struct key_set *set, struct slice id,
                                            struct slice secret, struct key_message *message);
/* A JWKS ({"keys": […]}), or one JWK. */
MUST_CHECK enum status key_set_add_jwks(struct key_set *set, struct slice text,
                                        struct key_message *message);

/* NULL: no such key. Without an id (data NULL): the first key, if all keys have the same id. */
const struct key *key_set_find(const struct key_set *set, struct slice id);
/* The next key with the id of this one, or NULL. */
const struct key *key_set_next(const struct key_set *set, const struct key *key);
/* NULL: no key can sign at that time. */
const struct key *key_set_signer(const struct key_set *set, uint64_t now_s);

#endif
