/* One key of JOSE: who checks a signature with it, and who signs.
 * Immutable once made; any thread.
 * Owned by its key set. Keeps a copy of what it needs of a JWK.
 * A JWK that is of another kind than ours is STATUS_NOT_FOUND, one that is wrong is
 * STATUS_INVALID_CONFIG with the reason in words that name no secret.
 * The algorithm follows from the key, never from a token: an RSA key never checks an HMAC. */
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
    bool signs;                  /* a secret, or the private half is there */
    size_t secret_bytes;         /* of HS256 */
    struct evp_mac_ctx_st *hmac; /* of HS256: keyed, copied for each use */
    json_t *jwk;                 /* of the others */
};

/* A secret that somebody with a token of its could find by trying. */
#define KEY_SECRET_BYTES_SHORT 32
static inline bool key_is_short(const struct key *key) {
    return key->algorithm == KEY_HS256 && key->secret_bytes < KEY_SECRET_BYTES_SHORT;
}

/* A compact JWS, cut at its dots; signed_text is the first two parts with the dot between. */
struct jws {
    struct slice header;
    struct slice payload;
    struct slice signature;
    struct slice signed_text;
};

/* False unless it is three parts, none of them empty. */
MUST_CHECK bool jws_split(struct slice text, struct jws *jws);

MUST_CHECK enum status key_init_secret(struct key *key, struct slice id, struct slice secret);
/* why, on STATUS_INVALID_CONFIG, is static text. */
MUST_CHECK enum status key_init_jwk(struct key *key, const json_t *jwk, const char **why);
void key_release(struct key *key);

/* False for anything but the key's own signature in the key's own algorithm. */
MUST_CHECK bool key_verify(const struct key *key, const struct jws *jws);
/* Appends "header.payload.signature" for two JSON texts; the key signs. */
MUST_CHECK enum status key_sign(const struct key *key, struct slice header, struct slice payload,
                                struct buffer *out);
/* "HS256" and the like. */
const char *key_algorithm_name(enum key_algorithm algorithm);

#endif
