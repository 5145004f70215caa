#include "server/config.h"
#include "test.h"

/* The environment of one test: name, value, name, value, NULL. */
static const char *const *variables;

static const char *environment(const char *name) {
    for (const char *const *at = variables; at && *at; at += 2)
        if (strcmp(at[0], name) == 0)
            return at[1];
    return NULL;
}

static enum status load(struct config *config, const char *name, const char *value,
                        struct config_error *error) {
    const char *const pair[] = {name, value, NULL};
    variables = name ? pair : NULL;
    enum status status = config_load(config, NULL, environment, NULL, 0, error);
    variables = NULL;
    return status;
}

static void assert_taken(const char *name, const char *value) {
    struct config config;
    struct config_error error = {""};
    if (load(&config, name, value, &error) != STATUS_OK)
        fail_msg("%s='%s': %s", name, value, error.text);
}

static void assert_refused(const char *name, const char *value) {
    struct config config;
    struct config_error error = {""};
    if (load(&config, name, value, &error) != STATUS_INVALID_CONFIG)
        fail_msg("%s='%s' is taken", name, value);
    assert_non_null(strstr(error.text, name));
}

static void an_empty_environment_gives_the_defaults(void **state) {
    (void)state;
    struct config config;
    struct config_error error;
    assert_ok(load(&config, NULL, NULL, &error));
    assert_string_equal(config.bind.host, "127.0.0.1");
    assert_int_equal(config.bind.port, 4100);
    assert_string_equal(config.data_dir, "./khala-data");
    assert_int_equal(config.log_format, LOG_TEXT);
    assert_int_equal(config.log_level, LOG_INFO);
    assert_int_equal(config.connections_max, 100000);
    for (size_t i = 0; i < CONFIG_SETTINGS_MAX; i++)
        assert_int_equal(config.sources[i], CONFIG_DEFAULT);
    for (size_t i = 0; i < policy_key_count(); i++)
        assert_int_equal(config.policy_sources[i], CONFIG_DEFAULT);
}

static void a_flag_overrides_the_environment(void **state) {
    (void)state;
    static const char *const pairs[] = {"RUNTIME_BIND_ADDR", "10.0.0.1:1", "KHALA_LOG", "json",
                                        NULL};
    const struct config_flag flags[] = {{"--bind", "10.0.0.2:2"}, {"--log", NULL}};
    struct config config;
    struct config_error error;
    variables = pairs;
    assert_ok(config_load(&config, NULL, environment, flags, 2, &error));
    variables = NULL;
    assert_string_equal(config.bind.host, "10.0.0.2");
    assert_int_equal(config.bind.port, 2);
    assert_int_equal(config.sources[0], CONFIG_FLAG);
    assert_int_equal(config.log_format, LOG_JSON);
}

static void a_bad_flag_is_refused_even_if_the_environment_is_valid(void **state) {
    (void)state;
    const struct config_flag flags[] = {{"--bind", "nowhere"}};
    struct config config;
    struct config_error error;
    assert_int_equal(config_load(&config, NULL, environment, flags, 1, &error),
                     STATUS_INVALID_CONFIG);
    assert_non_null(strstr(error.text, "RUNTIME_BIND_ADDR"));
}

