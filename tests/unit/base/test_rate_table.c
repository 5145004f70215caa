#include "base/rate_table.h"

#include "test.h"

static struct rate_table table;

static void open_table(uint64_t interval_ms, uint64_t burst, size_t count_max) {
    rate_table_init(&table, &(struct rate_options){interval_ms, burst, count_max});
}

static void a_key_takes_a_burst_and_then_one_an_interval(void **state) {
    (void)state;
    open_table(100, 3, 10);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rate_table_take(&table, SLICE("a"), 1000), 0);
    assert_int_equal(rate_table_take(&table, SLICE("a"), 1000), 100);
    assert_int_equal(rate_table_take(&table, SLICE("a"), 1060), 40);
    assert_int_equal(rate_table_take(&table, SLICE("b"), 1060), 0);
    assert_int_equal(rate_table_take(&table, SLICE("a"), 1100), 0);
    assert_int_equal(rate_table_take(&table, SLICE("a"), 1100), 100);
    /* After a pause the bucket is full, and no fuller. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(rate_table_take(&table, SLICE("a"), 9000), 0);
    assert_int_equal(rate_table_take(&table, SLICE("a"), 9000), 100);
    rate_table_release(&table);
}

static void over_any_time_a_key_takes_no_more_than_its_rate(void **state) {
    (void)state;
    uint64_t seed = 1;
    open_table(7, 5, 4);
    uint64_t now_ms = 1;
    uint64_t taken = 0;
    for (int i = 0; i < 20000; i++) {
        now_ms += test_random(&seed) % 4;
        taken += rate_table_take(&table, SLICE("a"), now_ms) == 0;
        assert_true(taken <= 5 + now_ms / 7 + 1);
    }
    assert_true(taken >= now_ms / 7 - 5);
    rate_table_release(&table);
}

static void a_charge_waits_for_its_turn_and_owes_a_bounded_time(void **state) {
    (void)state;
    open_table(100, 2, 10);
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(rate_table_charge(&table, SLICE("a"), 1000, 350), 0);
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(rate_table_charge(&table, SLICE("a"), 1000, 350), i * 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(rate_table_charge(&table, SLICE("a"), 1000, 350), 350);
    assert_true(rate_table_take(&table, SLICE("a"), 1350) > 0);
    assert_int_equal(rate_table_charge(&table, SLICE("a"), 1850, 350), 0);
    assert_int_equal(rate_table_charge(&table, SLICE("b"), 1850, 350), 0);
    rate_table_release(&table);
}

static void full_buckets_leave_and_the_table_is_bounded(void **state) {
    (void)state;
    open_table(100, 2, 50);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(rate_table_take(&table, (struct slice){(const char *)&i, sizeof(i)}, 1000),
                         0);
    assert_int_equal(rate_table_count(&table), 50);
    for (int i = 0; i < 50; i++)
        (void)rate_table_take(&table, SLICE("a"), 5000);
    assert_int_equal(rate_table_count(&table), 1);
    rate_table_release(&table);
    rate_table_release(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_takes_a_burst_and_then_one_an_interval),
        cmocka_unit_test(over_any_time_a_key_takes_no_more_than_its_rate),
        cmocka_unit_test(a_charge_waits_for_its_turn_and_owes_a_bounded_time),
        cmocka_unit_test(full_buckets_leave_and_the_table_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
