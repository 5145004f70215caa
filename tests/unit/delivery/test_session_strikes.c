#include "delivery/session/session.h"

#include "test.h"

#define LAG_MAX     300
#define STRIKES_MAX 3

struct seen {
    bool was_blocked;
    bool is_blocked;
    uint64_t sent_bytes;
    uint64_t lag;
};

static bool look(struct strikes *strikes, struct seen seen) {
    return strikes_check(strikes, &(struct strikes_sample){.was_blocked = seen.was_blocked,
                                                           .is_blocked = seen.is_blocked,
                                                           .sent_bytes = seen.sent_bytes,
                                                           .lag = seen.lag,
                                                           .lag_max = LAG_MAX,
                                                           .strikes_max = STRIKES_MAX});
}

static void a_stuck_socket_is_evicted_at_exactly_the_last_check(void **state) {
    (void)state;
    const uint64_t lags[] = {0, LAG_MAX, LAG_MAX + 1}; /* stuck with any lag */
    for (size_t i = 0; i < 3; i++) {
        struct strikes strikes = {0};
        assert_false(look(&strikes, (struct seen){true, true, 1000, lags[i]}));
        assert_int_equal(strikes.count, 0); /* it took a thousand bytes */
        for (uint64_t count = 1; count < STRIKES_MAX; count++) {
            assert_false(look(&strikes, (struct seen){true, true, 1000, lags[i]}));
            assert_int_equal(strikes.count, count);
        }
        assert_true(look(&strikes, (struct seen){true, true, 1000, lags[i]}));
        assert_int_equal(strikes.count, STRIKES_MAX);
    }
}

static void a_socket_that_never_took_a_byte_is_stuck_from_the_first_check(void **state) {
    (void)state;
    struct strikes strikes = {0};
    assert_false(look(&strikes, (struct seen){true, true, 0, 1}));
    assert_false(look(&strikes, (struct seen){true, true, 0, 1}));
    assert_true(look(&strikes, (struct seen){true, true, 0, 1}));
}

static void a_client_that_catches_up_from_far_behind_has_no_strike(void **state) {
    (void)state;
    struct strikes strikes = {0};
    uint64_t sent_bytes = 0;
    for (uint64_t lag = 20000; lag > 0; lag--) { /* by the smallest step there is */
        sent_bytes += 300;
        assert_false(look(&strikes, (struct seen){true, true, sent_bytes, lag}));
        assert_int_equal(strikes.count, 0);
    }
}

static void a_client_that_does_not_catch_up_is_evicted_after_the_strikes(void **state) {
    (void)state;
    for (uint64_t step = 0; step < 2; step++) { /* as far behind as before, or farther */
        struct strikes strikes = {0};
        uint64_t lag = LAG_MAX + 1;
        assert_false(look(&strikes, (struct seen){true, false, 100, lag}));
        for (uint64_t count = 1; count < STRIKES_MAX; count++) {
            lag += step;
            assert_false(look(&strikes, (struct seen){true, false, 100 + count, lag}));
            assert_int_equal(strikes.count, count);
        }
        assert_true(look(&strikes, (struct seen){true, false, 200, lag + step}));
    }
}

static void at_the_threshold_there_is_no_strike(void **state) {
    (void)state;
    struct strikes strikes = {0};
    for (uint64_t i = 1; i < 10; i++) {
        assert_false(look(&strikes, (struct seen){true, true, i, LAG_MAX}));
        assert_int_equal(strikes.count, 0);
    }
    assert_false(look(&strikes, (struct seen){true, true, 11, LAG_MAX + 1}));
    assert_int_equal(strikes.count, 1);
}

static void a_delay_of_the_server_is_no_strike(void **state) {
    (void)state;
    struct strikes strikes = {0};
    uint64_t lag = 20000;
    for (int i = 0; i < 10; i++, lag += 1000) { /* nothing sent, its socket free */
        assert_false(look(&strikes, (struct seen){false, false, 500, lag}));
        assert_int_equal(strikes.count, 0);
    }
}

static void a_check_without_a_strike_clears_the_earlier_ones(void **state) {
    (void)state;
    const struct seen well[] = {
        {true, true, 101, LAG_MAX - 1},   /* it takes bytes, and is not far behind */
        {true, true, 101, 4999},          /* it catches up */
        {false, false, 100, LAG_MAX * 9}, /* its socket was free all the time */
    };
    for (size_t i = 0; i < 3; i++) {
        struct strikes strikes = {.sent_bytes = 100, .lag = 5000, .has_sample = true};
        assert_false(look(&strikes, (struct seen){true, true, 100, 5000}));
        assert_false(look(&strikes, (struct seen){true, true, 100, 5000}));
        assert_int_equal(strikes.count, 2);
        assert_false(look(&strikes, well[i]));
        assert_int_equal(strikes.count, 0);
    }
}

static void a_single_strike_can_be_the_last(void **state) {
    (void)state;
    struct strikes strikes = {0};
    struct strikes_sample seen = {.lag_max = LAG_MAX, .strikes_max = 1};
    assert_false(strikes_check(&strikes, &seen));
    seen.is_blocked = true;
    assert_true(strikes_check(&strikes, &seen));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stuck_socket_is_evicted_at_exactly_the_last_check),
        cmocka_unit_test(a_socket_that_never_took_a_byte_is_stuck_from_the_first_check),
        cmocka_unit_test(a_client_that_catches_up_from_far_behind_has_no_strike),
        cmocka_unit_test(a_client_that_does_not_catch_up_is_evicted_after_the_strikes),
        cmocka_unit_test(at_the_threshold_there_is_no_strike),
        cmocka_unit_test(a_delay_of_the_server_is_no_strike),
        cmocka_unit_test(a_check_without_a_strike_clears_the_earlier_ones),
        cmocka_unit_test(a_single_strike_can_be_the_last),
    };
    return cmocka_run_group_tests_name("strikes", tests, NULL, NULL);
}
