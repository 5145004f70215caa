/* The functions of OpenSSL that work on a state in the caller's memory. Its newer interface takes
 * about a third longer for a text of some hundred bytes, which is the size of most events. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <assert.h>
#include <openssl/crypto.h>

_Static_assert(SHA256_BYTES == SHA256_DIGEST_LENGTH, "a digest has 32 bytes");

static void must(int held) {
    assert(held == 1);
    (void)held;
}

void sha256(const void *data, size_t size, uint8_t digest[SHA256_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, data, size);
    must(SHA256_Final(digest, &hash.state));
}

void sha256_init(struct sha256 *hash) {
    must(SHA256_Init(&hash->state));
}

void sha256_update(struct sha256 *hash, const void *data, size_t size) {
    must(SHA256_Update(&hash->state, data, size));
}

void sha256_final(struct sha256 *hash, uint8_t digest[SHA256_BYTES]) {
    must(SHA256_Final(digest, &hash->state));
    sha256_init(hash);
}

void sha256_release(struct sha256 *hash) {
    OPENSSL_cleanse(hash, sizeof(*hash));
}
