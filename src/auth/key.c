/* A key is made once, from a secret or from the members of a JWK that its algorithm needs, and is
 * checked by using it: it signs and verifies a text, or is imported if it can only verify. HS256 is
 * computed by OpenSSL with a context that is keyed once. RS256 and ES256 go through libjose, with a
 * copy of the JWK that names the algorithm, so that no other algorithm can be used with the key. */
#include "auth/key.h"

#include <assert.h>
#include <jose/jwk.h>
#include <jose/jws.h>
#include <jose/openssl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/base64url.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/utf8.h"

/* RFC 7518 section 3.3. */
#define RSA_MODULUS_BYTES_MIN 256
#define RSA_MODULUS_BYTES_MAX 1024
/* OpenSSL accepts at most this size. */
#define RSA_EXPONENT_BYTES_MAX 8
#define EC_COORDINATE_BYTES    32
#define SIGNATURE_BYTES_MAX    RSA_MODULUS_BYTES_MAX

static const char *const algorithm_names[KEY_ALGORITHM_COUNT] = {"HS256", "RS256", "ES256"};

const char *key_algorithm_name(enum key_algorithm algorithm) {
    assert((unsigned)algorithm < KEY_ALGORITHM_COUNT);
    return algorithm_names[algorithm];
}

static bool take_part(struct slice *rest, struct slice *part) {
    const char *dot = memchr(rest->data, '.', rest->size);
    if (!dot)
        return false;
    *part = (struct slice){rest->data, (size_t)(dot - rest->data)};
    *rest = slice_from(*rest, part->size + 1);
    return part->size > 0;
}

bool jws_split(struct slice text, struct jws *jws) {
    struct slice rest = text;
    if (text.size == 0 || !take_part(&rest, &jws->header) || !take_part(&rest, &jws->payload))
        return false;
    jws->signature = rest;
    jws->signed_text = (struct slice){text.data, jws->header.size + 1 + jws->payload.size};
    return rest.size > 0 && memchr(rest.data, '.', rest.size) == NULL;
}

/* ---- making ---- */

static enum status set_id(struct key *key, struct slice id) {
    if (id.size == 0 || id.size > KEY_ID_BYTES_MAX || !utf8_valid(id) || utf8_has_control(id))
        return STATUS_INVALID_CONFIG;
    memcpy(key->id, id.data, id.size);
    key->id[id.size] = '\0';
    return STATUS_OK;
}

/* The context is keyed once: keying costs more than the HMAC of a short text. */
static enum status hmac_init(struct key *key, const void *secret, size_t size) {
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                                     OSSL_PARAM_construct_end()};
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    key->hmac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac);
    key->signs = true;
    key->secret_bytes = size;
    if (key->hmac && EVP_MAC_init(key->hmac, secret, size, parameters) == 1)
        return STATUS_OK;
    key_release(key);
    return STATUS_OUT_OF_MEMORY;
}

enum status key_init_secret(struct key *key, struct slice id, struct slice secret) {
    *key = (struct key){.algorithm = KEY_HS256};
    if (secret.size == 0 || secret.size > KEY_SECRET_BYTES_MAX || set_id(key, id) != STATUS_OK)
        return STATUS_INVALID_CONFIG;
    return hmac_init(key, secret.data, secret.size);
}

static bool member_is(const json_t *jwk, const char *name, const char *text) {
    const char *value = json_string_value(json_object_get(jwk, name));
    return value && strcmp(value, text) == 0;
}

/* Decodes a base64url member. Returns its size; 0 for a bad or longer member. */
static size_t member_bytes(const json_t *jwk, const char *name, void *bytes, size_t bytes_max) {
    const json_t *value = json_object_get(jwk, name);
    size_t size = 0;
    if (!json_is_string(value))
        return 0;
    struct slice text = {json_string_value(value), json_string_length(value)};
    return base64url_decode(text, bytes, bytes_max, &size) == STATUS_OK ? size : 0;
}