static void an_address_is_a_host_and_a_port(void **state) {
    (void)state;
    static const char *const good[] = {"127.0.0.1:0", "localhost:65535", "[::1]:80", "[::]:1",
                                       "a-b.example:443"};
    static const char *const bad[] = {"",        "4100",     ":4100",   "host:",      "host:65536",
                                      "host:-1", "host:1x",  "[]:80",   "[::1]",      "::1:80",
                                      "[::1:80", "::1]:80",  "a[b]:80", "[[::1]]:80", "host: 1",
                                      "host:+1", "ho\nst:80"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_taken("RUNTIME_BIND_ADDR", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused("RUNTIME_BIND_ADDR", bad[i]);
    char longest[262];
    memset(longest, 'h', sizeof(longest));
    strcpy(longest + 255, ":80");
    assert_taken("RUNTIME_BIND_ADDR", longest);
    longest[255] = 'h';
    strcpy(longest + 256, ":80");
    assert_refused("RUNTIME_BIND_ADDR", longest);
}

static void a_number_outside_its_bounds_is_refused(void **state) {
    (void)state;
    assert_taken("KHALA_REQUEST_TIMEOUT_MS", "10");
    assert_taken("KHALA_REQUEST_TIMEOUT_MS", "3600000");
    static const char *const bad[] = {
        "9", "3600001", "", " 50", "50 ", "-1", "5e1", "0x50", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused("KHALA_REQUEST_TIMEOUT_MS", bad[i]);
}

static void a_head_limit_above_the_parsers_maximum_is_refused(void **state) {
    (void)state;
    assert_taken("KHALA_REQUEST_HEAD_BYTES_MAX", "65536");
    assert_refused("KHALA_REQUEST_HEAD_BYTES_MAX", "65537");
    assert_taken("KHALA_REQUEST_HEAD_BYTES_MAX", "12288");
    assert_refused("KHALA_REQUEST_HEAD_BYTES_MAX", "12287");
}

static void a_choice_must_be_one_whole_word_of_its_list(void **state) {
    (void)state;
    static const char *const bad[] = {"", "jso", "jsonl", "JSON", "text|json", "|"};
    assert_taken("KHALA_LOG", "text");
    assert_taken("KHALA_LOG", "json");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused("KHALA_LOG", bad[i]);
}

static void every_log_level_can_be_set_by_name(void **state) {
    (void)state;
    static const char *const names[] = {[LOG_DEBUG] = "debug",
                                        [LOG_INFO] = "info",
                                        [LOG_WARN] = "warn",
                                        [LOG_ERROR] = "error",
                                        [LOG_OFF] = "off"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct config config;
        struct config_error error;
        assert_ok(load(&config, "KHALA_LOG_LEVEL", names[i], &error));
        assert_int_equal(config.log_level, i);
    }
}

static void a_text_that_is_too_long_or_has_control_characters_is_refused(void **state) {
    (void)state;
    char text[CONFIG_TEXT_MAX + 1];
    memset(text, 'x', sizeof(text));
    text[CONFIG_TEXT_MAX - 1] = '\0';
    assert_taken("KHALA_DATA_DIR", text);
    text[CONFIG_TEXT_MAX - 1] = 'x';
    text[CONFIG_TEXT_MAX] = '\0';
    assert_refused("KHALA_DATA_DIR", text);
    assert_refused("KHALA_DATA_DIR", "");
    assert_refused("KHALA_DATA_DIR", "a\nKHALA_LOG=json  # flag");
    assert_refused("KHALA_DATA_DIR", "\x7f");
    assert_taken("KHALA_DATA_DIR", "/srv/daten für später");
}

static void a_policy_value_is_set_by_name_and_checked(void **state) {
    (void)state;
    struct config config;
    struct config_error error;
    assert_ok(load(&config, "RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS", "77", &error));
    assert_int_equal(policy_of(&config.policies, SLICE("chat"))->replay_budget_events, 77);
    assert_refused("RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS", "0");
    assert_refused("RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS", "many");
}

static void an_unsupported_store_is_refused(void **state) {
    (void)state;
    struct config config;
    struct config_error error = {""};
    assert_refused("DB_URL", "mysql://u:secret@db/khala");
    assert_int_equal(load(&config, "DB_URL", "mysql://u:secret@db/khala", &error),
                     STATUS_INVALID_CONFIG);
    assert_null(strstr(error.text, "secret"));
    assert_taken("DB_URL", "");
    assert_taken("DB_URL", "postgres://u:secret@db/khala");
    assert_taken("DB_URL", "postgresql://u:secret@db/khala");
}

static void a_fanout_driver_needs_a_url(void **state) {
    (void)state;
    assert_taken("RUNTIME_FANOUT_DRIVER", "memory");
    assert_refused("RUNTIME_FANOUT_DRIVER", "nats");
    assert_refused("RUNTIME_FANOUT_DRIVER", "redis");
    assert_refused("RUNTIME_FANOUT_DRIVER", "postgres_notify");
    assert_refused("RUNTIME_FANOUT_DRIVER", "kafka");
}

static void an_error_message_holds_a_bad_value_of_any_length(void **state) {
    (void)state;
    char text[4096];
    memset(text, '9', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_refused("KHALA_IO_LOOPS", text);
    assert_refused("KHALA_LOG", text);
    assert_refused("RUNTIME_BIND_ADDR", text);
    assert_refused("RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS", text);
}

static void a_boolean_has_several_words_for_true_and_false(void **state) {
    (void)state;
    static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "On"};
    static const char *const no[] = {"0", "false", "no", "off"};
    static const char *const bad[] = {"", "2", "tru", "y", "true ", "enabled"};
    struct config config;
    struct config_error error;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        assert_ok(load(&config, "RUNTIME_SYNC_TOKEN_SINGLE_USE", yes[i], &error));
        assert_true(config.token_single_use);
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        assert_ok(load(&config, "RUNTIME_KHALA_ENFORCE_ORIGIN", no[i], &error));
        assert_false(config.enforce_origin);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused("OA_COMPAT_KHALA_ENFORCED", bad[i]);
}

static void security_settings_are_on_by_default(void **state) {
    (void)state;
    struct config config;
    struct config_error error;
    assert_ok(load(&config, NULL, NULL, &error));
    assert_true(config.token_require_jti);
    assert_true(config.enforce_origin);
    assert_string_equal(config.allowed_origins, "");
    assert_false(config.token_single_use);
    assert_false(config.compatibility_enforced);
    assert_int_equal(config.token_max_age_s, 900);
    assert_string_equal(config.token_audience, "openagents-sync");
}

static void allowed_origins_are_checked_at_start(void **state) {
    (void)state;
    assert_taken("RUNTIME_KHALA_ALLOWED_ORIGINS", "");
    assert_taken("RUNTIME_KHALA_ALLOWED_ORIGINS", "https://a.example, http://localhost:3000");
    assert_refused("RUNTIME_KHALA_ALLOWED_ORIGINS", "a.example");
    assert_refused("RUNTIME_KHALA_ALLOWED_ORIGINS", "https://a.example/path");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_boolean_has_several_words_for_true_and_false),
        cmocka_unit_test(security_settings_are_on_by_default),
        cmocka_unit_test(allowed_origins_are_checked_at_start),
        cmocka_unit_test(an_empty_environment_gives_the_defaults),
        cmocka_unit_test(a_flag_overrides_the_environment),
        cmocka_unit_test(a_bad_flag_is_refused_even_if_the_environment_is_valid),
        cmocka_unit_test(an_address_is_a_host_and_a_port),
        cmocka_unit_test(a_number_outside_its_bounds_is_refused),
        cmocka_unit_test(a_head_limit_above_the_parsers_maximum_is_refused),
        cmocka_unit_test(a_choice_must_be_one_whole_word_of_its_list),
        cmocka_unit_test(every_log_level_can_be_set_by_name),
        cmocka_unit_test(a_text_that_is_too_long_or_has_control_characters_is_refused),
        cmocka_unit_test(a_policy_value_is_set_by_name_and_checked),
        cmocka_unit_test(an_unsupported_store_is_refused),
        cmocka_unit_test(a_fanout_driver_needs_a_url),
        cmocka_unit_test(an_error_message_holds_a_bad_value_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
