#include "base/hex.h"

#include <stdio.h>

#include "test.h"

static void every_byte_at_every_place_is_its_two_digits(void **state) {
    (void)state;
    for (size_t size = 0; size <= 11; size++)
        for (unsigned byte = 0; byte < 256; byte++) {
            unsigned char data[11];
            char text[24];
            char expected[24] = "";
            memset(text, '#', sizeof(text));
            for (size_t i = 0; i < size; i++) {
                data[i] = (unsigned char)(byte + i * 37);
                snprintf(expected + 2 * i, 3, "%02x", data[i]);
            }
            hex_write(text, data, size);
            assert_memory_equal(text, expected, 2 * size);
            assert_int_equal(text[2 * size], '#');
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_at_every_place_is_its_two_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
