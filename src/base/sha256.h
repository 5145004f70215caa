/* SHA-256 over OpenSSL: in one call, or in pieces.
 * Any thread; a struct sha256 belongs to one at a time.
 * The one-call form keeps one context a thread, freed with the thread; sha256_init takes one
 * that sha256_release returns. Cannot fail: an error of OpenSSL asserts.
 * The digest depends on the bytes only, not on how they were split into pieces. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

void sha256(const void *data, size_t size, uint8_t digest[SHA256_BYTES]);

struct sha256 {
    struct evp_md_ctx_st *context;
};

void sha256_init(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t size);
/* Writes the digest and resets the state to that after sha256_init. */
void sha256_final(struct sha256 *hash, uint8_t digest[SHA256_BYTES]);
void sha256_release(struct sha256 *hash);

#endif
