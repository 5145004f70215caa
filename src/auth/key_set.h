/* A set of keys, by their ids: the current one, previous ones, other issuers'.
 * Filled by one thread, then immutable and shared by any.
 * Reference-counted. At most KEY_SET_COUNT_MAX keys of files of at most KEY_SET_BYTES_MAX.
 * Keys that nobody can use here (another kind, for encryption) are skipped; a key that is wrong, an
 * id given twice, or a text without a usable key is STATUS_INVALID_CONFIG, said in the message.
 * The first key that can sign is the one that signs. */
#ifndef AUTH_KEY_SET_H
#define AUTH_KEY_SET_H

#include <stdatomic.h>

#include "auth/key.h"

#define KEY_SET_COUNT_MAX 64
#define KEY_MESSAGE_MAX   1536

/* For people; holds no secret. */
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

/* Before it is shared. */
MUST_CHECK enum status key_set_add_secret(struct key_set *set, struct slice id, struct slice secret,
                                          struct key_message *message);
/* A JWKS ({"keys": […]}), or one JWK. */
MUST_CHECK enum status key_set_add_jwks(struct key_set *set, struct slice text,
                                        struct key_message *message);

/* NULL: there is none. Without an id (data NULL) the only key of a set of one. */
const struct key *key_set_find(const struct key_set *set, struct slice id);
/* NULL: none can sign. */
const struct key *key_set_signer(const struct key_set *set);

#endif
