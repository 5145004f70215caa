#include "base/visible.h"

#include "test.h"

static const char *shown(struct slice text, enum visible_form form) {
    static char out[256];
    size_t size = 0;
    while (text.size > 0) {
        struct visible next = visible_next(text, form);
        assert_in_range(next.consumed, 1, text.size);
        assert_in_range(next.size, 1, VISIBLE_BYTES_MAX);
        memcpy(out + size, next.bytes, next.size);
        size += next.size;
        text = slice_from(text, next.consumed);
    }
    out[size] = '\0';
    return out;
}

static void text_stays_text(void **state) {
    (void)state;
    const char *plain = "run:a:events äß中\xf0\x9f\x8e\x89 {}~";
    assert_string_equal(shown(slice_of(plain), VISIBLE_TEXT), plain);
    assert_string_equal(shown(slice_of(plain), VISIBLE_JSON), plain);
}

static void line_ends_and_terminal_commands_are_escaped(void **state) {
    (void)state;
    static const struct {
        const char *given;
        const char *text;
        const char *json;
    } rows[] = {
        {"a\nb\r\t", "a\\nb\\r\\t", "a\\nb\\r\\t"},
        {"\x1b[2J\x7f\x01", "\\x1b[2J\\x7f\\x01", "\\u001b[2J\\u007f\\u0001"},
        {"\"\\", "\\\"\\\\", "\\\"\\\\"},
        {"\xc2\x9b"
         "31m",
         "\\u009b31m", "\\u009b31m"},
        {"\xe2\x80\xae"
         "x",
         "\\u202ex", "\\u202ex"},
        {"\xff\xc3", "\\xff\\xc3", "\\\\xff\\\\xc3"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\\\xed\\\\xa0\\\\x80"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(shown(slice_of(rows[i].given), VISIBLE_TEXT), rows[i].text);
        assert_string_equal(shown(slice_of(rows[i].given), VISIBLE_JSON), rows[i].json);
    }
}

static void a_word_cannot_be_read_as_two(void **state) {
    (void)state;
    assert_true(visible_is_word(SLICE("run:a:events")));
    static const char *const others[] = {"", "a b", "a=b", "a\"b", "a\\b", "a\n", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(visible_is_word(slice_of(others[i])));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays_text),
        cmocka_unit_test(line_ends_and_terminal_commands_are_escaped),
        cmocka_unit_test(a_word_cannot_be_read_as_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
