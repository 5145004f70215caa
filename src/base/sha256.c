#include "base/sha256.h"

#include <assert.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t context_key;
static EVP_MD *algorithm;
/* Read on every call; the key beside it only exists to free the context with its thread. */
static _Thread_local EVP_MD_CTX *thread_context;

static void must(bool held) {
    assert(held);
}

static void free_context(void *context) {
    EVP_MD_CTX_free(context);
}

static void fetch_algorithm(void) {
    algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
    must(algorithm != NULL);
    must(pthread_key_create(&context_key, free_context) == 0);
}

static EVP_MD_CTX *new_context(void) {
    must(pthread_once(&once, fetch_algorithm) == 0);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    must(context != NULL);
    return context;
}

static void begin(EVP_MD_CTX *context) {
    must(EVP_DigestInit_ex2(context, algorithm, NULL) == 1);
}

static void finish(EVP_MD_CTX *context, uint8_t digest[SHA256_BYTES]) {
    unsigned size = 0;
    must(EVP_DigestFinal_ex(context, digest, &size) == 1);
    must(size == SHA256_BYTES);
}

void sha256(const void *data, size_t size, uint8_t digest[SHA256_BYTES]) {
    EVP_MD_CTX *context = thread_context;
    if (!context) {
        context = new_context();
        must(pthread_setspecific(context_key, context) == 0);
        thread_context = context;
    }
    begin(context);
    must(EVP_DigestUpdate(context, data, size) == 1);
    finish(context, digest);
}

void sha256_init(struct sha256 *hash) {
    hash->context = new_context();
    begin(hash->context);
}

void sha256_update(struct sha256 *hash, const void *data, size_t size) {
    must(EVP_DigestUpdate(hash->context, data, size) == 1);
}

void sha256_final(struct sha256 *hash, uint8_t digest[SHA256_BYTES]) {
    finish(hash->context, digest);
    begin(hash->context);
}

void sha256_release(struct sha256 *hash) {
    EVP_MD_CTX_free(hash->context);
    hash->context = NULL;
}
