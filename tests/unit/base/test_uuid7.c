#include "base/uuid7.h"
#include "test.h"

#define NOW_MS  UINT64_C(1767225600123)
#define HOUR_MS UINT64_C(3600000)

static struct uuid parse(const char *text) {
    struct uuid uuid;
    assert_ok(uuid7_parse(slice_of(text), &uuid));
    return uuid;
}

static void reads_and_writes_canonical_text(void **state) {
    (void)state;
    static const uint8_t bytes[16] = {0x01, 0x9b, 0x76, 0xda, 0xa8, 0x7b, 0x7a, 0xbc,
                                      0x9d, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab};
    struct uuid uuid = parse("019b76da-a87b-7abc-9def-0123456789ab");
    assert_memory_equal(uuid.bytes, bytes, sizeof(bytes));
    char text[UUID_TEXT_SIZE];
    uuid_format(&uuid, text);
    assert_memory_equal(text, "019b76da-a87b-7abc-9def-0123456789ab", UUID_TEXT_SIZE);
    assert_true(uuid7_timestamp_ms(&uuid) == NOW_MS);
}

static void refuses_any_other_text_and_keeps_the_value(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "019b76da-a87b-7abc-9def-0123456789a",
        "019b76da-a87b-7abc-9def-0123456789abc",
        "019b76daa87b7abc9def0123456789ab",
        "{019b76da-a87b-7abc-9def-0123456789}",
        "019B76DA-A87B-7ABC-9DEF-0123456789AB",
        "019b76da-a87b-7abc-9def-0123456789aB",
        "019b76da-a87b-4abc-9def-0123456789ab",
        "019b76da-a87b-8abc-9def-0123456789ab",
        "019b76da-a87b-7abc-7def-0123456789ab",
        "019b76da-a87b-7abc-cdef-0123456789ab",
        "019b76da-a87b-7abc-edef-0123456789ab",
        "019b76da_a87b-7abc-9def-0123456789ab",
        "019b76da-a87b-7abc-9def00123456789ab",
        "019b76d-aa87b-7abc-9def-0123456789ab",
        "019b76dag-87b-7abc-9def-0123456789ab",
        "019b76da-a87b-7abc-9def-0123456789ag",
        "019b76da-a87b-7abc-9def-0123456789a/",
        "019b76da-a87b-7abc-9def-0123456789a:",
        "019b76da-a87b-7abc-9def-0123456789a`",
        " 19b76da-a87b-7abc-9def-0123456789ab",
        "019b76da-a87b-7abc-9def-0123456789ab\n",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct uuid uuid = {{1, 2, 3}};
        assert_int_equal(uuid7_parse(slice_of(cases[i]), &uuid), STATUS_INVALID_UUID);
        assert_int_equal(uuid.bytes[2], 3);
    }
}

static void takes_every_variant_nibble_of_the_rfc(void **state) {
    (void)state;
    char text[] = "019b76da-a87b-7abc-0def-0123456789ab";
    for (int nibble = 0; nibble < 16; nibble++) {
        struct uuid uuid;
        text[19] = "0123456789abcdef"[nibble];
        assert_int_equal(uuid7_parse(slice_of(text), &uuid) == STATUS_OK,
                         nibble >= 8 && nibble <= 11);
    }
}

static void compares_in_byte_order(void **state) {
    (void)state;
    struct uuid low = parse("019b76da-a87b-7abc-9def-0123456789ab");
    struct uuid high = parse("019b76da-a87b-7abc-9def-0123456789ac");
    struct uuid later = parse("f19b76da-a87b-7abc-8def-0123456789ab");
    assert_true(uuid_compare(&low, &high) < 0);
    assert_true(uuid_compare(&high, &low) > 0);
    assert_true(uuid_compare(&later, &high) > 0);
    assert_int_equal(uuid_compare(&low, &low), 0);
}

static void check_next(struct uuid7_generator *generator, struct uuid *last, uint64_t now_ms) {
    struct uuid uuid = uuid7_next(generator, now_ms);
    if (!uuid7_valid(&uuid) || uuid_compare(&uuid, last) <= 0 || uuid7_timestamp_ms(&uuid) < now_ms)
        fail_msg("id out of order at %llu", (unsigned long long)now_ms);
    *last = uuid;
}

static void two_million_ids_of_one_millisecond_rise(void **state) {
    (void)state;
    struct uuid7_generator generator;
    assert_ok(uuid7_generator_init(&generator, NULL));
    struct uuid last = {{0}};
    for (int i = 0; i < 2000000; i++)
        check_next(&generator, &last, NOW_MS);
    assert_true(uuid7_timestamp_ms(&last) == NOW_MS);
}

