#include "server/nearest.h"

#include "test.h"

static const char *meant(const char *written) {
    static const char *const names[] = {
        "serve",     "reproject",       "restore",        "retention",
        "KHALA_LOG", "KHALA_LOG_LEVEL", "KHALA_DATA_DIR", "KHALA_CONNECTIONS_MAX",
        "--json",    "--data-dir"};
    struct nearest nearest = {.written = written};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        nearest_try(&nearest, names[i]);
    return nearest.name;
}

static void a_misspelled_name_is_found(void **state) {
    (void)state;
    assert_string_equal(meant("serv"), "serve");
    assert_string_equal(meant("retsore"), "restore");
    assert_string_equal(meant("--jsno"), "--json");
    assert_string_equal(meant("--datadir"), "--data-dir");
    assert_string_equal(meant("KHALA_DATA_DIRR"), "KHALA_DATA_DIR");
    assert_string_equal(meant("KHALA_LOGLEVEL"), "KHALA_LOG_LEVEL");
}

static void words_may_stand_in_another_order(void **state) {
    (void)state;
    assert_string_equal(meant("KHALA_MAX_CONNECTIONS"), "KHALA_CONNECTIONS_MAX");
    assert_string_equal(meant("KHALA_DIR_DATA"), "KHALA_DATA_DIR");
    struct nearest nearest = {.written = "a_b_max"};
    nearest_try(&nearest, "max_a_b");
    nearest_try(&nearest, "a_b_max");
    assert_string_equal(nearest.name, "a_b_max");
}

static void the_nearest_wins_and_the_first_of_equals(void **state) {
    (void)state;
    struct nearest nearest = {.written = "abcdef"};
    nearest_try(&nearest, "abcdxx");
    nearest_try(&nearest, "abcdeg");
    nearest_try(&nearest, "abcdeh");
    assert_string_equal(nearest.name, "abcdeg");
    assert_int_equal(nearest.distance, 1);
}

static void an_unrelated_name_suggests_none(void **state) {
    (void)state;
    assert_null(meant("frobnicate"));
    assert_null(meant("x"));
    assert_null(meant(""));
    assert_null(meant("KHALA_IMAGE_TAG"));
    assert_null(meant("--none-such"));
    assert_null(meant("KHALA_FOO"));
    assert_null(meant("KHALA_"));
}

static void a_long_name_is_cut(void **state) {
    (void)state;
    char name[4 * NEAREST_BYTES_MAX];
    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_null(meant(name));
    struct nearest nearest = {.written = name};
    nearest_try(&nearest, name);
    assert_int_equal(nearest.distance, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misspelled_name_is_found),
        cmocka_unit_test(words_may_stand_in_another_order),
        cmocka_unit_test(the_nearest_wins_and_the_first_of_equals),
        cmocka_unit_test(an_unrelated_name_suggests_none),
        cmocka_unit_test(a_long_name_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
