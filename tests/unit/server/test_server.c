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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_seen_by_a_loop_whose_clock_is_ahead_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
