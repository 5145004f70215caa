#include "test.h"
#include "topic/topic_name.h"

static void accepts_names_without_changing_them(void **state) {
    (void)state;
    static const char *const names[] = {
        "a",
        " ",
        " run:1:events",
        "run:1:events ",
        "chat:room:7",
        "a.b",
        "\xc3\xa9t\xc3\xa9",
        "\xf0\x9f\x9a\x80",
        "\xc2\xa0",     /* the first character after C1 */
        "e\xcc\x81",    /* not normalised */
        "\xe2\x80\xa8", /* a separator, not a control character */
        "~!@#$%^&*()",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_ok(topic_name_check(slice_of(names[i])));
}

static void refuses_control_characters_everywhere(void **state) {
    (void)state;
    for (int code = 0; code < 0xa0; code++) {
        char name[5] = {'a', 0, 0, 'b', 0};
        size_t size;
        if (code < 0x80) {
            name[1] = (char)code;
            name[2] = 'b';
            size = 3;
        } else {
            name[1] = (char)0xc2;
            name[2] = (char)code;
            size = 4;
        }
        bool is_control = code < 0x20 || code >= 0x7f;
        assert_int_equal(topic_name_check((struct slice){name, size}),
                         is_control ? STATUS_INVALID_TOPIC : STATUS_OK);
        /* Also as the last character. */
        assert_int_equal(topic_name_check((struct slice){name, size - 1}),
                         is_control ? STATUS_INVALID_TOPIC : STATUS_OK);
    }
}

static void refuses_empty_names_and_invalid_utf8(void **state) {
    (void)state;
    static const char *const names[] = {"", "a\xc2", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\x80"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(topic_name_check(slice_of(names[i])), STATUS_INVALID_TOPIC);
    assert_int_equal(topic_name_check((struct slice){NULL, 0}), STATUS_INVALID_TOPIC);
}

static void accepts_at_most_512_bytes(void **state) {
    (void)state;
    char name[TOPIC_NAME_BYTES_MAX + 1];
    memset(name, 'x', sizeof(name));
    assert_ok(topic_name_check((struct slice){name, 512}));
    assert_int_equal(topic_name_check((struct slice){name, 513}), STATUS_INVALID_TOPIC);
    /* The limit counts bytes. */
    memcpy(name + 510, "\xc3\xa9", 2);
    assert_ok(topic_name_check((struct slice){name, 512}));
    memcpy(name + 511, "\xc3\xa9", 2);
    assert_int_equal(topic_name_check((struct slice){name, 512}), STATUS_INVALID_TOPIC);
}

static void topics_of_the_projector_are_recognised(void **state) {
    (void)state;
    static const char *const owned[] = {
        "run:1:events",  "run:",         "run:x",  "worker:1:lifecycle",
        "worker:",       "fleet:user:1", "fleet:", "runtime.run_summaries",
        "runtime.topic", "runtime.",
    };
    static const char *const free_to_use[] = {
        "",
        "run",
        "runs:1",
        "Run:1:events",
        " run:1:events",
        "runtime",
        "runtime:run_summaries",
        "worker.1.lifecycle",
        "workers:1",
        "fleet",
        "chat:run:1:events",
        "a",
    };
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        assert_true(topic_is_projection_owned(slice_of(owned[i])));
    for (size_t i = 0; i < sizeof(free_to_use) / sizeof(free_to_use[0]); i++)
        assert_false(topic_is_projection_owned(slice_of(free_to_use[i])));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_names_without_changing_them),
        cmocka_unit_test(refuses_control_characters_everywhere),
        cmocka_unit_test(refuses_empty_names_and_invalid_utf8),
        cmocka_unit_test(accepts_at_most_512_bytes),
        cmocka_unit_test(topics_of_the_projector_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