/* By default the library prints errors to standard error, with text from the token. */
static void ignore(void *user, const char *file, int line, uint64_t error, const char *format,
                   va_list arguments) {
    (void)user, (void)file, (void)line, (void)error, (void)format, (void)arguments;
}

/* Each use has its own, because the reference count of the library is not atomic. */
static jose_cfg_t *quiet_new(void) {
    jose_cfg_t *quiet = jose_cfg();
    if (quiet)
        jose_cfg_set_err_func(quiet, ignore, NULL);
    return quiet;
}

static void quiet_free(jose_cfg_t *quiet) {
    if (quiet)
        jose_cfg_decref(quiet);
}

/* Signs and verifies once, or imports a key that only verifies, so that an unusable key is found at
 * start. */
static bool is_usable(const struct key *key) {
    struct buffer out;
    struct jws jws;
    char header[32];
    if (!key->signs) {
        jose_cfg_t *quiet = quiet_new();
        EVP_PKEY *imported = quiet ? jose_openssl_jwk_to_EVP_PKEY(quiet, key->jwk) : NULL;
        bool is_importable = imported != NULL;
        EVP_PKEY_free(imported);
        quiet_free(quiet);
        return is_importable;
    }
    int size =
        snprintf(header, sizeof(header), "{\"alg\":\"%s\"}", algorithm_names[key->algorithm]);
    buffer_init(&out, JWS_BYTES_MAX);
    bool verified =
        key_sign(key, (struct slice){header, (size_t)size}, SLICE("{}"), &out) == STATUS_OK &&
        jws_split(buffer_slice(&out), &jws) && key_verify(key, &jws);
    buffer_release(&out);
    return verified;
}

/* Copies the members that the algorithm needs and names the algorithm. Other members have no
 * effect, and the library cannot use the key with another algorithm. */
static json_t *copy_jwk(const json_t *jwk, enum key_algorithm algorithm) {
    static const char *const members[] = {"kty", "crv", "n", "e",  "x",  "y",
                                          "d",   "p",   "q", "dp", "dq", "qi"};
    json_t *copy = json_object();
    bool whole = copy != NULL;
    for (size_t i = 0; whole && i < sizeof(members) / sizeof(members[0]); i++) {
        const json_t *value = json_object_get(jwk, members[i]);
        if (value)
            whole = json_object_set_new(copy, members[i], json_deep_copy(value)) == 0;
    }
    whole = whole && json_object_set_new(copy, "alg", json_string(algorithm_names[algorithm])) == 0;
    if (whole)
        return copy;
    json_decref(copy);
    return NULL;
}

/* NULL, or the rule that the numbers of a public key break. An even modulus has the factor 2. With
 * an exponent of 1 every text is its own signature. An even exponent has no inverse. A huge one
 * makes each check expensive. Importing a key checks whether its point is on the curve. */
static const char *pair_problem(const json_t *jwk, enum key_algorithm algorithm) {
    uint8_t bytes[RSA_MODULUS_BYTES_MAX];
    if (algorithm == KEY_ES256) {
        bool has_size = member_bytes(jwk, "x", bytes, EC_COORDINATE_BYTES) == EC_COORDINATE_BYTES &&
                        member_bytes(jwk, "y", bytes, EC_COORDINATE_BYTES) == EC_COORDINATE_BYTES;
        return has_size ? NULL : "its 'x' and 'y' are not base64url of 32 bytes each";
    }
    size_t size = member_bytes(jwk, "n", bytes, sizeof(bytes));
    if (size == 0 || bytes[0] == 0)
        return "its modulus 'n' is not base64url of at most 8192 bits without leading zeros";
    if (size < RSA_MODULUS_BYTES_MIN || (size == RSA_MODULUS_BYTES_MIN && bytes[0] < 0x80))
        return "its modulus 'n' has fewer than 2048 bits";
    if ((bytes[size - 1] & 1) == 0)
        return "its modulus 'n' is even";
    size = member_bytes(jwk, "e", bytes, sizeof(bytes));
    if (size == 0 || bytes[0] == 0)
        return "its exponent 'e' is not base64url of a number above 0 without leading zeros";
    if (size > RSA_EXPONENT_BYTES_MAX)
        return "its exponent 'e' has more than 64 bits";
    if ((bytes[size - 1] & 1) == 0)
        return "its exponent 'e' is even";
    return size == 1 && bytes[0] == 1 ? "its exponent 'e' is 1" : NULL;
}

