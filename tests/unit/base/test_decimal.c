#include "base/decimal.h"

#include <inttypes.h>
#include <stdio.h>

#include "test.h"

static void reads_canonical_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t number;
    } cases[] = {
        {"0", 0},
        {"7", 7},
        {"10", 10},
        {"9007199254740991", 9007199254740991u},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t number = 1;
        assert_true(decimal_parse_u64(slice_of(cases[i].text), &number));
        assert_true(number == cases[i].number);
    }
}

static void refuses_everything_else_and_keeps_the_number(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "00",
        "01",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x1",
        "a",
        ":",
        "/",
        "18446744073709551616",
        "18446744073709551620",
        "99999999999999999999",
        "100000000000000000000",
        "\xd9\xa1",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t number = 42;
        assert_false(decimal_parse_u64(slice_of(cases[i]), &number));
        assert_true(number == 42);
    }
    uint64_t number = 42;
    assert_false(decimal_parse_u64((struct slice){"1\0", 2}, &number));
}

static void a_printed_number_is_read_back(void **state) {
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 200000; round++) {
        uint64_t wanted = test_random(&seed) >> (test_random(&seed) % 64);
        char text[DECIMAL_U64_SIZE_MAX + 1];
        uint64_t number = 0;
        snprintf(text, sizeof(text), "%llu", (unsigned long long)wanted);
        assert_true(decimal_parse_u64(slice_of(text), &number));
        assert_true(number == wanted);
    }
}

static void assert_written(uint64_t number) {
    char expected[DECIMAL_U64_SIZE_MAX + 1];
    char text[DECIMAL_U64_SIZE_MAX];
    snprintf(expected, sizeof(expected), "%" PRIu64, number);
    size_t size = (size_t)(decimal_write_u64(text, number) - text);
    assert_slice(((struct slice){text, size}), expected);
}

static void numbers_of_every_length_are_written(void **state) {
    (void)state;
    uint64_t power = 1;
    assert_written(0);
    for (int digits = 1; digits <= DECIMAL_U64_SIZE_MAX; digits++, power *= 10) {
        assert_written(power);
        assert_written(power - 1);
        assert_written(power + 1);
    }
    for (unsigned bits = 0; bits < 64; bits++) {
        assert_written(UINT64_C(1) << bits);
        assert_written((UINT64_C(1) << bits) - 1);
    }
    assert_written(UINT64_MAX);
}

static void assert_sum(const char *a, const char *b, const char *expected) {
    struct decimal_amount left, right;
    char text[DECIMAL_AMOUNT_SIZE_MAX];
    assert_true(decimal_parse_amount(slice_of(a), &left));
    assert_true(decimal_parse_amount(slice_of(b), &right));
    size_t size = (size_t)(decimal_write_amount(text, decimal_add(left, right)) - text);
    assert_slice(((struct slice){text, size}), expected);
}

static void amounts_are_added_exactly(void **state) {
    (void)state;
    assert_sum("0", "0", "0");
    assert_sum("0.1", "0.2", "0.3");
    assert_sum("0.10", "0.205", "0.305");
    assert_sum("1.50", "0.5", "2");
    assert_sum("0.999999999999999999", "0.000000000000000001", "1");
    assert_sum("123456789012345678.5", "1.000000000000000001",
               "123456789012345679.500000000000000001");
    assert_sum("999999999999999998.9", "1.1", "999999999999999999.999999999999999999");
    assert_sum("999999999999999999.999999999999999999", "999999999999999999",
               "999999999999999999.999999999999999999");
}

static void other_amounts_are_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        ".",
        ".5",
        "1.",
        "-1",
        "+1",
        "01",
        "00.1",
        "1e3",
        "1.2.3",
        "1,5",
        " 1",
        "1 ",
        "1.2a",
        "0x1",
        "1.-2",
        "1. 2",
        "a",
        "Infinity",
        "NaN",
        "1.0000000000000000001",
        "1000000000000000000",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decimal_amount amount = {42, 43};
        assert_false(decimal_parse_amount(slice_of(cases[i]), &amount));
        assert_true(amount.whole == 42 && amount.fraction == 43);
    }
}

/* In another order, the same amounts have the same sum. */
static void a_sum_does_not_depend_on_the_order(void **state) {
    (void)state;
    uint64_t seed = 12;
    struct decimal_amount amounts[64], sums[2] = {{0}};
    for (size_t i = 0; i < 64; i++)
        amounts[i] = (struct decimal_amount){test_random(&seed) % 1000000,
                                             test_random(&seed) % UINT64_C(1000000000000000000)};
    for (size_t i = 0; i < 64; i++) {
        sums[0] = decimal_add(sums[0], amounts[i]);
        sums[1] = decimal_add(amounts[63 - i], sums[1]);
    }
    assert_memory_equal(&sums[0], &sums[1], sizeof(sums[0]));
    char text[DECIMAL_AMOUNT_SIZE_MAX];
    struct decimal_amount read;
    size_t size = (size_t)(decimal_write_amount(text, sums[0]) - text);
    assert_true(decimal_parse_amount((struct slice){text, size}, &read));
    assert_memory_equal(&read, &sums[0], sizeof(read));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_canonical_numbers),
        cmocka_unit_test(refuses_everything_else_and_keeps_the_number),
        cmocka_unit_test(a_printed_number_is_read_back),
        cmocka_unit_test(numbers_of_every_length_are_written),
        cmocka_unit_test(amounts_are_added_exactly),
        cmocka_unit_test(other_amounts_are_refused),
        cmocka_unit_test(a_sum_does_not_depend_on_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
