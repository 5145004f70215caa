#include "server/config_unknown.h"

#include "test.h"

struct told {
    size_t count;
    char name[128];
    const char *nearest;
};

static void note(void *user, const char *name, const char *nearest) {
    struct told *told = user;
    told->count++;
    snprintf(told->name, sizeof(told->name), "%s", name);
    told->nearest = nearest;
}

static struct told look(const char *variable) {
    struct told told = {0};
    char *const environment[] = {(char *)"PATH=/bin", (char *)variable, NULL};
    config_unknown_each(environment, &told, note);
    return told;
}

static void assert_left_alone(const char *variable) {
    if (look(variable).count != 0)
        fail_msg("%s is told of", variable);
}

static void a_misspelled_setting_is_reported_with_the_nearest_name(void **state) {
    (void)state;
    struct told told = look("KHALA_MAX_CONNECTIONS=3");
    assert_int_equal(told.count, 1);
    assert_string_equal(told.name, "KHALA_MAX_CONNECTIONS");
    assert_string_equal(told.nearest, "KHALA_CONNECTIONS_MAX");
    assert_string_equal(look("RUNTIME_BIND_ADRR=").nearest, "RUNTIME_BIND_ADDR");
    assert_string_equal(look("RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD=1").nearest,
                        "RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES");
}

static void an_unknown_name_is_reported_only_with_our_prefixes(void **state) {
    (void)state;
    struct told told = look("KHALA_SOMETHING_ELSE=1");
    assert_int_equal(told.count, 1);
    assert_null(told.nearest);
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
        cmocka_unit_test(a_misspelled_setting_is_reported_with_the_nearest_name),
        cmocka_unit_test(an_unknown_name_is_reported_only_with_our_prefixes),
        cmocka_unit_test(settings_and_variables_of_other_programs_are_ignored),
        cmocka_unit_test(a_name_longer_than_any_setting_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
