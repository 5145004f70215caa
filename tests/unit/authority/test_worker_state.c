#include "authority/entity_state.h"
#include "test.h"

static const bool allowed[WORKER_STATE_COUNT][WORKER_STATE_COUNT] = {
    /* to:    starting running stopping stopped failed */
    /* starting */ {true, true, true, false, true},
    /* running  */ {false, true, true, true, true},
    /* stopping */ {false, false, true, true, true},
    /* stopped  */ {true, true, false, true, false},
    /* failed   */ {true, true, false, false, true},
};

static void every_pair_of_states_has_its_result(void **state) {
    (void)state;
    for (unsigned from = 0; from < WORKER_STATE_COUNT; from++)
        for (unsigned to = 0; to < WORKER_STATE_COUNT; to++)
            assert_int_equal(worker_state_allows((enum worker_state)from, (enum worker_state)to),
                             allowed[from][to]);
}

static void every_state_is_found_by_its_name(void **state) {
    (void)state;
    static const char *const names[] = {"starting", "running", "stopping", "stopped", "failed"};
    enum worker_state parsed;
    for (unsigned i = 0; i < WORKER_STATE_COUNT; i++) {
        assert_string_equal(worker_state_name((enum worker_state)i), names[i]);
        assert_true(worker_state_parse(slice_of(names[i]), &parsed));
        assert_int_equal(parsed, i);
        assert_int_equal(worker_state_is_down((enum worker_state)i), i >= WORKER_STOPPED);
    }
    assert_false(worker_state_parse(SLICE("stop"), &parsed));
    assert_false(worker_state_parse(SLICE("runningx"), &parsed));
}

static void liveness_follows_the_heartbeat_and_the_state(void **state) {
    (void)state;
    struct store_entity worker = {.kind = ENTITY_WORKER, .status = SLICE("running")};
    assert_string_equal(worker_liveness(&worker, 1000), "missing");
    worker.last_heartbeat_at_ms = 1000;
    assert_string_equal(worker_liveness(&worker, 1000), "fresh");
    assert_string_equal(worker_liveness(&worker, 121000), "fresh");
    assert_string_equal(worker_liveness(&worker, 121001), "stale");
    assert_string_equal(worker_liveness(&worker, 0), "fresh");
    worker.status = SLICE("stopping");
    assert_string_equal(worker_liveness(&worker, 121001), "stale");
    worker.status = SLICE("stopped");
    assert_string_equal(worker_liveness(&worker, 1000), "stopped");
    worker.status = SLICE("failed");
    assert_string_equal(worker_liveness(&worker, 121001), "failed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_states_has_its_result),
        cmocka_unit_test(every_state_is_found_by_its_name),
        cmocka_unit_test(liveness_follows_the_heartbeat_and_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
