#include "http/admit/operator_key.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "test.h"

static char folder[] = "/tmp/khala-key-XXXXXX";
static char path[64];

static int setup(void **state) {
    (void)state;
    log_configure(LOG_OFF, LOG_TEXT, 2);
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/operator.key", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static enum status check(const struct operator_key *key, const char *authorization) {
    struct http1_header header = {SLICE("Authorization"),
                                  slice_of(authorization ? authorization : "")};
    struct http1_request request = {.headers = &header, .header_count = authorization ? 1 : 0};
    struct slice given;
    enum status status = operator_key_given(&request, &given);
    return status != STATUS_OK           ? status
           : operator_key_is(key, given) ? STATUS_OK
                                         : STATUS_INVALID_TOKEN;
}

static void a_key_is_generated_once_and_only_its_owner_may_read_it(void **state) {
    (void)state;
    struct operator_key first, second;
    struct stat about;
    assert_ok(operator_key_load(&first, "", folder));
    assert_int_equal(first.source, OPERATOR_KEY_GENERATED);
    assert_int_equal(strlen(first.text), 43);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_ok(operator_key_load(&second, "", folder));
    assert_int_equal(second.source, OPERATOR_KEY_READ);
    assert_string_equal(second.text, first.text);
    unlink(path);
    assert_ok(operator_key_load(&second, "", folder));
    assert_string_not_equal(second.text, first.text);
}

static void a_given_key_needs_no_file(void **state) {
    (void)state;
    struct operator_key key;
    assert_ok(operator_key_load(&key, "a-key-that-was-given", folder));
    assert_int_equal(key.source, OPERATOR_KEY_GIVEN);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(operator_key_read(&key, folder), STATUS_NOT_FOUND);
}

static void a_line_end_is_not_part_of_the_key(void **state) {
    (void)state;
    struct operator_key key;
    write_file("secret-of-the-house\r\n");
    assert_ok(operator_key_read(&key, folder));
    assert_string_equal(key.text, "secret-of-the-house");
}

static void a_file_without_a_valid_key_is_refused_and_not_replaced(void **state) {
    (void)state;
    struct operator_key key;
    char longest[OPERATOR_KEY_BYTES_MAX + 2];
    memset(longest, 'k', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    static const char *const bad[] = {"", "\n", "two words", "tab\tbed", "caf\xc3\xa9"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_file(bad[i]);
        assert_int_equal(operator_key_load(&key, "", folder), STATUS_INVALID_CONFIG);
    }
    write_file(longest);
    assert_int_equal(operator_key_load(&key, "", folder), STATUS_INVALID_CONFIG);
    longest[OPERATOR_KEY_BYTES_MAX] = '\0';
    write_file(longest);
    assert_ok(operator_key_load(&key, "", folder));
}

static void a_missing_folder_is_an_error(void **state) {
    (void)state;
    struct operator_key key;
    assert_int_equal(operator_key_load(&key, "", "/nonexistent/khala"), STATUS_SYSTEM_ERROR);
    assert_int_equal(errno, ENOENT);
}

static void only_the_exact_key_is_accepted(void **state) {
    (void)state;
    struct operator_key key;
    assert_ok(operator_key_load(&key, "open-sesame-please", folder));
    assert_ok(check(&key, "Bearer open-sesame-please"));
    assert_ok(check(&key, "bearer open-sesame-please"));
    assert_ok(check(&key, "BEARER  open-sesame-please"));
    static const char *const wrong[] = {"Bearer",
                                        "Bearer ",
                                        "Bearer open-sesame-pleas",
                                        "Bearer open-sesame-please!",
                                        "Bearer Open-sesame-please",
                                        "Bearer open-sesame-please open-sesame-please"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (check(&key, wrong[i]) != STATUS_INVALID_TOKEN)
            fail_msg("'%s' is not an invalid token", wrong[i]);
    assert_int_equal(check(&key, NULL), STATUS_MISSING_AUTHORIZATION);
    assert_int_equal(check(&key, ""), STATUS_MISSING_AUTHORIZATION);
    assert_int_equal(check(&key, "Basic b3Blbjpvcen"), STATUS_INVALID_AUTHORIZATION_SCHEME);
    assert_int_equal(check(&key, "open-sesame-please"), STATUS_INVALID_AUTHORIZATION_SCHEME);
    assert_int_equal(check(&key, "Bearers open-sesame-please"),
                     STATUS_INVALID_AUTHORIZATION_SCHEME);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_is_generated_once_and_only_its_owner_may_read_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_given_key_needs_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_end_is_not_part_of_the_key, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_without_a_valid_key_is_refused_and_not_replaced,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_folder_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_exact_key_is_accepted, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
