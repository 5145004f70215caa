#include "base/limits.h"
#include "server/limits_report.h"
#include "test.h"

static const struct limits_counts none = {0};

static void each_count_multiplies_the_bytes_of_its_rows(void **state) {
    (void)state;
    struct limits_report base = limits_report_of(&none);
    struct limits_report report =
        limits_report_of(&(struct limits_counts){.loops = 3, .pool_threads = 2});
    assert_int_equal(base.fixed_bytes, base.process_bytes);
    assert_int_equal(report.fixed_bytes,
                     base.process_bytes + 3 * base.loop_bytes + 2 * base.thread_bytes);
    report = limits_report_of(&(struct limits_counts){.shared_bytes_max = 1000});
    assert_int_equal(report.fixed_bytes, base.process_bytes + 1000);
    report =
        limits_report_of(&(struct limits_counts){.subscriptions_max = 2, .request_bytes_max = 100});
    uint64_t subscription_bytes = JOURNAL_READ_BYTES + WHERE_TEXT_BYTES_MAX;
    assert_int_equal(report.connection_bytes, base.connection_bytes + 100 + 2 * subscription_bytes);
    assert_int_equal(report.fixed_bytes, base.process_bytes);
}

static void rows_are_multiplied_by_their_count(void **state) {
    (void)state;
    struct limits_report report = limits_report_of(&none);
    assert_int_equal(report.thread_bytes,
                     SNAPSHOT_TEXT_BYTES_MAX + SNAPSHOT_OWNERS_BYTES_MAX +
                         SNAPSHOT_BUILD_ARENA_BYTES_MAX + JOURNAL_READ_ARENA_BYTES_MAX +
                         OWNERS_ARENA_BYTES_MAX + 2 * SQLITE_WALK_ARENA_BYTES_MAX);
    /* Of the kinds of requests only the largest counts: a push session. */
    assert_int_equal(report.connection_bytes,
                     CONN_OUT_BYTES_MAX + CONN_UNSENT_BYTES_MAX + 2 * TLS_OUT_BYTES_MAX +
                         ENTITLE_ARENA_BYTES_MAX + EXCHANGE_BODY_BYTES_MAX +
                         EXCHANGE_PARAMETER_BYTES_MAX + SESSION_REPLIES_BYTES_MAX +
                         SESSION_PUSH_BYTES + SESSION_PART_BYTES_MAX +
                         PHOENIX_SUBSCRIBE_ARENA_BYTES_MAX);
}

static void settings_determine_the_counts(void **state) {
    (void)state;
    const struct config config = {
        .io_loops = 3,
        .readers = 4,
        .subscriptions_max = 6,
        .request_head_bytes_max = 1000,
        .message_bytes_max = 20,
        .windows_bytes_max = 100,
        .writer_queue_bytes_max = 10,
        .batches_bytes_max = 1,
    };
    struct limits_counts counts = limits_counts_of(&config);
    assert_int_equal(counts.loops, 3);
    assert_int_equal(counts.pool_threads, 4);
    assert_int_equal(counts.subscriptions_max, 6);
    assert_int_equal(counts.request_bytes_max, 1000 + LOOP_READ_BYTES + 2 * 20);
    assert_int_equal(counts.shared_bytes_max, 111);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_count_multiplies_the_bytes_of_its_rows),
        cmocka_unit_test(rows_are_multiplied_by_their_count),
        cmocka_unit_test(settings_determine_the_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
