#include "test.h"
#include "topic/since.h"

#define NOW_MS 1700000000123u

static void a_duration_is_counted_back_from_now(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } rows[] = {
        {"0s", 0},
        {"5ms", 5},
        {"90s", 90000},
        {"15m", 900000},
        {"2h", 7200000},
        {"7d", 604800000},
        {"1700000000123ms", NOW_MS},
        {"1700000000124ms", NOW_MS},
        {"18446744073709551615d", NOW_MS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct since since;
        assert_ok(since_read(slice_of(rows[i].text), &since));
        assert_true(since.is_duration);
        assert_true(since_time_ms(&since, NOW_MS) == NOW_MS - rows[i].ms);
    }
}

static void a_time_has_an_offset_and_may_have_a_fraction(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1969-12-31T23:59:59Z", 0},
        {"0000-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.001Z", 1},
        {"2000-02-29T12:00:00Z", 951825600000},
        {"2001-09-09T01:46:40Z", 1000000000000},
        {"2001-09-09t01:46:40z", 1000000000000},
        {"2001-09-09 01:46:40Z", 1000000000000},
        {"2001-09-09T03:46:40+02:00", 1000000000000},
        {"2001-09-08T20:16:40-05:30", 1000000000000},
        {"2001-09-09T01:46:40-00:00", 1000000000000},
        {"2001-09-09T01:46:40.5Z", 1000000000500},
        {"2001-09-09T01:46:40.1239999Z", 1000000000123},
        {"2016-12-31T23:59:60Z", 1483228800000},
        {"2100-03-01T00:00:00Z", 4107542400000},
        {"9999-12-31T23:59:59.999Z", 253402300799999},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct since since;
        assert_ok(since_read(slice_of(rows[i].text), &since));
        assert_false(since.is_duration);
        assert_true(since_time_ms(&since, NOW_MS) == rows[i].ms);
    }
}

static void any_other_text_is_refused_and_changes_nothing(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "h",
        "2",
        "-2h",
        "+2h",
        "02h",
        "2 h",
        "2H",
        "2w",
        "1.5h",
        "2h30m",
        "18446744073709551616d",
        "yesterday",
        "1700000000",
        "2001-09-09",
        "2001-09-09T01:46:40",
        "2001-09-09T01:46Z",
        "2001-09-09T01:46:40.Z",
        "2001-09-09T01:46:40,5Z",
        "2001-9-9T01:46:40Z",
        "2001-00-09T01:46:40Z",
        "2001-13-09T01:46:40Z",
        "2001-02-29T01:46:40Z",
        "2100-02-29T01:46:40Z",
        "2001-04-31T01:46:40Z",
        "2001-04-00T01:46:40Z",
        "2001-09-09T24:00:00Z",
        "2001-09-09T01:60:00Z",
        "2001-09-09T01:46:61Z",
        "2001-09-09T01:46:40+0200",
        "2001-09-09T01:46:40+24:00",
        "2001-09-09T01:46:40 02:00",
        "2001-09-09T01:46:40ZZ",
        "2001-09-09T01:46:40.00000000000000000000000000000000000000000000000Z",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct since since = {true, 7};
        assert_int_equal(since_read(slice_of(texts[i]), &since), STATUS_INVALID_REQUEST);
        assert_true(since.is_duration && since.ms == 7);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_duration_is_counted_back_from_now),
        cmocka_unit_test(a_time_has_an_offset_and_may_have_a_fraction),
        cmocka_unit_test(any_other_text_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
