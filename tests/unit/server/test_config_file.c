#include "server/config.h"
#include "server/config_file.h"
#include "test.h"

static struct config_file file;

static enum status parse(const char *text, struct config_error *error) {
    strcpy(file.path, "khala.conf");
    strcpy(file.text, text);
    return config_file_parse(&file, strlen(text), error);
}

static void values_are_unquoted_like_in_an_environment_file(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"A=b", "b"},
        {"A=", ""},
        {"  A =  b c  \t", "b c"},
        {"A=b\\ ", "b "},
        {"A=b#c", "b#c"},
        {"A=b\"c'", "b\"c'"},
        {"A=\"b # c\"  ", "b # c"},
        {"A=\"\\\"\\\\\\$\\`\\n\"", "\"\\$`\\n"},
        {"A='\\\"'", "\\\""},
        {"A=\"\"", ""},
        {"A=b\r\n", "b"},
        {"# x\n;y\n\n\t\nA=b", "b"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config_error error = {""};
        if (parse(rows[i][0], &error) != STATUS_OK)
            fail_msg("%s: %s", rows[i][0], error.text);
        assert_int_equal(file.row_count, 1);
        assert_string_equal(config_file_find(&file, "A")->value, rows[i][1]);
    }
}

static void lines_that_are_not_pairs_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"A",         "=b",     "1=b",    "A b=c",   "export A=b",
                                      "A-B=c",     "A=\"b",  "A='b",   "A='b'c",  "A=b\\",
                                      "A=\"b\\\"", "A=b #c", "A=\xff", "A=1\nA=2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct config_error error = {""};
        assert_int_equal(parse(bad[i], &error), STATUS_INVALID_CONFIG);
        assert_memory_equal(error.text, "khala.conf:", strlen("khala.conf:"));
    }
}

static void a_file_has_a_limited_number_of_settings(void **state) {
    (void)state;
    struct config_error error = {""};
    char text[CONFIG_FILE_ROWS_MAX * 8 + 16] = "";
    size_t size = 0;
    for (int i = 0; i < CONFIG_FILE_ROWS_MAX; i++)
        size += (size_t)sprintf(text + size, "A%d=1\n", i);
    assert_ok(parse(text, &error));
    assert_int_equal(file.row_count, CONFIG_FILE_ROWS_MAX);
    strcpy(text + size, "B=1\n");
    assert_int_equal(parse(text, &error), STATUS_INVALID_CONFIG);
    assert_non_null(strstr(error.text, "khala.conf:257: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_unquoted_like_in_an_environment_file),
        cmocka_unit_test(lines_that_are_not_pairs_are_refused),
        cmocka_unit_test(a_file_has_a_limited_number_of_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
