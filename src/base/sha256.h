/* SHA-256 over OpenSSL: in one call, or in pieces.
 * Thread: any; a struct sha256 belongs to one at a time.
 * Memory: the state lives in the caller's struct, and a copy of the struct continues on its own.
 * sha256_release wipes it.
 * Errors: an error of OpenSSL asserts.
 * Invariant: the digest depends on the bytes only, not on how they were split into pieces. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <openssl/sha.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

void sha256(const void *data, size_t size, uint8_t digest[SHA256_BYTES]);

struct sha256 {
    SHA256_CTX state;
};

void sha256_init(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t size);
/* Writes the digest and resets the state to that after sha256_init. */
void sha256_final(struct sha256 *hash, uint8_t digest[SHA256_BYTES]);
void sha256_release(struct sha256 *hash);

#endif
