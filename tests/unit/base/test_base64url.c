#include "base/base64url.h"
#include "test.h"

static void the_examples_of_the_rfc_without_padding(void **state) {
    (void)state;
    static const struct {
        const char *data;
        const char *text;
    } cases[] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[16];
        char data[16];
        size_t size = base64url_encode(cases[i].data, strlen(cases[i].data), text);
        assert_slice(((struct slice){text, size}), cases[i].text);
        assert_ok(base64url_decode(slice_of(cases[i].text), data, sizeof(data), &size));
        assert_slice(((struct slice){data, size}), cases[i].data);
    }
}

static void the_alphabet_is_the_url_safe_one(void **state) {
    (void)state;
    char text[4];
    assert_int_equal(base64url_encode("\xfb\xff\xbf", 3, text), 4);
    assert_memory_equal(text, "-_-_", 4);
}

static void refuses_what_is_not_canonical(void **state) {
    (void)state;
    static const char *const cases[] = {
        "A",       "AAAAA",                              /* no bytes make these lengths */
        "Zg==",    "Zm8=",  "Zm9v=",   "=",      "====", /* padding */
        "Zh",      "Zj",    "Zv",      "Zm9vZh",         /* four unused bits */
        "Zm9",     "Zm-",   "Zm9vZm9",                   /* two unused bits */
        "Zm9+",    "Zm9/",  "Z g0",    "Zm9v\n", "\nZm9v", "Zm.v", "Zm9v Zm9v", "Zm\x80v",
        "Zm\xffv", "Zm@v",  "Zm[v",    "Zm`v",   "Zm{v",   "Zm:v", "Zm,v",      "Z^8",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char data[16];
        size_t size = 77;
        assert_int_equal(base64url_decode(slice_of(cases[i]), data, sizeof(data), &size),
                         STATUS_INVALID_BASE64URL);
        assert_int_equal(size, 77);
    }
    char data[16];
    size_t size;
    assert_int_equal(base64url_decode((struct slice){"Zg\0\0", 4}, data, sizeof(data), &size),
                     STATUS_INVALID_BASE64URL);
}

static void exactly_64_of_256_bytes_are_digits(void **state) {
    (void)state;
    int digits = 0;
    for (int byte = 0; byte < 256; byte++) {
        char text[4] = {'A', 'A', 'A', (char)byte};
        char data[3];
        size_t size;
        if (base64url_decode((struct slice){text, 4}, data, sizeof(data), &size) == STATUS_OK)
            digits++;
    }
    assert_int_equal(digits, 64);
}

static void the_last_bytes_have_one_text_each(void **state) {
    (void)state;
    size_t counts[2] = {0, 0};
    for (int pair = 0; pair < 128 * 128; pair++) {
        char text[3] = {(char)(pair / 128), (char)(pair % 128), 0};
        uint8_t data[2];
        size_t size;
        counts[0] += base64url_decode((struct slice){text, 2}, data, 2, &size) == STATUS_OK;
        for (int last = 0; last < 128; last++) {
            text[2] = (char)last;
            counts[1] += base64url_decode((struct slice){text, 3}, data, 2, &size) == STATUS_OK;
        }
    }
    assert_int_equal(counts[0], 256);
    assert_int_equal(counts[1], 65536);
}

static void does_not_write_past_the_memory_it_is_given(void **state) {
    (void)state;
    char data[3] = "..";
    size_t size;
    assert_int_equal(base64url_decode(SLICE("Zm9v"), data, 2, &size), STATUS_PAYLOAD_TOO_LARGE);
    assert_memory_equal(data, "..", 2);
    assert_ok(base64url_decode(SLICE("Zm8"), data, 2, &size));
    assert_int_equal(size, 2);
    assert_ok(base64url_decode((struct slice){NULL, 0}, data, 0, &size));
    assert_int_equal(size, 0);
}

static void random_bytes_make_the_round_trip(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 100000; round++) {
        uint8_t data[70];
        uint8_t back[sizeof(data)];
        char text[BASE64URL_SIZE(sizeof(data))];
        size_t size = test_random(&seed) % (sizeof(data) + 1);
        for (size_t i = 0; i < size; i++)
            data[i] = (uint8_t)test_random(&seed);
        size_t text_size = base64url_encode(data, size, text);
        assert_int_equal(text_size, BASE64URL_SIZE(size));
        assert_int_equal(BASE64URL_DECODED_SIZE(text_size), size);
        size_t back_size;
        assert_ok(base64url_decode((struct slice){text, text_size}, back, size, &back_size));
        assert_int_equal(back_size, size);
        assert_memory_equal(back, data, size);
    }
}

static void every_text_that_decodes_is_the_only_one_of_its_bytes(void **state) {
    (void)state;
    static const char digits[] = "ABghwxyz0189-_=+/.";
    uint64_t seed = 5;
    int decoded = 0;
    for (int round = 0; round < 300000; round++) {
        char text[9];
        char again[BASE64URL_SIZE(9)];
        uint8_t data[9];
        size_t data_size;
        size_t size = test_random(&seed) % sizeof(text);
        for (size_t i = 0; i < size; i++)
            text[i] = digits[test_random(&seed) % (sizeof(digits) - 1)];
        if (base64url_decode((struct slice){text, size}, data, sizeof(data), &data_size) !=
            STATUS_OK)
            continue;
        decoded++;
        assert_int_equal(base64url_encode(data, data_size, again), size);
        assert_memory_equal(again, text, size);
    }
    assert_true(decoded > 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_rfc_without_padding),
        cmocka_unit_test(the_alphabet_is_the_url_safe_one),
        cmocka_unit_test(refuses_what_is_not_canonical),
        cmocka_unit_test(exactly_64_of_256_bytes_are_digits),
        cmocka_unit_test(the_last_bytes_have_one_text_each),
        cmocka_unit_test(does_not_write_past_the_memory_it_is_given),
        cmocka_unit_test(random_bytes_make_the_round_trip),
        cmocka_unit_test(every_text_that_decodes_is_the_only_one_of_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
