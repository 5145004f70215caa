#include "base/utf8.h"
#include "test.h"

static const struct {
    const char *text;
    size_t size;
    bool valid;
} cases[] = {
    {"", 0, true},
    {"plain ascii, longer than a word", 31, true},
    {"\x00", 1, true},
    {"\xc3\xa9", 2, true},
    {"\xe2\x82\xac", 3, true},
    {"\xf0\x9f\x9a\x80", 4, true},
    {"\xf4\x8f\xbf\xbf", 4, true},
    {"12345678\xc3\xa9", 10, true},
    {"\x80", 1, false},
    {"\xc0\x80", 2, false},
    {"\xc1\xbf", 2, false},
    {"\xe0\x9f\xbf", 3, false},
    {"\xed\xa0\x80", 3, false},
    {"\xf0\x8f\xbf\xbf", 4, false},
    {"\xf4\x90\x80\x80", 4, false},
    {"\xf5\x80\x80\x80", 4, false},
    {"\xff", 1, false},
    {"\xe2\x82", 2, false},
    {"\xf0\x9f\x9a", 3, false},
    {"\xc3\x41", 2, false},
    {"\xe2\x82\x41", 3, false},
};

static void accepts_and_refuses(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(utf8_valid((struct slice){cases[i].text, cases[i].size}), cases[i].valid);
}

static void pieces_answer_as_the_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t cut = 0; cut <= cases[i].size; cut++) {
            struct utf8_state utf8 = {0};
            bool valid = utf8_feed(&utf8, cases[i].text, cut) &&
                         utf8_feed(&utf8, cases[i].text + cut, cases[i].size - cut) &&
                         utf8.missing == 0;
            assert_int_equal(valid, cases[i].valid);
        }
    }
}

static bool decode_is_valid(const uint8_t *bytes, size_t size) {
    size_t index = 0;
    while (index < size) {
        uint8_t lead = bytes[index];
        size_t width = lead < 0x80   ? 1
                       : lead < 0xc0 ? 0
                       : lead < 0xe0 ? 2
                       : lead < 0xf0 ? 3
                       : lead < 0xf8 ? 4
                                     : 0;
        if (width == 0 || index + width > size)
            return false;
        uint32_t code = width == 1 ? lead : lead & (0xffu >> (width + 1));
        for (size_t i = 1; i < width; i++) {
            if ((bytes[index + i] & 0xc0) != 0x80)
                return false;
            code = code << 6 | (bytes[index + i] & 0x3f);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (code < least[width] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
        index += width;
    }
    return true;
}

static void agrees_with_decoding_on_random_bytes(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 300000; round++) {
        uint8_t bytes[12];
        size_t size = test_random(&seed) % sizeof(bytes);
        for (size_t i = 0; i < size; i++) {
            uint64_t pick = test_random(&seed);
            bytes[i] = pick & 0x100 ? (uint8_t)(0x80 | (pick & 0x3f)) : (uint8_t)pick;
        }
        assert_int_equal(utf8_valid((struct slice){(char *)bytes, size}),
                         decode_is_valid(bytes, size));
    }
}

static void control_characters_are_seen(void **state) {
    (void)state;
    static const char *const with[] = {"\n", "a\x01", "\x7f", "\xc2\x80", "a\xc2\x9f"};
    static const char *const without[] = {"", "a b", "\xc2\xa0", "\xc3\x80", "\xe2\x80\x80"};
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++)
        assert_true(utf8_has_control(slice_of(with[i])));
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        assert_false(utf8_has_control(slice_of(without[i])));
    assert_true(utf8_has_control((struct slice){"a\0b", 3}));
}

static void white_space_is_seen_at_either_end(void **state) {
    (void)state;
    static const char *const spaces[] = {" ",
                                         "\t",
                                         "\xc2\x85",
                                         "\xc2\xa0",
                                         "\xe1\x9a\x80",
                                         "\xe2\x80\x80",
                                         "\xe2\x80\x8a",
                                         "\xe2\x80\xa8",
                                         "\xe3\x80\x80"};
    char text[16];
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        assert_int_equal(utf8_white_space_size(slice_of(spaces[i])), strlen(spaces[i]));
        assert_true(utf8_has_outer_space(slice_of(spaces[i])));
        (void)snprintf(text, sizeof(text), "%sa", spaces[i]);
        assert_true(utf8_has_outer_space(slice_of(text)));
        (void)snprintf(text, sizeof(text), "a%s", spaces[i]);
        assert_true(utf8_has_outer_space(slice_of(text)));
        (void)snprintf(text, sizeof(text), "a%sb", spaces[i]);
        assert_false(utf8_has_outer_space(slice_of(text)));
    }
    static const char *const others[] = {"", "a", "\xe2\x80\x8b", "\xe2\x80\xaa", "\xc2\xa1"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(utf8_has_outer_space(slice_of(others[i])));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_seen),
        cmocka_unit_test(white_space_is_seen_at_either_end),
        cmocka_unit_test(accepts_and_refuses),
        cmocka_unit_test(pieces_answer_as_the_whole),
        cmocka_unit_test(agrees_with_decoding_on_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
