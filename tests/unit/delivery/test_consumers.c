#include "delivery/consumers.h"

#include "test.h"

static const struct consumers_options options = {
    .capacity = 3, .interval_ms_min = 250, .lag_max = 300, .strikes_max = 3};
static const struct consumer_key a = {SLICE("p"), SLICE("a"), SLICE("s")};
static const struct consumer_key b = {SLICE("p"), SLICE("b"), SLICE("s")};

static int setup(void **state) {
    return consumers_open((struct consumers **)state, &options) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
    consumers_close(*state);
    return 0;
}

/* A page that leaves the consumer at the head. */
static void serve_whole(struct consumers *consumers, const struct consumer_key *key) {
    struct consumer_state seen = {0};
    assert_ok(
        consumers_served(consumers, key, &(struct consumer_page){.is_complete = true}, &seen));
}

/* A page that leaves the consumer so far behind. */
static enum status serve_behind(struct consumers *consumers, uint64_t lag,
                                struct consumer_state *seen) {
    return consumers_served(consumers, &a, &(struct consumer_page){.lag = lag}, seen);
}

static void a_poll_too_soon_is_refused_and_does_not_prolong_the_wait(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    serve_whole(*state, &a);
    assert_int_equal(consumers_admit(*state, &a, 1100, &seen), STATUS_RATE_LIMITED);
    assert_int_equal(seen.retry_after_ms, 150);
    assert_int_equal(consumers_admit(*state, &a, 1249, &seen), STATUS_RATE_LIMITED);
    assert_int_equal(seen.retry_after_ms, 1);
    assert_ok(consumers_admit(*state, &a, 1250, &seen));
    assert_int_equal(consumers_admit(*state, &a, 1251, &seen), STATUS_RATE_LIMITED);
}

static void each_topic_of_each_principal_is_a_separate_consumer(void **state) {
    struct consumer_state seen = {0};
    const struct consumer_key other = {SLICE("q"), SLICE("a"), SLICE("s")};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    assert_int_equal(seen.active_topics, 1);
    assert_ok(consumers_admit(*state, &b, 1000, &seen));
    assert_int_equal(seen.active_topics, 2);
    assert_ok(consumers_admit(*state, &other, 1000, &seen));
    assert_int_equal(seen.active_topics, 1);
}

static void a_topic_not_polled_for_a_minute_is_not_active(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    assert_ok(consumers_admit(*state, &b, 1000 + CONSUMER_ACTIVE_MS, &seen));
    assert_int_equal(seen.active_topics, 2);
    assert_ok(consumers_admit(*state, &b, 1001 + CONSUMER_ACTIVE_MS + 250, &seen));
    assert_int_equal(seen.active_topics, 1);
}

static void the_consumer_that_polled_longest_ago_is_evicted(void **state) {
    struct consumer_state seen = {0};
    const struct consumer_key c = {SLICE("p"), SLICE("c"), SLICE("s")};
    const struct consumer_key d = {SLICE("p"), SLICE("d"), SLICE("s")};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    assert_ok(consumers_admit(*state, &b, 1000, &seen));
    assert_ok(consumers_admit(*state, &c, 1000, &seen));
    assert_ok(consumers_admit(*state, &a, 1300, &seen));
    serve_whole(*state, &a);
    serve_whole(*state, &b);
    assert_ok(consumers_admit(*state, &d, 1300, &seen));
    assert_int_equal(seen.active_topics, 3);
    assert_int_equal(consumers_admit(*state, &a, 1301, &seen), STATUS_RATE_LIMITED);
    assert_ok(consumers_admit(*state, &b, 1001, &seen));
}

static void a_consumer_behind_that_does_not_catch_up_gets_strikes(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    assert_ok(serve_behind(*state, 300, &seen)); /* at the threshold: no strike */
    assert_int_equal(seen.strikes, 0);
    assert_ok(serve_behind(*state, 301, &seen));
    assert_int_equal(seen.strikes, 1);
    assert_ok(serve_behind(*state, 301, &seen));
    assert_int_equal(seen.strikes, 2);
    assert_ok(serve_behind(*state, 10, &seen));
    assert_int_equal(seen.strikes, 0);
    assert_ok(serve_behind(*state, 400, &seen));
    assert_ok(serve_behind(*state, 500, &seen));
    assert_int_equal(serve_behind(*state, 600, &seen), STATUS_SLOW_CONSUMER_EVICTED);
    assert_int_equal(seen.strikes, 3);
    assert_ok(serve_behind(*state, 700, &seen));
    assert_int_equal(seen.strikes, 0);
}

static void a_consumer_that_catches_up_from_far_behind_gets_no_strike(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    for (uint64_t lag = 20000; lag > 300; lag -= 100) {
        assert_ok(serve_behind(*state, lag, &seen));
        assert_int_equal(seen.strikes, 0);
    }
}

