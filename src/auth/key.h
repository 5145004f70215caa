/* One JOSE key: verifies signatures, and signs if it holds the private part.
 * Thread: any: immutable once initialised.
 * Memory: the key set's. A key holds a copy of the members of a JWK that it needs.
 * Errors: STATUS_NOT_FOUND for a JWK of an unsupported type, STATUS_INVALID_CONFIG for a bad JWK.
 * The reason quotes no secret.
 * Invariant: the algorithm comes from the key, never from a token: an RSA key never verifies an
 * HMAC. */
#ifndef AUTH_KEY_H
#define AUTH_KEY_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/slice.h"
#include "spec/codes.h"

#define KEY_ID_BYTES_MAX     256
#define KEY_SECRET_BYTES_MAX 1024

enum key_algorithm { KEY_HS256, KEY_RS256, KEY_ES256, KEY_ALGORITHM_COUNT };

struct key {
    char id[KEY_ID_BYTES_MAX + 1];
    enum key_algorithm algorithm;
    bool signs;                  /* holds a secret or a private part */
    size_t secret_bytes;         /* HS256 only */
    struct evp_mac_ctx_st *hmac; /* HS256 only: keyed, duplicated for each use */
    json_t *jwk;                 /* RS256 and ES256 only */
    /* Of a generated key that was rotated, in seconds since 1970; 0: no limit. A new key signs
     * when every node knows it. An old key verifies until its last token has ended. */
    uint64_t signs_from_s;
    uint64_t verifies_until_s;
};

#define KEY_SIGNS_FROM     "signs_from"
#define KEY_VERIFIES_UNTIL "verifies_until"

static inline bool key_has_ended(const struct key *key, uint64_t now_s) {
    return key->verifies_until_s > 0 && now_s >= key->verifies_until_s;
}

/* A shorter secret can be found by brute force from one of its tokens. */
#define KEY_SECRET_BYTES_SHORT 32
static inline bool key_is_short(const struct key *key) {
    return key->algorithm == KEY_HS256 && key->secret_bytes < KEY_SECRET_BYTES_SHORT;
}

/* The parts of a compact JWS. signed_text is the first two parts with the dot between them. */
struct jws {
    struct slice header;
    struct slice payload;
    struct slice signature;
    struct slice signed_text;
};

/* False unless the text has three parts and none is empty. */
MUST_CHECK bool jws_split(struct slice text, struct jws *jws);

MUST_CHECK enum status key_init_secret(struct key *key, struct slice id, struct slice secret);
/* reason becomes static text on STATUS_INVALID_CONFIG. */
MUST_CHECK enum status key_init_jwk(struct key *key, const json_t *jwk, const char **reason);
void key_release(struct key *key);

/* True only for a signature by this key with the algorithm of this key. */
MUST_CHECK bool key_verify(const struct key *key, const struct jws *jws);
/* Appends "header.payload.signature" for two JSON texts. Only for a key that signs. */
MUST_CHECK enum status key_sign(const struct key *key, struct slice header, struct slice payload,
                                struct buffer *out);
/* The name of the algorithm, such as "HS256". */
const char *key_algorithm_name(enum key_algorithm algorithm);

#endif
