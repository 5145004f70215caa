/* The times at which topics are due. */
#include "retention/cycle.h"

#include "test.h"

static void a_topic_that_was_never_set_is_due(void **state) {
    (void)state;
    struct due due = {0};
    assert_true(due_is(&due, 1, 0));
    assert_true(due_is(&due, UINT64_MAX, 0));
    assert_int_equal(due_next(&due, 1, 10, 5), 1);
    assert_int_equal(due_run(&due, 1, 256, 5), 256);
    due_set(&due, 70000, 9);
    assert_true(due_is(&due, 69999, 0));
    assert_false(due_is(&due, 70000, 8));
    assert_true(due_is(&due, 70000, 9));
    due_clear(&due);
}

static void topics_that_are_not_due_are_skipped(void **state) {
    (void)state;
    struct due due = {0};
    for (uint64_t ref = 1; ref <= 5000; ref++)
        due_set(&due, ref, ref % 100 == 0 ? 10 : 20);
    assert_int_equal(due_next(&due, 1, 5000, 9), 5001);
    assert_int_equal(due_next(&due, 1, 5000, 10), 100);
    assert_int_equal(due_run(&due, 100, 256, 10), 1);
    assert_int_equal(due_next(&due, 101, 5000, 10), 200);
    assert_int_equal(due_run(&due, 1, 256, 20), 256);
    due_clear(&due);
    assert_int_equal(due_next(&due, 1, 5000, 0), 1);
    due_clear(&due);
}

static void a_ref_above_the_maximum_is_always_due(void **state) {
    (void)state;
    struct due due = {0};
    due_set(&due, UINT64_MAX, 100);
    assert_true(due_is(&due, UINT64_MAX, 1));
    assert_int_equal(due.capacity, 0);
    due_clear(&due);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topic_that_was_never_set_is_due),
        cmocka_unit_test(topics_that_are_not_due_are_skipped),
        cmocka_unit_test(a_ref_above_the_maximum_is_always_due),
    };
    return cmocka_run_group_tests_name("due", tests, NULL, NULL);
}