static void a_lag_that_was_not_counted_to_its_end_is_judged_by_the_position(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    for (uint64_t seq = 100; seq < 1000; seq += 100) {
        const struct consumer_page page = {
            .lag = 300 + seq, .lag_is_minimum = true, .through_seq = seq};
        assert_ok(consumers_served(*state, &a, &page, &seen));
        assert_int_equal(seen.strikes, 0);
    }
    const struct consumer_page same = {.lag = 1200, .lag_is_minimum = true, .through_seq = 900};
    assert_ok(consumers_served(*state, &a, &same, &seen));
    assert_int_equal(seen.strikes, 1);
}

static void a_consumer_that_has_not_everything_polls_at_once(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    assert_ok(serve_behind(*state, 10, &seen));
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    serve_whole(*state, &a);
    assert_int_equal(consumers_admit(*state, &a, 1000, &seen), STATUS_RATE_LIMITED);
}

static void the_sessions_of_a_principal_do_not_limit_each_other(void **state) {
    struct consumer_state seen = {0};
    const struct consumer_key tab = {SLICE("p"), SLICE("a"), SLICE("tab")};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    serve_whole(*state, &a);
    assert_ok(consumers_admit(*state, &tab, 1000, &seen));
    assert_int_equal(seen.active_topics, 1); /* one topic in two sessions */
    assert_ok(consumers_admit(*state, &b, 1000, &seen));
    assert_int_equal(seen.active_topics, 2);
    assert_int_equal(consumers_admit(*state, &a, 1001, &seen), STATUS_RATE_LIMITED);
}

static void a_rejected_poll_leaves_the_time_to_wait(void **state) {
    struct consumer_state seen = {0};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    serve_whole(*state, &a);
    assert_ok(consumers_admit(*state, &a, 1250, &seen));
    consumers_rejected(*state, &a, &seen);
    assert_ok(consumers_admit(*state, &a, 1251, &seen));
    assert_int_equal(consumers_admit(*state, &a, 1252, &seen), STATUS_RATE_LIMITED);
}

static void a_bootstrap_is_no_strike(void **state) {
    struct consumer_state seen = {0};
    const struct consumer_page bootstrap = {.lag = 5000, .is_bootstrap = true};
    assert_ok(consumers_admit(*state, &a, 1000, &seen));
    for (int i = 0; i < 10; i++) {
        assert_ok(consumers_served(*state, &a, &bootstrap, &seen));
        assert_int_equal(seen.strikes, 0);
    }
    assert_ok(serve_behind(*state, 4900, &seen));
    assert_int_equal(seen.strikes, 0);
    assert_ok(serve_behind(*state, 4900, &seen));
    assert_int_equal(seen.strikes, 1);
}

static void the_threshold_of_a_topic_counts_if_it_is_the_larger_one(void **state) {
    struct consumer_state seen = {0};
    struct consumer_page page = {.lag = 12000, .lag_max = 12000};
    for (size_t i = 0; i < 2 * options.strikes_max; i++) {
        assert_ok(consumers_admit(*state, &a, 1000 * (i + 1), &seen));
        assert_ok(consumers_served(*state, &a, &page, &seen));
        assert_int_equal(seen.strikes, 0);
    }
    page.lag++;
    for (size_t i = 0; i < 2; i++) {
        assert_ok(consumers_admit(*state, &a, 1000 * (i + 20), &seen));
        assert_ok(consumers_served(*state, &a, &page, &seen));
        assert_int_equal(seen.strikes, i + 1);
    }
    assert_ok(consumers_admit(*state, &a, 30000, &seen));
    assert_int_equal(consumers_served(*state, &a, &page, &seen), STATUS_SLOW_CONSUMER_EVICTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_poll_too_soon_is_refused_and_does_not_prolong_the_wait,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_topic_not_polled_for_a_minute_is_not_active, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(each_topic_of_each_principal_is_a_separate_consumer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_consumer_that_polled_longest_ago_is_evicted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_consumer_behind_that_does_not_catch_up_gets_strikes,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_consumer_that_catches_up_from_far_behind_gets_no_strike,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_lag_that_was_not_counted_to_its_end_is_judged_by_the_position, setup, teardown),
        cmocka_unit_test_setup_teardown(a_consumer_that_has_not_everything_polls_at_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_sessions_of_a_principal_do_not_limit_each_other, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_rejected_poll_leaves_the_time_to_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bootstrap_is_no_strike, setup, teardown),
        cmocka_unit_test_setup_teardown(the_threshold_of_a_topic_counts_if_it_is_the_larger_one,
                                        setup, teardown),
    };
    return cmocka_run_group_tests_name("consumers", tests, NULL, NULL);
}