static enum status init_pair(struct key *key, const json_t *jwk, const char **reason) {
    *reason = pair_problem(jwk, key->algorithm);
    if (*reason)
        return STATUS_INVALID_CONFIG;
    key->signs = json_object_get(jwk, "d") != NULL;
    key->jwk = copy_jwk(jwk, key->algorithm);
    if (!key->jwk)
        return STATUS_OUT_OF_MEMORY;
    if (is_usable(key))
        return STATUS_OK;
    key_release(key);
    *reason = key->algorithm == KEY_RS256 ? "its numbers are not a valid RSA key"
                                          : "its numbers are not a point of P-256 and its key";
    return STATUS_INVALID_CONFIG;
}

/* Absent is 0. */
static bool take_time(const json_t *jwk, const char *name, uint64_t *time_s) {
    const json_t *value = json_object_get(jwk, name);
    *time_s = value ? (uint64_t)json_integer_value(value) : 0;
    return !value || (json_is_integer(value) && json_integer_value(value) >= 0);
}

enum status key_init_jwk(struct key *key, const json_t *jwk, const char **reason) {
    *key = (struct key){.id = ""};
    *reason = "it is not an object";
    if (!json_is_object(jwk))
        return STATUS_INVALID_CONFIG;
    *reason = "its '" KEY_SIGNS_FROM "' or '" KEY_VERIFIES_UNTIL "' is no time in seconds";
    if (!take_time(jwk, KEY_SIGNS_FROM, &key->signs_from_s) ||
        !take_time(jwk, KEY_VERIFIES_UNTIL, &key->verifies_until_s))
        return STATUS_INVALID_CONFIG;
    /* Keys of other types, for other uses and for other algorithms are not supported. */
    if (member_is(jwk, "kty", "oct"))
        key->algorithm = KEY_HS256;
    else if (member_is(jwk, "kty", "RSA"))
        key->algorithm = KEY_RS256;
    else if (member_is(jwk, "kty", "EC") && member_is(jwk, "crv", "P-256"))
        key->algorithm = KEY_ES256;
    else
        return STATUS_NOT_FOUND;
    if ((json_object_get(jwk, "use") && !member_is(jwk, "use", "sig")) ||
        (json_object_get(jwk, "alg") && !member_is(jwk, "alg", algorithm_names[key->algorithm])))
        return STATUS_NOT_FOUND;
    /* A key without a kid has its thumbprint as id. */
    *reason = "its 'kid' is not 1 to 256 bytes of text";
    const json_t *kid = json_object_get(jwk, "kid");
    json_t *thumbprint = kid ? NULL : jose_jwk_thp(NULL, jwk, "S256");
    const json_t *id = kid ? kid : thumbprint;
    enum status status = STATUS_INVALID_CONFIG;
    if (json_is_string(id))
        status = set_id(key, (struct slice){json_string_value(id), json_string_length(id)});
    json_decref(thumbprint);
    if (status != STATUS_OK)
        return status;
    if (key->algorithm != KEY_HS256)
        return init_pair(key, jwk, reason);
    uint8_t secret[KEY_SECRET_BYTES_MAX];
    size_t size = member_bytes(jwk, "k", secret, sizeof(secret));
    *reason = "its 'k' is not base64url of 1 to 1024 bytes";
    status = size > 0 ? hmac_init(key, secret, size) : STATUS_INVALID_CONFIG;
    OPENSSL_cleanse(secret, sizeof(secret));
    return status;
}

void key_release(struct key *key) {
    EVP_MAC_CTX_free(key->hmac);
    json_decref(key->jwk);
    key->hmac = NULL;
    key->jwk = NULL;
}

/* ---- HS256: OpenSSL, which needs a seventh of the time of libjose ---- */

