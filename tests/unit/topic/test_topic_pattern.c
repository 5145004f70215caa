#include "test.h"
#include "topic/topic_table.h"

static void matches_prefix_and_suffix_without_overlap(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        const char *name;
        const char *middle; /* NULL: no match */
    } cases[] = {
        {"run:*:events", "run:1:events", "1"},
        {"run:*:events", "run:a:b.c:events", "a:b.c"},
        {"run:*:events", "run::events", ""},
        {"run:*:events", "run:events", NULL},
        {"run:*:events", "run:1:event", NULL},
        {"run:*:events", " run:1:events", NULL},
        {"run:*:events", "run:1:events ", NULL},
        {"run:*:events", "RUN:1:events", NULL},
        {"run:*:events", "run:*:events", "*"},
        {"run:*:events", "run:events:events", "events"},
        {"run:*:events", "", NULL},
        {"run:*", "run:", ""},
        {"run:*", "run", NULL},
        {"run:*", "run:1", "1"},
        {"exact", "exact", ""},
        {"exact", "exactly", NULL},
        {"exact", "exac", NULL},
        {"exact", "", NULL},
        {"*", "", ""},
        {"*", "anything", "anything"},
        {"*x", "xx", "x"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct slice middle = SLICE("untouched");
        bool matched = topic_pattern_match(cases[i].pattern, slice_of(cases[i].name), &middle);
        assert_int_equal(matched, cases[i].middle != NULL);
        assert_slice(middle, cases[i].middle ? cases[i].middle : "untouched");
        assert_int_equal(topic_pattern_match(cases[i].pattern, slice_of(cases[i].name), NULL),
                         matched);
    }
}

static void a_name_with_a_null_pointer_is_empty(void **state) {
    (void)state;
    struct slice none = {NULL, 0};
    struct slice middle;
    assert_true(topic_pattern_match("*", none, &middle));
    assert_int_equal(middle.size, 0);
    assert_false(topic_pattern_match("run:*", none, &middle));
    assert_false(topic_pattern_match("run", none, &middle));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_prefix_and_suffix_without_overlap),
        cmocka_unit_test(a_name_with_a_null_pointer_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
