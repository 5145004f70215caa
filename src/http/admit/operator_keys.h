/* Operator keys with names and roles, as the store has them.
 * Any thread may look a key up; calls of operator_keys_read follow each other.
 * Memory: at most OPERATOR_KEYS_MAX keys. A lookup returns a reference to the principal of the key.
 * Errors: STATUS_INVALID_TOKEN for a text that is no valid key; the store's statuses;
 * STATUS_LIMIT_REACHED for a store with more keys.
 * No key is kept, only SHA-256 digests: a key is 256 random bits, so no slow hash is needed. A
 * lookup compares with every digest in constant time. A connection outlives the reading of the keys
 * that admitted it, so its principal is compared with the present keys, by its id: one that is not
 * there any more counts as revoked (admission_is_revoked). */
#ifndef HTTP_ADMIT_OPERATOR_KEYS_H
#define HTTP_ADMIT_OPERATOR_KEYS_H

#include "auth/principal.h"
#include "base/base64url.h"
#include "base/uuid7.h"
#include "store/store.h"

#define OPERATOR_KEY_NAME_BYTES_MAX 64
/* So that scanners for secrets recognise a key, and tokens need no lookup. */
#define OPERATOR_KEY_PREFIX       "khk_"
#define OPERATOR_KEY_RANDOM_BYTES 32
#define OPERATOR_KEY_TEXT_SIZE                                                                     \
    (sizeof(OPERATOR_KEY_PREFIX) - 1 + BASE64URL_SIZE(OPERATOR_KEY_RANDOM_BYTES))
/* The id of a key: it is the token_id of its principal, which revocations name. */
#define OPERATOR_KEY_ID_PREFIX "key:"
#define OPERATOR_KEY_ID_SIZE   (sizeof(OPERATOR_KEY_ID_PREFIX) - 1 + UUID_TEXT_SIZE)

struct operator_keys;

MUST_CHECK enum status operator_keys_open(struct operator_keys **keys);
/* NULL is fine. */
void operator_keys_close(struct operator_keys *keys);
/* Replaces the keys in memory by those of the store. */
MUST_CHECK enum status operator_keys_read(struct operator_keys *keys,
                                          struct store_session *session);
/* The store has changed the key of that name, or removed it: until the keys are read again, this
 * node has none of that name. */
void operator_keys_drop(struct operator_keys *keys, struct slice name);
/* Drops the previous keys whose time is over. True: a key has ended since the last call that
 * returned true, so connections of it may be open. */
bool operator_keys_take_ended(struct operator_keys *keys, uint64_t now_ms);
/* The principal of a key. */
MUST_CHECK enum status operator_keys_find(struct operator_keys *keys, struct slice text,
                                          uint64_t now_ms, const struct principal **principal);
/* Whether that principal had a key with a name, which is not valid any more. */
bool operator_keys_has_ended(struct operator_keys *keys, const struct principal *principal,
                             uint64_t now_ms);
/* A reference to the principal of the key of that name, as this node knows; NULL: there is none.
 * Its role is KEY_ROLE_NONE if this build does not know it. */
const struct principal *operator_keys_named(struct operator_keys *keys, struct slice name);
bool operator_keys_is_full(struct operator_keys *keys);

/* NULL: a key may have that name. Otherwise what is wrong with it. */
const char *operator_key_name_problem(struct slice name);
/* A new key, and its digest. */
MUST_CHECK enum status operator_key_make(char text[OPERATOR_KEY_TEXT_SIZE + 1],
                                         uint8_t digest[SHA256_BYTES]);

#endif
