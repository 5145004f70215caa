#include "base/clock.h"
#include "test.h"

#include <time.h>

static void time_does_not_change_between_ticks(void **state) {
    (void)state;
    struct clock_manual manual = {{1700000000123, 5 * CLOCK_NS_PER_MS + 999999}};
    struct clock clock;
    clock_init_source(&clock, &manual, clock_manual_read);
    assert_int_equal(clock_wall_ms(&clock), 1700000000123);
    assert_int_equal(clock_mono_ns(&clock), 5999999);
    assert_int_equal(clock_mono_ms(&clock), 5);
    clock_manual_advance_ms(&manual, 10);
    assert_int_equal(clock_wall_ms(&clock), 1700000000123);
    assert_int_equal(clock_mono_ms(&clock), 5);
    clock_tick(&clock);
    assert_int_equal(clock_wall_ms(&clock), 1700000000133);
    assert_int_equal(clock_mono_ns(&clock), 15999999);
}

static struct clock_reading count_reads(void *user) {
    int *count = user;
    ++*count;
    return (struct clock_reading){(uint64_t)*count, (uint64_t)*count};
}

static void only_a_tick_reads(void **state) {
    (void)state;
    int count = 0;
    struct clock clock;
    clock_init_source(&clock, &count, count_reads);
    assert_int_equal(count, 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(clock_wall_ms(&clock) + clock_mono_ns(&clock) + clock_mono_ms(&clock), 2);
    assert_int_equal(count, 1);
    clock_tick(&clock);
    assert_int_equal(count, 2);
}

static void wall_time_may_step_monotonic_time_may_not(void **state) {
    (void)state;
    struct clock_manual manual = {{5000, 700}};
    struct clock clock;
    clock_init_source(&clock, &manual, clock_manual_read);
    manual.reading = (struct clock_reading){4000, 699};
    clock_tick(&clock);
    assert_int_equal(clock_wall_ms(&clock), 4000);
    assert_int_equal(clock_mono_ns(&clock), 700);
    manual.reading = (struct clock_reading){9000, 701};
    clock_tick(&clock);
    assert_int_equal(clock_wall_ms(&clock), 9000);
    assert_int_equal(clock_mono_ns(&clock), 701);
}

static void the_system_clock_agrees_with_the_system(void **state) {
    (void)state;
    struct timespec before, after, mono;
    struct clock clock;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_REALTIME, &before);
    clock_init(&clock);
    clock_gettime(CLOCK_REALTIME, &after);
    uint64_t before_ms = (uint64_t)before.tv_sec * 1000 + (uint64_t)before.tv_nsec / 1000000;
    uint64_t after_ms = (uint64_t)after.tv_sec * 1000 + (uint64_t)after.tv_nsec / 1000000;
    assert_true(clock_wall_ms(&clock) >= before_ms && clock_wall_ms(&clock) <= after_ms);
    uint64_t mono_ns = (uint64_t)mono.tv_sec * 1000000000 + (uint64_t)mono.tv_nsec;
    assert_true(clock_mono_ns(&clock) >= mono_ns);
    assert_true(clock_mono_ns(&clock) < mono_ns + 60u * 1000000000u);
    for (int i = 0; i < 1000; i++) {
        uint64_t last_ns = clock_mono_ns(&clock);
        clock_tick(&clock);
        assert_true(clock_mono_ns(&clock) >= last_ns);
    }
}

static void a_moved_clock_is_ahead_by_the_offset(void **state) {
    (void)state;
    struct clock plain, moved;
    clock_init(&plain);
    clock_move_wall_ms(86400000);
    clock_init(&moved);
    clock_move_wall_ms(0);
    assert_true(clock_wall_ms(&moved) >= clock_wall_ms(&plain) + 86400000);
    assert_true(clock_wall_ms(&moved) < clock_wall_ms(&plain) + 86400000 + 60000);
    assert_true(clock_mono_ms(&moved) < clock_mono_ms(&plain) + 60000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_change_between_ticks),
        cmocka_unit_test(only_a_tick_reads),
        cmocka_unit_test(wall_time_may_step_monotonic_time_may_not),
        cmocka_unit_test(the_system_clock_agrees_with_the_system),
        cmocka_unit_test(a_moved_clock_is_ahead_by_the_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