static void two_million_ids_rise_under_a_clock_that_jumps_both_ways(void **state) {
    (void)state;
    struct uuid7_generator generator;
    assert_ok(uuid7_generator_init(&generator, NULL));
    struct uuid last = {{0}};
    uint64_t seed = 1;
    uint64_t now_ms = NOW_MS;
    uint64_t latest_ms = 0;
    for (int i = 0; i < 2000000; i++) {
        uint64_t dice = test_random(&seed) % 1000;
        if (dice == 0)
            now_ms -= test_random(&seed) % (9 * HOUR_MS);
        else if (dice == 1)
            now_ms += test_random(&seed) % (9 * HOUR_MS);
        else if (dice < 100)
            now_ms++;
        latest_ms = now_ms > latest_ms ? now_ms : latest_ms;
        check_next(&generator, &last, now_ms);
        assert_true(uuid7_timestamp_ms(&last) == latest_ms);
    }
}

static void a_restart_continues_above_the_last_id_with_the_clock_far_behind(void **state) {
    (void)state;
    static const char *const lasts[] = {
        "019b76da-a87b-7abc-9def-0123456789ab",
        "019b76da-a87b-7fff-bfff-fffffffffffe",
        "019b76da-a87b-7000-8000-000000000000",
    };
    for (size_t i = 0; i < sizeof(lasts) / sizeof(lasts[0]); i++) {
        struct uuid7_generator generator;
        struct uuid last = parse(lasts[i]);
        assert_ok(uuid7_generator_init(&generator, &last));
        for (int step = 0; step < 1000; step++) {
            struct uuid uuid = uuid7_next(&generator, step % 2 ? 0 : NOW_MS - 900 * HOUR_MS);
            assert_true(uuid7_valid(&uuid) && uuid_compare(&uuid, &last) > 0);
            last = uuid;
        }
    }
}

static void a_full_random_field_carries_into_the_timestamp(void **state) {
    (void)state;
    struct uuid7_generator generator;
    struct uuid last = parse("019b76da-a87b-7fff-bfff-ffffffffffff");
    assert_ok(uuid7_generator_init(&generator, &last));
    struct uuid uuid = uuid7_next(&generator, NOW_MS);
    assert_true(uuid7_valid(&uuid) && uuid_compare(&uuid, &last) > 0);
    assert_true(uuid7_timestamp_ms(&uuid) == NOW_MS + 1);
    /* The clock reaching the borrowed millisecond must not fall back below it. */
    struct uuid next = uuid7_next(&generator, NOW_MS + 1);
    assert_true(uuid_compare(&next, &uuid) > 0);
}

static void a_full_low_field_carries_into_the_high_one(void **state) {
    (void)state;
    struct uuid7_generator generator;
    struct uuid last = parse("019b76da-a87b-7abc-bfff-ffffffffffff");
    assert_ok(uuid7_generator_init(&generator, &last));
    struct uuid uuid = uuid7_next(&generator, NOW_MS);
    assert_true(uuid7_valid(&uuid) && uuid7_timestamp_ms(&uuid) == NOW_MS);
    assert_int_equal(uuid.bytes[6], 0x7a);
    assert_int_equal(uuid.bytes[7], 0xbd);
}

static void a_new_millisecond_seeds_with_the_top_bit_clear(void **state) {
    (void)state;
    struct uuid7_generator generator;
    assert_ok(uuid7_generator_init(&generator, NULL));
    int bits_seen = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        struct uuid uuid = uuid7_next(&generator, NOW_MS + i);
        assert_int_equal(uuid.bytes[6] & 0x08, 0);
        bits_seen |= uuid.bytes[6] & 0x07;
    }
    assert_int_equal(bits_seen, 0x07);
}

static void ids_rise_even_where_the_random_bytes_are_zero(void **state) {
    (void)state;
    struct uuid7_generator generator;
    struct uuid last = parse("019b76da-a87b-7abc-9def-0123456789ab");
    assert_ok(uuid7_generator_init(&generator, &last));
    memset(generator.pool, 0, sizeof(generator.pool));
    check_next(&generator, &last, NOW_MS);
    check_next(&generator, &last, NOW_MS);
    char text[UUID_TEXT_SIZE];
    uuid_format(&last, text);
    assert_memory_equal(text, "019b76da-a87b-7abc-9def-0123456789ad", sizeof(text));
}

static void ids_do_not_follow_from_the_ones_before(void **state) {
    (void)state;
    struct uuid7_generator one;
    struct uuid7_generator two;
    assert_ok(uuid7_generator_init(&one, NULL));
    assert_ok(uuid7_generator_init(&two, NULL));
    struct uuid a = uuid7_next(&one, NOW_MS);
    struct uuid b = uuid7_next(&two, NOW_MS);
    assert_true(uuid_compare(&a, &b) != 0);
    struct uuid last = parse("019b76da-a87b-7abc-9def-0123456789ab");
    assert_ok(uuid7_generator_init(&one, &last));
    assert_ok(uuid7_generator_init(&two, &last));
    a = uuid7_next(&one, NOW_MS);
    b = uuid7_next(&two, NOW_MS);
    /* Equal once in four billion runs. */
    assert_true(uuid_compare(&a, &b) != 0);
}

