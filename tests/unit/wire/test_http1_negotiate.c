#include "wire/http1_negotiate.h"

#include "test.h"

static bool accepts(const char *first, const char *second) {
    struct http1_header headers[] = {{SLICE("Host"), SLICE("gzip")},
                                     {SLICE("accept-ENCODING"), slice_of(first ? first : "")},
                                     {SLICE("Accept-Encoding"), slice_of(second ? second : "")}};
    struct http1_request request = {.headers = headers, .header_count = first ? 3 : 1};
    return http1_accepts_gzip(&request);
}

static bool matches(const char *value, const char *etag) {
    struct http1_header headers[] = {{SLICE("If-None-Match"), slice_of(value)}};
    struct http1_request request = {.headers = headers, .header_count = 1};
    return http1_has_match(&request, slice_of(etag));
}

static void gzip_is_taken_when_named_and_wanted(void **state) {
    (void)state;
    static const char *const wanted[] = {
        "gzip",
        "GZip",
        "deflate, gzip",
        "br;q=1.0, gzip;q=0.001",
        "gzip ; q=1",
        "*",
        "*;q=0.5",
        "gzip;q=1.000",
        "identity;q=0, gzip",
        "gzip;x=y",
        "a,gzip",
        "gzip;Q=0.10",
        "x-gzip",
        "identity;q=0.5, gzip",
        "gzip, identity",
        "*;q=0, gzip;q=.1",
    };
    static const char *const refused[] = {
        "",
        "deflate",
        "gzip;q=0",
        "gzip;q=0.000",
        "*;q=0",
        "gzip;q=0, *",
        "gzip;q=-1",
        "gzip;q=1.0000",
        "gzip;q=nothing",
        "x-gzip-like",
        "gzip;q",
        "gzip;q=2",
        "gzip;q=1.5",
        "gzip;q=0.5, identity",
        "identity, *;q=0.9",
    };
    for (size_t i = 0; i + 1 < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!accepts(wanted[i], NULL))
            fail_msg("%s", wanted[i]);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (accepts(refused[i], NULL))
            fail_msg("%s", refused[i]);
    /* A weight needs its zero; and the name counts before the star. */
    assert_false(accepts(wanted[sizeof(wanted) / sizeof(wanted[0]) - 1], NULL));
    assert_false(accepts(NULL, NULL));
    assert_true(accepts("deflate", "gzip"));
    assert_false(accepts("gzip;q=0", "gzip"));
}

static void a_tag_that_is_listed_matches(void **state) {
    (void)state;
    assert_true(matches("\"a\"", "\"a\""));
    assert_true(matches("W/\"a\"", "\"a\""));
    assert_true(matches("\"b\" , W/\"c,d\",\"a\"", "\"a\""));
    assert_true(matches("\"b\",\"c,d\"", "\"c,d\""));
    assert_true(matches(" * ", "\"a\""));
    assert_true(matches("\"\"", "\"\""));
}

static void an_absent_tag_or_a_bad_list_does_not_match(void **state) {
    (void)state;
    assert_false(matches("", "\"a\""));
    assert_false(matches("a", "\"a\""));
    assert_false(matches("\"a", "\"a\""));
    assert_false(matches("\"ab\"", "\"a\""));
    assert_false(matches("\"b\" \"a\"", "\"a\""));
    assert_false(matches("*, \"b\"", "\"a\""));
    assert_false(matches("w/\"a\"", "\"a\""));
    assert_false(matches("\"b,\"a\"", "\"a\""));
    struct http1_request none = {.header_count = 0};
    assert_false(http1_has_match(&none, SLICE("\"a\"")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_is_taken_when_named_and_wanted),
        cmocka_unit_test(a_tag_that_is_listed_matches),
        cmocka_unit_test(an_absent_tag_or_a_bad_list_does_not_match),
    };
    return cmocka_run_group_tests_name("wire/http1_negotiate", tests, NULL, NULL);
}
