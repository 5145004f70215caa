#include "server/unknown.h"

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

struct reported {
    size_t count;
    char name[128];
    const char *nearest;
};

static void note(void *user, const char *name, const char *nearest) {
    struct reported *reported = user;
    reported->count++;
    snprintf(reported->name, sizeof(reported->name), "%s", name);
    reported->nearest = nearest;
}

static struct reported report_of(const char *variable) {
    struct reported reported = {0};
    char *const environment[] = {(char *)"PATH=/bin", (char *)variable, NULL};
    config_unknown_each(environment, &reported, note);
    return reported;
}

static void assert_left_alone(const char *variable) {
    if (report_of(variable).count != 0)
        fail_msg("%s is reported", variable);
}

static void a_misspelled_setting_is_reported_with_the_nearest_name(void **state) {
    (void)state;
    struct reported reported = report_of("KHALA_MAX_CONNECTIONS=3");
    assert_int_equal(reported.count, 1);
    assert_string_equal(reported.name, "KHALA_MAX_CONNECTIONS");
    assert_string_equal(reported.nearest, "KHALA_CONNECTIONS_MAX");
    assert_string_equal(report_of("RUNTIME_BIND_ADRR=").nearest, "RUNTIME_BIND_ADDR");
    assert_string_equal(report_of("RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD=1").nearest,
                        "RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES");
}

static void an_unknown_name_is_reported_only_with_our_prefixes(void **state) {
    (void)state;
    struct reported reported = report_of("KHALA_SOMETHING_ELSE=1");
    assert_int_equal(reported.count, 1);
    assert_null(reported.nearest);
    assert_left_alone("RUNTIME_DIRECTORY=/run/khala");
    assert_left_alone("OA_COMPAT_OTHER=1");
    assert_left_alone("SOMETHING=1");
}

static void settings_and_variables_of_other_programs_are_ignored(void **state) {
    (void)state;
    assert_left_alone("KHALA_DATA_DIR=/var/lib/khala");
    assert_left_alone("RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS=1");
    assert_left_alone("KHALA_CA_FILE=x");
    assert_left_alone("KHALA_PORT=tcp://10.0.0.1:4100");
    assert_left_alone("KHALA_PORT_4100_TCP_ADDR=10.0.0.1");
    assert_left_alone("KHALA_SERVICE_HOST=10.0.0.1");
}

static void a_name_longer_than_any_setting_is_ignored(void **state) {
    (void)state;
    char variable[512] = "KHALA_";
    memset(variable + 6, 'X', sizeof(variable) - 7);
    assert_left_alone(variable);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misspelled_name_is_found),
        cmocka_unit_test(words_may_stand_in_another_order),
        cmocka_unit_test(the_nearest_wins_and_the_first_of_equals),
        cmocka_unit_test(an_unrelated_name_suggests_none),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(a_misspelled_setting_is_reported_with_the_nearest_name),
        cmocka_unit_test(an_unknown_name_is_reported_only_with_our_prefixes),
        cmocka_unit_test(settings_and_variables_of_other_programs_are_ignored),
        cmocka_unit_test(a_name_longer_than_any_setting_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
