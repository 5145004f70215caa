/* The rules by themselves: several are held by http-parser too, which must not be what hides
 * that ours has gone. */
#include "test.h"

#include "wire/http1_syntax.h"

static void a_field_line_takes_no_other_byte(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char line[] = "Ab: cd";
        bool in_name =
            byte == ':' || (byte > ' ' && byte < 0x7f && !strchr("\"(),/;<=>?@[\\]{}", byte));
        bool in_value = byte == '\t' || (byte >= ' ' && byte != 0x7f);
        line[1] = (char)byte;
        assert_int_equal(http1_check_field_line(SLICE(line)),
                         in_name ? STATUS_OK : STATUS_BAD_REQUEST);
        line[1] = 'b';
        line[4] = (char)byte;
        assert_int_equal(http1_check_field_line(SLICE(line)),
                         in_value ? STATUS_OK : STATUS_BAD_REQUEST);
    }
    assert_int_equal(http1_check_field_line(SLICE("Ab")), STATUS_BAD_REQUEST);
    assert_int_equal(http1_check_field_line(SLICE(":")), STATUS_BAD_REQUEST);
    assert_ok(http1_check_field_line(SLICE("A:")));
}

static void a_request_line_takes_no_other_byte(void **state) {
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char line[] = "GET /a HTTP/1.1";
        bool in_target = byte > ' ' && byte < 0x7f && !strchr("\"#<>", byte);
        bool in_method = in_target && !strchr("(),/:;=?@[\\]{}", byte);
        line[5] = (char)byte;
        assert_int_equal(http1_check_request_line(SLICE(line)),
                         in_target ? STATUS_OK : STATUS_BAD_REQUEST);
        line[5] = 'a';
        line[1] = (char)byte;
        assert_int_equal(http1_check_request_line(SLICE(line)),
                         in_method || byte == '#' ? STATUS_OK : STATUS_BAD_REQUEST);
    }
}

static void digits_are_digits(void **state) {
    (void)state;
    assert_true(http1_is_digits(SLICE("0123456789")));
    static const char *const others[] = {"", "+1", "-1", "1 ", " 1", "1,1", "0x1", "/", ":", "a"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(http1_is_digits(slice_of(others[i])));
}

static void only_chunked_is_a_transfer_encoding(void **state) {
    (void)state;
    static const struct {
        const char *value;
        enum status status;
    } rows[] = {
        {"chunked", STATUS_OK},
        {"CHUNKED", STATUS_OK},
        {"gzip, chunked", STATUS_UNSUPPORTED_TRANSFER_ENCODING},
        {"a , b,chunked", STATUS_UNSUPPORTED_TRANSFER_ENCODING},
        {"", STATUS_BAD_REQUEST},
        {",chunked", STATUS_BAD_REQUEST},
        {"chunked,", STATUS_BAD_REQUEST},
        {"chunked,chunked", STATUS_BAD_REQUEST},
        {"chunked, gzip", STATUS_BAD_REQUEST},
        {"chunked, gzip, chunked", STATUS_BAD_REQUEST},
        {"gzip", STATUS_BAD_REQUEST},
        {"chunke", STATUS_BAD_REQUEST},
        {"chunked x", STATUS_BAD_REQUEST},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(http1_check_transfer_encoding(slice_of(rows[i].value)), rows[i].status);
}

static void splitting_tells_an_end_from_an_empty_rest(void **state) {
    (void)state;
    struct slice text = SLICE("a,,b,");
    assert_slice(http1_split(&text, ','), "a");
    assert_slice(http1_split(&text, ','), "");
    assert_slice(http1_split(&text, ','), "b");
    assert_non_null(text.data);
    assert_slice(http1_split(&text, ','), "");
    assert_null(text.data);
    assert_slice(http1_split(&text, ','), "");
    assert_slice(http1_trim(SLICE(" \t a \t b\t ")), "a \t b");
    assert_slice(http1_trim(SLICE(" \t ")), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_line_takes_no_other_byte),
        cmocka_unit_test(a_request_line_takes_no_other_byte),
        cmocka_unit_test(digits_are_digits),
        cmocka_unit_test(only_chunked_is_a_transfer_encoding),
        cmocka_unit_test(splitting_tells_an_end_from_an_empty_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