static void the_last_millisecond_of_the_format_works_and_ends_it(void **state) {
    (void)state;
    struct uuid7_generator generator;
    assert_ok(uuid7_generator_init(&generator, NULL));
    struct uuid last = {{0}};
    for (int i = 0; i < 100000; i++)
        check_next(&generator, &last, UUID7_TIMESTAMP_MS_MAX);
    assert_int_equal(uuid7_generator_init(&generator, &last), STATUS_LIMIT_REACHED);
    last = parse("ffffffff-fffe-7fff-bfff-ffffffffffff");
    assert_ok(uuid7_generator_init(&generator, &last));
    check_next(&generator, &last, 0);
}

static void does_not_continue_from_another_version(void **state) {
    (void)state;
    struct uuid7_generator generator;
    struct uuid uuid = parse("019b76da-a87b-7abc-9def-0123456789ab");
    uuid.bytes[6] = 0x4a;
    assert_int_equal(uuid7_generator_init(&generator, &uuid), STATUS_INVALID_UUID);
}

static void text_order_is_byte_order(void **state) {
    (void)state;
    uint64_t seed = 9;
    for (int round = 0; round < 100000; round++) {
        struct uuid uuids[2];
        char texts[2][UUID_TEXT_SIZE];
        for (size_t i = 0; i < 2; i++) {
            uint64_t words[2] = {test_random(&seed), test_random(&seed)};
            memcpy(uuids[i].bytes, words, sizeof(words));
            if (round % 2)
                memset(uuids[i].bytes, 0, 12);
            uuids[i].bytes[6] = (uint8_t)(0x70 | (uuids[i].bytes[6] & 15));
            uuids[i].bytes[8] = (uint8_t)(0x80 | (uuids[i].bytes[8] & 63));
            uuid_format(&uuids[i], texts[i]);
            struct uuid back;
            assert_ok(uuid7_parse((struct slice){texts[i], UUID_TEXT_SIZE}, &back));
            assert_int_equal(uuid_compare(&back, &uuids[i]), 0);
        }
        assert_int_equal(uuid_compare(&uuids[0], &uuids[1]) < 0,
                         memcmp(texts[0], texts[1], UUID_TEXT_SIZE) < 0);
    }
}

static void the_first_of_a_millisecond_is_below_all_of_it_and_above_all_before(void **state) {
    (void)state;
    static const uint64_t times_ms[] = {0, 1, 1700000000000, UUID7_TIMESTAMP_MS_MAX};
    for (size_t i = 0; i < sizeof(times_ms) / sizeof(times_ms[0]); i++) {
        struct uuid first = uuid7_first(times_ms[i]);
        struct uuid last = first;
        assert_true(uuid7_valid(&first));
        assert_int_equal(uuid7_timestamp_ms(&first), times_ms[i]);
        last.bytes[15] = 1;
        assert_true(uuid_compare(&first, &last) < 0);
        if (times_ms[i] == 0)
            continue;
        last = uuid7_first(times_ms[i] - 1);
        memset(last.bytes + 9, 0xff, 7);
        last.bytes[6] = 0x7f;
        last.bytes[7] = 0xff;
        last.bytes[8] = 0xbf;
        assert_true(uuid_compare(&last, &first) < 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_a_millisecond_is_below_all_of_it_and_above_all_before),
        cmocka_unit_test(reads_and_writes_canonical_text),
        cmocka_unit_test(refuses_any_other_text_and_keeps_the_value),
        cmocka_unit_test(takes_every_variant_nibble_of_the_rfc),
        cmocka_unit_test(compares_in_byte_order),
        cmocka_unit_test(two_million_ids_of_one_millisecond_rise),
        cmocka_unit_test(two_million_ids_rise_under_a_clock_that_jumps_both_ways),
        cmocka_unit_test(a_restart_continues_above_the_last_id_with_the_clock_far_behind),
        cmocka_unit_test(a_full_random_field_carries_into_the_timestamp),
        cmocka_unit_test(a_full_low_field_carries_into_the_high_one),
        cmocka_unit_test(a_new_millisecond_seeds_with_the_top_bit_clear),
        cmocka_unit_test(ids_rise_even_where_the_random_bytes_are_zero),
        cmocka_unit_test(ids_do_not_follow_from_the_ones_before),
        cmocka_unit_test(the_last_millisecond_of_the_format_works_and_ends_it),
        cmocka_unit_test(does_not_continue_from_another_version),
        cmocka_unit_test(text_order_is_byte_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
