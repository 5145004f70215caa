#include "topic/topic_name.h"

#include "base/utf8.h"
#include "test.h"

static void names_that_can_be_created(void **state) {
    (void)state;
    static const char *const names[] = {"a",
                                        "...",
                                        "..a",
                                        ".a",
                                        "a.",
                                        "a b",
                                        "run:1",
                                        "a\"b",
                                        "/",
                                        "~!@#$%^&()",
                                        "\xc3\xa9t\xc3\xa9",
                                        "\xe8\x87\xaa",
                                        "\xf0\x9f\x9a\x80"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_null(entity_name_problem(slice_of(names[i])));
}

static void names_that_cannot_be_created(void **state) {
    (void)state;
    static const struct {
        const char *name;
        const char *problem;
    } rows[] = {
        {"", "empty"},
        {"*", "'*'"},
        {"a*", "'*'"},
        {"*a", "'*'"},
        {"a:*:b", "'*'"},
        {".", "paths"},
        {"..", "paths"},
        {"a\n", "control"},
        {"a\x7f", "control"},
        {"a\xc2\x85z", "control"},
        {" a", "white space"},
        {"a ", "white space"},
        {"\xc2\xa0z", "white space"},
        {"a\xe3\x80\x80", "white space"},
        {"a\xe2\x80\xae", "reorder"},  /* U+202E */
        {"a\xe2\x81\xa6z", "reorder"}, /* U+2066 */
        {"\xd8\x9cz", "reorder"},      /* U+061C */
        {"a\xe2\x80\xa8z", "reorder"}, /* U+2028 */
        {"a\xef\xbb\xbfz", "reorder"}, /* U+FEFF */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *problem = entity_name_problem(slice_of(rows[i].name));
        if (!problem || !strstr(problem, rows[i].problem))
            fail_msg("row %zu: %s", i, problem ? problem : "no problem");
    }
}

static size_t encode(uint32_t code, char *bytes) {
    if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    bytes[0] = (char)(0xe0 | code >> 12);
    bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
    bytes[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

static void every_character_inside_a_name_is_judged(void **state) {
    (void)state;
    for (uint32_t code = 0x80; code < 0x10000; code++) {
        char name[6] = "a";
        if (code >= 0xd800 && code <= 0xdfff)
            continue;
        size_t size = encode(code, name + 1);
        name[1 + size] = 'z';
        bool is_bidi = code == 0x61c || code == 0x200e || code == 0x200f ||
                       (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
        bool is_other = code < 0xa0 || code == 0x2028 || code == 0x2029 || code == 0xfeff;
        struct slice text = {name, size + 2};
        assert_true(utf8_valid(text));
        if ((entity_name_problem(text) != NULL) != (is_bidi || is_other))
            fail_msg("U+%04X", (unsigned)code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_can_be_created),
        cmocka_unit_test(names_that_cannot_be_created),
        cmocka_unit_test(every_character_inside_a_name_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
