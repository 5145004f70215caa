#include "server/server.h"

#include "test.h"

static struct server server;

/* Loops read their clocks at the beginning of their own turns. */
static void a_failure_seen_by_a_loop_whose_clock_is_ahead_counts(void **state) {
    (void)state;
    assert_true(server_store_works(&server, 1000));
    server_append_seen(&server, STATUS_STORE_UNAVAILABLE, 1000);
    assert_false(server_store_works(&server, 999));
    assert_false(server_store_works(&server, 1000));
    assert_false(server_store_works(&server, 5999));
    assert_true(server_store_works(&server, 100000));
    server_append_seen(&server, STATUS_OK, 1001);
    assert_true(server_store_works(&server, 999));
}

/* No append has to fail first. */
static void a_store_that_was_moved_does_not_work_until_it_is_back(void **state) {
    (void)state;
    server_append_seen(&server, STATUS_OK, 1000);
    atomic_store(&server.is_store_moved, true);
    assert_false(server_store_works(&server, 100000));
    assert_int_equal(server_store_reason(&server), REASON_STORE_MOVED);
    atomic_store(&server.is_store_moved, false);
    assert_true(server_store_works(&server, 100000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_seen_by_a_loop_whose_clock_is_ahead_counts),
        cmocka_unit_test(a_store_that_was_moved_does_not_work_until_it_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
