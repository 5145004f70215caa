#include "test.h"

#include "wire/http1_request.h"

static struct http1_header headers[] = {
    {{"Authorization", 13}, {"Bearer x", 8}},
    {{"Connection", 10}, {"keep-alive", 10}},
    {{"CONNECTION", 10}, {"foo,\t Upgrade ,,", 16}},
    {{"Empty", 5}, {"", 0}},
};
static const struct http1_request request = {.headers = headers, .header_count = 4};

static void fields_are_found_in_any_case(void **state) {
    (void)state;
    struct slice value;
    assert_true(http1_header_find(&request, SLICE("authorization"), &value));
    assert_slice(value, "Bearer x");
    assert_true(http1_header_find(&request, SLICE("connection"), &value));
    assert_slice(value, "keep-alive");
    assert_true(http1_header_find(&request, SLICE("eMPTY"), &value));
    assert_int_equal(value.size, 0);
    assert_false(http1_header_find(&request, SLICE("authorizatio"), &value));
    assert_false(http1_header_find(&request, SLICE("authorization2"), &value));
    assert_false(http1_header_find(&request, SLICE(""), &value));
}

static void lists_are_searched_over_all_their_lines(void **state) {
    (void)state;
    struct slice name = SLICE("connection");
    assert_true(http1_header_has_token(&request, name, SLICE("upgrade")));
    assert_true(http1_header_has_token(&request, name, SLICE("FOO")));
    assert_true(http1_header_has_token(&request, name, SLICE("keep-alive")));
    assert_false(http1_header_has_token(&request, name, SLICE("keep")));
    assert_false(http1_header_has_token(&request, name, SLICE("close")));
    assert_false(http1_header_has_token(&request, SLICE("upgrade"), SLICE("upgrade")));
    assert_false(http1_header_has_token(&request, SLICE("empty"), SLICE("x")));
}

static void escapes_are_decoded_strictly(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *decoded; /* NULL: refused */
    } rows[] = {
        {"", ""},       {"abc", "abc"},   {"a%20b", "a b"}, {"%41%4a%4A", "AJJ"},
        {"a+b", "a+b"}, {"%2525", "%25"}, {"%2F%2f", "//"}, {"%c3%A9%ff", "\xc3\xa9\xff"},
        {"%", NULL},    {"%4", NULL},     {"a%", NULL},     {"%g1", NULL},
        {"%1g", NULL},  {"%%41", NULL},   {"%00", NULL},    {"a%00b", NULL},
        {"% 1", NULL},  {"%+1", NULL},    {"%0x", NULL},    {"%@0", NULL},
        {"%`0", NULL},  {"%:0", NULL},    {"%/0", NULL},    {"%G0", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer out;
        buffer_init(&out, 16);
        assert_ok(buffer_append_byte(&out, '>'));
        enum status status = http1_percent_decode(slice_of(rows[i].text), &out);
        assert_int_equal(status, rows[i].decoded ? STATUS_OK : STATUS_BAD_REQUEST);
        assert_int_equal(out.data[0], '>');
        assert_slice(slice_from(buffer_slice(&out), 1), rows[i].decoded ? rows[i].decoded : "");
        buffer_release(&out);
    }
    struct buffer out;
    buffer_init(&out, 4);
    assert_int_equal(http1_percent_decode((struct slice){"a\0b", 3}, &out), STATUS_BAD_REQUEST);
    assert_int_equal(http1_percent_decode(SLICE("%41%42%43%44%45"), &out),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(out.size, 0);
    assert_ok(http1_percent_decode(SLICE("%41%42%43%44"), &out));
    assert_slice(buffer_slice(&out), "ABCD");
    buffer_release(&out);
}

static void query_parameters_are_found_decoded_and_once(void **state) {
    (void)state;
    static const struct {
        const char *query;
        const char *value; /* NULL: not there */
        enum status status;
    } rows[] = {
        {"", NULL, STATUS_OK},
        {"name=v", "v", STATUS_OK},
        {"a=1&name=x%20y+z&b=2", "x y z", STATUS_OK},
        {"name", "", STATUS_OK},
        {"name=", "", STATUS_OK},
        {"name=a=b", "a=b", STATUS_OK},
        {"&&name=1&&", "1", STATUS_OK},
        {"n%61me=1", "1", STATUS_OK},
        {"name=a%26b%3dc", "a&b=c", STATUS_OK},
        {"name%3d1", NULL, STATUS_OK},
        {"names=1", NULL, STATUS_OK},
        {"nam=1", NULL, STATUS_OK},
        {"Name=1", NULL, STATUS_OK},
        {"x=name=1", NULL, STATUS_OK},
        {"=name", NULL, STATUS_OK},
        {"name=1&name=1", NULL, STATUS_BAD_REQUEST},
        {"name=1&n%61me", NULL, STATUS_BAD_REQUEST},
        {"name=%zz", NULL, STATUS_BAD_REQUEST},
        {"name=%00", NULL, STATUS_BAD_REQUEST},
        {"name=1&x=%", NULL, STATUS_BAD_REQUEST},
        {"x=%4&name=1", NULL, STATUS_BAD_REQUEST},
        {"%=1&name=1", NULL, STATUS_BAD_REQUEST},
        {"x=%4&=1", NULL, STATUS_BAD_REQUEST},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer out;
        bool found;
        buffer_init(&out, 100);
        assert_int_equal(http1_query_find(slice_of(rows[i].query), SLICE("name"), &out, &found),
                         rows[i].status);
        if (rows[i].status == STATUS_OK)
            assert_int_equal(found, rows[i].value != NULL);
        assert_slice(buffer_slice(&out), rows[i].value ? rows[i].value : "");
        buffer_release(&out);
    }
}

static void the_names_of_a_query_are_read_one_by_one(void **state) {
    (void)state;
    struct slice query = SLICE("a=1&&b%5F+c&=x&d=%zz&%4");
    static const char *const names[] = {"a", "b_ c", "", "d"};
    struct buffer name;
    bool found;
    buffer_init(&name, 4);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        buffer_clear(&name);
        assert_ok(http1_query_next(&query, &name, &found));
        assert_true(found);
        assert_slice(buffer_slice(&name), names[i]);
    }
    assert_int_equal(http1_query_next(&query, &name, &found), STATUS_BAD_REQUEST);
    assert_ok(http1_query_next(&query, &name, &found));
    assert_false(found);
    struct slice longer = SLICE("abcde=1");
    buffer_clear(&name);
    assert_int_equal(http1_query_next(&longer, &name, &found), STATUS_BAD_REQUEST);
    buffer_release(&name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_found_in_any_case),
        cmocka_unit_test(lists_are_searched_over_all_their_lines),
        cmocka_unit_test(escapes_are_decoded_strictly),
        cmocka_unit_test(query_parameters_are_found_decoded_and_once),
        cmocka_unit_test(the_names_of_a_query_are_read_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
