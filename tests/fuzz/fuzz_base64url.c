/* Any bytes as text: what decodes encodes to the same text, and OpenSSL agrees on the bytes.
 * Any bytes as data: what is encoded decodes to the same data. */
#include <openssl/evp.h>
#include <stdlib.h>

#include "base/base64url.h"
#include "fuzz.h"

/* The standard form of the same text: the other alphabet, padded. */
static void *take_standard(struct slice text, size_t *size) {
    *size = (text.size + 3) / 4 * 4;
    char *standard = malloc(*size + 1);
    require(standard != NULL);
    for (size_t i = 0; i < *size; i++) {
        char digit = i < text.size ? text.data[i] : '=';
        standard[i] = digit == '-' ? '+' : digit == '_' ? '/' : digit;
    }
    return standard;
}

static void check_text(struct slice text) {
    size_t size_max = BASE64URL_DECODED_SIZE(text.size);
    uint8_t *decoded = malloc(size_max + 1);
    char *again = malloc(text.size + 1);
    size_t size = 0;
    require(decoded && again);
    if (base64url_decode(text, decoded, size_max, &size) == STATUS_OK) {
        require(size == size_max);
        require(base64url_encode(decoded, size, again) == text.size);
        require(text.size == 0 || memcmp(again, text.data, text.size) == 0);
        size_t standard_size;
        char *standard = take_standard(text, &standard_size);
        uint8_t *oracle = malloc(standard_size + 1);
        int oracle_size = EVP_DecodeBlock(oracle, (uint8_t *)standard, (int)standard_size);
        require(oracle_size >= 0 && (size_t)oracle_size >= size);
        require(memcmp(oracle, decoded, size) == 0);
        free(oracle);
        free(standard);
        if (size > 0)
            require(base64url_decode(text, decoded, size - 1, &size) == STATUS_PAYLOAD_TOO_LARGE);
    }
    free(again);
    free(decoded);
}

static void check_data(const uint8_t *data, size_t size) {
    size_t text_size = BASE64URL_SIZE(size);
    char *text = malloc(text_size + 1);
    uint8_t *back = malloc(size + 1);
    size_t back_size = 0;
    require(text && back);
    require(base64url_encode(data, size, text) == text_size);
    require(base64url_decode((struct slice){text, text_size}, back, size, &back_size) == STATUS_OK);
    require(back_size == size && memcmp(back, data, size) == 0);
    free(back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_text((struct slice){(const char *)data, size});
    check_data(data, size);
    return 0;
}
