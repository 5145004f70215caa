#include "api/key_request.h"

#include "test.h"

static void a_new_key_has_a_name_and_a_role(void **state) {
    (void)state;
    struct key_request request;
    assert_null(key_request_read_new(SLICE("{\"role\":\"read\",\"name\":\"9.a-b_c\"}"), &request));
    assert_slice(((struct slice){request.name, request.name_size}), "9.a-b_c");
    assert_int_equal(request.role, KEY_ROLE_READ);
    static const char *const refused[] = {
        "",
        "[]",
        "{}",
        "{\"name\":\"a\"}",
        "{\"role\":\"read\"}",
        "{\"name\":\"a\",\"role\":\"read\",\"more\":1}",
        "{\"name\":\"a\",\"role\":\"root\"}",
        "{\"name\":\"a\",\"role\":\"none\"}",
        "{\"name\":\"a\",\"role\":\"\"}",
        "{\"name\":\"a\",\"role\":1}",
        "{\"name\":null,\"role\":\"read\"}",
        "{\"name\":\"\",\"role\":\"read\"}",
        "{\"name\":\"operator\",\"role\":\"read\"}",
        "{\"name\":\"A\",\"role\":\"read\"}",
        "{\"name\":\".a\",\"role\":\"read\"}",
        "{\"name\":\"a/b\",\"role\":\"read\"}",
        "{\"name\":\"a b\",\"role\":\"read\"}",
        "{\"name\":\"a\\u0000\",\"role\":\"read\"}",
        "{\"name\":\"\xc3\xa4\",\"role\":\"read\"}",
        "{\"name\":\"a\",\"name\":\"b\",\"role\":\"read\"}",
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (!key_request_read_new(slice_of(refused[i]), &request))
            fail_msg("'%s' was taken", refused[i]);
    char name[OPERATOR_KEY_NAME_BYTES_MAX + 1];
    memset(name, 'a', sizeof(name));
    assert_null(operator_key_name_problem((struct slice){name, sizeof(name) - 1}));
    assert_non_null(operator_key_name_problem((struct slice){name, sizeof(name)}));
}

static void a_rotation_has_an_overlap(void **state) {
    (void)state;
    struct key_request request;
    assert_null(key_request_read_rotation(SLICE(""), &request));
    assert_int_equal(request.overlap_s, KEY_OVERLAP_S);
    assert_null(key_request_read_rotation(SLICE("{}"), &request));
    assert_int_equal(request.overlap_s, KEY_OVERLAP_S);
    assert_null(key_request_read_rotation(SLICE("{\"overlap_seconds\":0}"), &request));
    assert_int_equal(request.overlap_s, 0);
    assert_null(key_request_read_rotation(SLICE("{\"overlap_seconds\":2592000}"), &request));
    static const char *const refused[] = {"1",
                                          "{\"overlap\":1}",
                                          "{\"overlap_seconds\":-1}",
                                          "{\"overlap_seconds\":2592001}",
                                          "{\"overlap_seconds\":1.5}",
                                          "{\"overlap_seconds\":\"1\"}",
                                          "{\"overlap_seconds\":null}"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (!key_request_read_rotation(slice_of(refused[i]), &request))
            fail_msg("'%s' was taken", refused[i]);
}

static void made_keys_are_long_and_differ(void **state) {
    (void)state;
    char first[OPERATOR_KEY_TEXT_SIZE + 1], second[OPERATOR_KEY_TEXT_SIZE + 1];
    uint8_t digest[SHA256_BYTES], expected[SHA256_BYTES];
    assert_ok(operator_key_make(first, digest));
    assert_ok(operator_key_make(second, expected));
    assert_string_not_equal(first, second);
    assert_int_equal(strlen(first), 4 + 43);
    sha256(first, strlen(first), expected);
    assert_memory_equal(digest, expected, SHA256_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_key_has_a_name_and_a_role),
        cmocka_unit_test(a_rotation_has_an_overlap),
        cmocka_unit_test(made_keys_are_long_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
