#include "test.h"
#include "topic/position.h"

#define EPOCH "0190c5b5-0000-7000-8000-000000000001"

static void a_position_is_a_seq_with_or_without_an_epoch(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t seq;
        const char *epoch;
    } rows[] = {
        {"0", 0, ""},
        {"12", 12, ""},
        {"9007199254740991", 9007199254740991u, ""},
        {"12@" EPOCH, 12, EPOCH},
        {"0@" EPOCH ".17", 0, EPOCH ".17"},
        {"1@a", 1, "a"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct position position;
        assert_ok(position_read(slice_of(rows[i].text), &position));
        assert_true(position.seq == rows[i].seq);
        assert_string_equal(position.epoch.text, rows[i].epoch);
    }
}

static void any_other_text_is_refused_and_changes_nothing(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "@",
        "@e",
        "12@",
        "-1",
        "+1",
        "01",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "1@a b",
        "1@a@",
        "1@\xc3\xa9",
        "1@a/b",
        "1@a\nb",
        "0x1@e",
        "twelve",
        "9007199254740992",
        "1@1234567890123456789012345678901234567890123456789012345678901234",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct position position = {.seq = 7, .epoch = {"e"}};
        assert_int_equal(position_read(slice_of(texts[i]), &position), STATUS_INVALID_CURSOR);
        assert_true(position.seq == 7);
        assert_string_equal(position.epoch.text, "e");
    }
}

static void a_written_position_is_read_again(void **state) {
    (void)state;
    char text[POSITION_BYTES_MAX];
    struct position position;
    struct topic_epoch longest;
    memset(longest.text, 'e', TOPIC_EPOCH_BYTES_MAX);
    longest.text[TOPIC_EPOCH_BYTES_MAX] = '\0';
    assert_slice(position_write(12, EPOCH, text), "12@" EPOCH);
    assert_ok(position_read(position_write(9007199254740991u, longest.text, text), &position));
    assert_true(position.seq == 9007199254740991u);
    assert_string_equal(position.epoch.text, longest.text);
}

static void an_epoch_without_a_number_has_the_number_0(void **state) {
    (void)state;
    static const struct {
        struct topic_epoch given;
        struct topic_epoch topic;
        bool continues;
    } rows[] = {
        {{"a"}, {"a"}, true},     {{"a"}, {"a.0"}, true},     {{"a.0"}, {"a"}, true},
        {{"a.1"}, {"a.1"}, true}, {{"a"}, {"a.1"}, false},    {{"a.0"}, {"a.1"}, false},
        {{"a.1"}, {"a"}, false},  {{"a.10"}, {"a.1"}, false}, {{"a"}, {"b"}, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(topic_epoch_continues(&rows[i].given, &rows[i].topic), rows[i].continues);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_position_is_a_seq_with_or_without_an_epoch),
        cmocka_unit_test(any_other_text_is_refused_and_changes_nothing),
        cmocka_unit_test(a_written_position_is_read_again),
        cmocka_unit_test(an_epoch_without_a_number_has_the_number_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
