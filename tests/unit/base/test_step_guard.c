/* Which time frames are judged by when the clock steps. */
#include "base/clock.h"

#include "test.h"

#define HOUR_MS ((uint64_t)3600000)

static struct clock_reading at;
static struct step_guard guard;

static int setup(void **state) {
    (void)state;
    at = (struct clock_reading){1700000000000, 5000000000};
    guard = (struct step_guard){0};
    return 0;
}

static struct step pass(uint64_t mono_ms, int64_t step_ms) {
    at.mono_ns += mono_ms * CLOCK_NS_PER_MS;
    at.wall_ms = (uint64_t)((int64_t)(at.wall_ms + mono_ms) + step_ms);
    return step_guard_read(&guard, at);
}

static void a_steady_clock_is_followed(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct step step = pass(60000, i % 2 ? 500 : -500);
        assert_int_equal(step.event, STEP_NONE);
        assert_int_equal(step.now_ms, at.wall_ms);
    }
}

static void slow_drift_is_never_a_step(void **state) {
    (void)state;
    uint64_t begun_ms = at.wall_ms;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(pass(60000, 5000).event, STEP_NONE);
    assert_int_equal(guard.judged_ms, begun_ms + (uint64_t)1000 * 65000);
}

static void a_step_forward_is_held_and_then_accepted(void **state) {
    (void)state;
    (void)pass(1000, 0);
    uint64_t before_ms = at.wall_ms;
    struct step step = pass(60000, (int64_t)(10 * HOUR_MS));
    assert_int_equal(step.event, STEP_FORWARD);
    assert_int_equal(step.step_ms, 10 * HOUR_MS);
    assert_int_equal(step.now_ms, before_ms + 60000);
    for (uint64_t held_ms = 60000; held_ms < STEP_GUARD_HOLD_MS; held_ms += 60000) {
        step = pass(60000, 0);
        assert_int_equal(step.event, STEP_NONE);
        assert_int_equal(step.now_ms, at.wall_ms - 10 * HOUR_MS);
    }
    step = pass(60000, 0);
    assert_int_equal(step.event, STEP_BELIEVED);
    assert_int_equal(step.now_ms, at.wall_ms);
    assert_int_equal(pass(60000, 0).event, STEP_NONE);
}

static void a_step_forward_that_is_reverted_is_ignored(void **state) {
    (void)state;
    (void)pass(1000, 0);
    assert_int_equal(pass(1000, (int64_t)HOUR_MS).event, STEP_FORWARD);
    struct step step = pass(1000, -(int64_t)HOUR_MS);
    assert_int_equal(step.event, STEP_RETURNED);
    assert_int_equal(step.now_ms, at.wall_ms);
    /* The next one has its own hour. */
    assert_int_equal(pass(1000, (int64_t)HOUR_MS).event, STEP_FORWARD);
    assert_int_equal(pass(STEP_GUARD_HOLD_MS - 1, 0).event, STEP_NONE);
    assert_int_equal(pass(1, 0).event, STEP_BELIEVED);
}

static void a_step_back_is_followed_at_once(void **state) {
    (void)state;
    (void)pass(1000, 0);
    struct step step = pass(1000, -(int64_t)(5 * HOUR_MS));
    assert_int_equal(step.event, STEP_BACK);
    assert_int_equal(step.step_ms, 5 * HOUR_MS);
    assert_int_equal(step.now_ms, at.wall_ms);
    assert_int_equal(pass(1000, 0).event, STEP_NONE);
}

static void a_step_back_during_a_hold_is_followed_too(void **state) {
    (void)state;
    (void)pass(1000, 0);
    assert_int_equal(pass(1000, (int64_t)HOUR_MS).event, STEP_FORWARD);
    assert_int_equal(pass(1000, -(int64_t)(3 * HOUR_MS)).event, STEP_BACK);
    assert_int_equal(guard.judged_ms, at.wall_ms);
    assert_false(guard.is_holding);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_steady_clock_is_followed, setup),
        cmocka_unit_test_setup(slow_drift_is_never_a_step, setup),
        cmocka_unit_test_setup(a_step_forward_is_held_and_then_accepted, setup),
        cmocka_unit_test_setup(a_step_forward_that_is_reverted_is_ignored, setup),
        cmocka_unit_test_setup(a_step_back_is_followed_at_once, setup),
        cmocka_unit_test_setup(a_step_back_during_a_hold_is_followed_too, setup),
    };
    return cmocka_run_group_tests_name("step_guard", tests, NULL, NULL);
}
