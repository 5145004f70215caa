#include "api/health.h"

#include "test.h"

static struct store_health health;

/* Each loop reads its clock at the start of its own turn. */
static void a_failure_noted_by_a_loop_with_a_later_clock_counts(void **state) {
    (void)state;
    assert_true(store_health_is_good(&health, 1000));
    store_health_note_at(&health, STATUS_STORE_UNAVAILABLE, 1000);
    assert_false(store_health_is_good(&health, 999));
    assert_false(store_health_is_good(&health, 1000));
    assert_false(store_health_is_good(&health, 5999));
    assert_true(store_health_is_good(&health, 100000));
    store_health_note_at(&health, STATUS_OK, 1001);
    assert_true(store_health_is_good(&health, 999));
}

static void a_lost_writer_role_counts_as_a_failure(void **state) {
    (void)state;
    store_health_note_at(&health, STATUS_WRITER_LOST, 1000);
    assert_false(store_health_is_good(&health, 1000));
    store_health_note_at(&health, STATUS_OK, 1001);
    assert_true(store_health_is_good(&health, 1001));
}

/* The store is unhealthy even if no append has failed. */
static void a_moved_store_is_unhealthy_until_it_is_back(void **state) {
    (void)state;
    store_health_note_at(&health, STATUS_OK, 1000);
    atomic_store(&health.is_moved, true);
    assert_false(store_health_is_good(&health, 100000));
    assert_int_equal(store_health_reason(&health, NULL), REASON_STORE_MOVED);
    atomic_store(&health.is_moved, false);
    assert_true(store_health_is_good(&health, 100000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_noted_by_a_loop_with_a_later_clock_counts),
        cmocka_unit_test(a_lost_writer_role_counts_as_a_failure),
        cmocka_unit_test(a_moved_store_is_unhealthy_until_it_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
