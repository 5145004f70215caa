#include "base/siphash.h"
#include "test.h"

#include <endian.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

static uint64_t openssl_siphash(EVP_MAC_CTX *context, const unsigned char *key, struct slice text) {
    unsigned int compress = 1, finish = 3;
    size_t size = 8;
    unsigned char out[8];
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
        OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_C_ROUNDS, &compress),
        OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_D_ROUNDS, &finish),
        OSSL_PARAM_construct_end(),
    };
    assert_true(EVP_MAC_init(context, key, 16, params));
    assert_true(EVP_MAC_update(context, (const unsigned char *)text.data, text.size));
    assert_true(EVP_MAC_final(context, out, &size, sizeof(out)));
    assert_int_equal(size, 8);
    uint64_t hash;
    memcpy(&hash, out, 8);
    return le64toh(hash);
}

static void agrees_with_openssl(void **state) {
    (void)state;
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    assert_non_null(mac);
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(mac);
    uint64_t seed = 1;
    for (size_t round = 0; round < 1200; round++) {
        unsigned char key[16];
        char text[300];
        size_t size = round % sizeof(text);
        for (size_t i = 0; i < sizeof(key); i++)
            key[i] = (unsigned char)test_random(&seed);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)test_random(&seed);
        struct siphash_key words;
        memcpy(&words.low, key, 8);
        memcpy(&words.high, key + 8, 8);
        words = (struct siphash_key){le64toh(words.low), le64toh(words.high)};
        struct slice slice = {text, size};
        assert_int_equal(siphash(words, slice), openssl_siphash(context, key, slice));
    }
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
}

static void the_empty_text_needs_no_data(void **state) {
    (void)state;
    struct siphash_key key = {1, 2};
    assert_int_equal(siphash(key, (struct slice){NULL, 0}), siphash(key, SLICE("")));
}

static void the_process_keeps_one_key(void **state) {
    (void)state;
    struct siphash_key first = siphash_process_key();
    struct siphash_key second = siphash_process_key();
    assert_int_equal(first.low, second.low);
    assert_int_equal(first.high, second.high);
    assert_true(first.low != 0 && first.high != 0 && first.low != first.high);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_openssl),
        cmocka_unit_test(the_empty_text_needs_no_data),
        cmocka_unit_test(the_process_keeps_one_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
