#include "test.h"

#include "cluster/fanout.h"

#define EPOCH "01a1dec5-1260-72e1-823b-7915efd6f48b"
#define GOOD  "1 " EPOCH " 00000000000000000042"

static void a_hint_survives_the_way(void **state) {
    (void)state;
    const uint64_t log_ids[] = {1, 42, 1000000, HINT_LOG_ID_MAX};
    for (size_t i = 0; i < sizeof(log_ids) / sizeof(log_ids[0]); i++) {
        const struct hint sent = {.epoch = EPOCH, .log_id = log_ids[i]};
        struct hint received = {.log_id = 0};
        char text[HINT_BYTES];
        hint_write(&sent, text);
        assert_ok(hint_parse((struct slice){text, sizeof(text)}, &received));
        assert_string_equal(received.epoch, EPOCH);
        assert_true(received.log_id == log_ids[i]);
    }
    struct hint hint;
    assert_ok(hint_parse(SLICE(GOOD), &hint));
    assert_true(hint.log_id == 42);
}

static void other_texts_are_no_hint(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "1",
        "hello",
        GOOD " ",
        GOOD "\n",
        " " GOOD,
        "2 " EPOCH " 00000000000000000042",
        "1\t" EPOCH " 00000000000000000042",
        "1 " EPOCH "_00000000000000000042",
        "1 " EPOCH " 00000000000000000000",
        "1 " EPOCH " 0000000000000000004x",
        "1 " EPOCH " -0000000000000000042",
        "1 " EPOCH " +0000000000000000042",
        "1 " EPOCH "                   42",
        "1 " EPOCH " 09223372036854775808",
        "1 " EPOCH " 18446744073709551617",
        "1 " EPOCH " 99999999999999999999",
        "1 01A1DEC5-1260-72E1-823B-7915EFD6F48B 00000000000000000042",
        "1 01a1dec5-1260-42e1-823b-7915efd6f48b 00000000000000000042",
        "1 01a1dec5 1260 72e1 823b 7915efd6f48b 00000000000000000042",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct hint hint = {.epoch = "unchanged", .log_id = 7};
        assert_int_equal(hint_parse(slice_of(texts[i]), &hint), STATUS_INVALID_REQUEST);
        assert_string_equal(hint.epoch, "unchanged");
        assert_true(hint.log_id == 7);
    }
}

static void a_damaged_byte_is_noticed_or_harmless(void **state) {
    (void)state;
    for (size_t at = 0; at < HINT_BYTES; at++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            char text[HINT_BYTES];
            char again[HINT_BYTES];
            struct hint hint;
            memcpy(text, GOOD, sizeof(text));
            text[at] = (char)byte;
            if (hint_parse((struct slice){text, sizeof(text)}, &hint) != STATUS_OK)
                continue;
            hint_write(&hint, again);
            assert_memory_equal(text, again, sizeof(text));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hint_survives_the_way),
        cmocka_unit_test(other_texts_are_no_hint),
        cmocka_unit_test(a_damaged_byte_is_noticed_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
