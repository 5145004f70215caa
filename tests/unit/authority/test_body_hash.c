#include "authority/append_read.h"
#include "test.h"

static enum status check(const char *text) {
    static const struct json_limits limits = {4096, JSON_DEPTH_MAX};
    struct append_parser reader;
    struct json_value body;
    append_parser_init(&reader, 4096);
    assert_ok(json_parse(slice_of(text), &limits, &body));
    enum status status = append_check_hash(&reader, body);
    append_parser_release(&reader);
    return status;
}

/* The hash of canonical, as the member of a body. */
static const char *hash_of(const char *canonical, const char *prefix, bool upper) {
    static char text[128];
    uint8_t digest[SHA256_BYTES];
    sha256(canonical, strlen(canonical), digest);
    int size = snprintf(text, sizeof(text), "\"event_hash\":\"%s", prefix);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        size +=
            snprintf(text + size, sizeof(text) - (size_t)size, upper ? "%02X" : "%02x", digest[i]);
    snprintf(text + size, sizeof(text) - (size_t)size, "\"");
    return text;
}

static enum status check_with(const char *before, const char *hash, const char *after) {
    char text[512];
    snprintf(text, sizeof(text), "{%s%s%s}", before, hash, after);
    return check(text);
}

static void a_body_without_a_hash_is_accepted(void **state) {
    (void)state;
    assert_ok(check("{}"));
    assert_ok(check("{\"event_type\":\"a\"}"));
    assert_ok(check("{\"event_hash\":null}"));
}

static void the_hash_covers_the_canonical_body_without_the_hash_field(void **state) {
    (void)state;
    const char *canonical = "{\"a\":{\"x\":[1,2],\"y\":\"A\"},\"event_type\":\"t\"}";
    const char *before = " \"event_type\" : \"t\" , ";
    const char *after = ", \"a\":{\"y\":\"\\u0041\", \"x\":[1, 2]}";
    assert_ok(check_with(before, hash_of(canonical, "", false), after));
    assert_ok(check_with(before, hash_of(canonical, "sha256:", false), after));
    assert_ok(check_with(before, hash_of(canonical, "", true), after));
    assert_ok(check_with("", hash_of("{}", "", false), ""));
    assert_ok(check_with("", hash_of("{\"a\":1}", "", false), ",\"a\":1"));
    assert_ok(check_with("\"a\":1,", hash_of("{\"a\":1}", "", false), ""));
}

static void the_name_of_the_hash_field_may_be_escaped(void **state) {
    (void)state;
    char text[512];
    snprintf(text, sizeof(text), "{\"a\":1,\"event_h\\u0061sh\"%s}",
             hash_of("{\"a\":1}", "", false) + sizeof("\"event_hash\"") - 1);
    assert_ok(check(text));
}

static void a_hash_field_inside_the_payload_is_part_of_the_body(void **state) {
    (void)state;
    const char *canonical = "{\"payload\":{\"event_hash\":\"x\"}}";
    assert_ok(check_with("", hash_of(canonical, "", false), ",\"payload\":{\"event_hash\":\"x\"}"));
}

static void a_different_hash_is_a_mismatch(void **state) {
    (void)state;
    assert_int_equal(check_with("\"a\":2,", hash_of("{\"a\":1}", "", false), ""),
                     STATUS_EVENT_HASH_MISMATCH);
    assert_int_equal(check_with("\"a\":1,\"b\":1,", hash_of("{\"a\":1}", "", false), ""),
                     STATUS_EVENT_HASH_MISMATCH);
}

static void a_malformed_hash_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "{\"event_hash\":\"\"}",
        "{\"event_hash\":7}",
        "{\"event_hash\":\"sha256:\"}",
        "{\"event_hash\":\"sha512:00\"}",
        "{\"event_hash\":\"00000000000000000000000000000000000000000000000000000000000000g0\"}",
        "{\"event_hash\":\"000000000000000000000000000000000000000000000000000000000000000\"}",
        "{\"event_hash\":\"00000000000000000000000000000000000000000000000000000000000000000\"}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(check(bad[i]), STATUS_INVALID_REQUEST);
    assert_int_equal(check("[]"), STATUS_INVALID_REQUEST);
}

static void a_body_without_a_canonical_form_is_refused(void **state) {
    (void)state;
    const char *hash = hash_of("{}", "", false);
    assert_int_equal(check_with("\"a\":1,\"a\":1,", hash, ""), STATUS_JSON_DUPLICATE_KEY);
    assert_int_equal(check_with("\"a\":1e999,", hash, ""), STATUS_JSON_NUMBER_OUT_OF_RANGE);
    assert_int_equal(check("{\"event_hash\":null,\"event_hash\":null}"), STATUS_JSON_DUPLICATE_KEY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_without_a_hash_is_accepted),
        cmocka_unit_test(the_hash_covers_the_canonical_body_without_the_hash_field),
        cmocka_unit_test(the_name_of_the_hash_field_may_be_escaped),
        cmocka_unit_test(a_hash_field_inside_the_payload_is_part_of_the_body),
        cmocka_unit_test(a_different_hash_is_a_mismatch),
        cmocka_unit_test(a_malformed_hash_is_refused),
        cmocka_unit_test(a_body_without_a_canonical_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
