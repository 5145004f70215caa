/* A set of keys by their ids: the current key, previous keys, keys of other issuers.
 * One thread fills it; then it is immutable and any thread reads it.
 * Reference-counted. At most KEY_SET_COUNT_MAX keys, from files of at most KEY_SET_BYTES_MAX.
 * STATUS_INVALID_CONFIG for a bad key, an id that occurs twice (except for previous secrets), or a
 * text without a usable key; the message has the reason. Keys of other types or for encryption are
 * skipped. The first key that can sign is the signer. */
#ifndef AUTH_KEY_SET_H
#define AUTH_KEY_SET_H

#include <stdatomic.h>

#include "auth/key.h"

#define KEY_SET_COUNT_MAX 64
#define KEY_MESSAGE_MAX   1536

/* For logs and terminals; holds no secret. */
struct key_message {
    char text[KEY_MESSAGE_MAX];
};

struct key_set {
    atomic_uint ref_count;
    size_t count;
    struct key keys[KEY_SET_COUNT_MAX];
};

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
/* NULL: no key can sign. */
const struct key *key_set_signer(const struct key_set *set);

#endif