static bool hmac_sum(const struct key *key, struct slice text, uint8_t sum[SHA256_BYTES]) {
    EVP_MAC_CTX *hmac = EVP_MAC_CTX_dup(key->hmac);
    size_t size = 0;
    bool done = hmac && EVP_MAC_update(hmac, (const unsigned char *)text.data, text.size) == 1 &&
                EVP_MAC_final(hmac, sum, &size, SHA256_BYTES) == 1 && size == SHA256_BYTES;
    EVP_MAC_CTX_free(hmac);
    return done;
}

static enum status hmac_sign(const struct key *key, size_t begin, struct buffer *out) {
    uint8_t sum[SHA256_BYTES];
    char text[BASE64URL_SIZE(SHA256_BYTES)];
    if (!hmac_sum(key, slice_from(buffer_slice(out), begin), sum))
        return STATUS_OUT_OF_MEMORY;
    base64url_encode(sum, sizeof(sum), text);
    buffer_append_byte(out, '.');
    return buffer_append(out, text, sizeof(text));
}

/* ---- RS256, ES256: libjose ---- */

static json_t *text_new(struct slice text) {
    return json_stringn(text.data, text.size);
}

static enum status pair_sign(const struct key *key, struct slice header, size_t begin,
                             struct buffer *out) {
    struct slice signed_text = slice_from(buffer_slice(out), begin);
    size_t header_size = BASE64URL_SIZE(header.size);
    enum status status = STATUS_OUT_OF_MEMORY;
    jose_cfg_t *quiet = quiet_new();
    /* libjose signs a protected header that is a string without encoding it again. */
    json_t *object =
        json_pack("{s:o*}", "payload", text_new(slice_from(signed_text, header_size + 1)));
    json_t *signature =
        json_pack("{s:o*}", "protected", text_new((struct slice){signed_text.data, header_size}));
    if (quiet && object && signature && jose_jws_sig(quiet, object, signature, key->jwk)) {
        const char *text = json_string_value(json_object_get(object, "signature"));
        buffer_append_byte(out, '.');
        status = text ? buffer_append_slice(out, slice_of(text)) : STATUS_INTERNAL_ERROR;
    }
    json_decref(object);
    json_decref(signature);
    quiet_free(quiet);
    return status;
}

/* ---- all algorithms ---- */

bool key_verify(const struct key *key, const struct jws *jws) {
    uint8_t given[SHA256_BYTES];
    uint8_t sum[SHA256_BYTES];
    size_t size = 0;
    if (key->algorithm == KEY_HS256)
        return base64url_decode(jws->signature, given, sizeof(given), &size) == STATUS_OK &&
               size == sizeof(given) && hmac_sum(key, jws->signed_text, sum) &&
               CRYPTO_memcmp(given, sum, sizeof(sum)) == 0;
    jose_cfg_t *quiet = quiet_new();
    json_t *object = json_pack("{s:o*, s:o*, s:o*}", "protected", text_new(jws->header), "payload",
                               text_new(jws->payload), "signature", text_new(jws->signature));
    bool verified = quiet && object && jose_jws_ver(quiet, object, NULL, key->jwk, false);
    json_decref(object);
    quiet_free(quiet);
    return verified;
}

static void append_encoded(struct buffer *out, struct slice json) {
    buffer_note(out, buffer_reserve(out, BASE64URL_SIZE(json.size)));
    /* The buffer may have no memory yet if nothing is appended. */
    if (buffer_status(out) == STATUS_OK && json.size > 0)
        out->size += base64url_encode(json.data, json.size, out->data + out->size);
}

enum status key_sign(const struct key *key, struct slice header, struct slice payload,
                     struct buffer *out) {
    size_t begin = out->size;
    assert(key->signs);
    append_encoded(out, header);
    buffer_append_byte(out, '.');
    append_encoded(out, payload);
    if (buffer_status(out) == STATUS_OK)
        buffer_note(out, key->algorithm == KEY_HS256 ? hmac_sign(key, begin, out)
                                                     : pair_sign(key, header, begin, out));
    return buffer_end(out, begin);
}
