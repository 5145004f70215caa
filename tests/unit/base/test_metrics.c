#include "base/metrics.h"

#include <pthread.h>

#include "test.h"
#include "topic/policy.h"

#define THREADS 4
#define ROUNDS  20000

/* One series of a family with at most two labels, over all threads. */
static uint64_t number_of(enum metric metric, unsigned first, unsigned second) {
    static uint64_t numbers[METRIC_SLOT_COUNT];
    const struct metric_row *row = metric_row(metric);
    metrics_read(numbers);
    return numbers[row->first_slot + first * (row->series_count / row->sizes[0]) + second];
}

static uint64_t appends(unsigned entity, enum status status) {
    return number_of(METRIC_APPENDS, entity, status);
}

static void each_series_counts_for_itself(void **state) {
    (void)state;
    uint64_t before = appends(0, STATUS_OK);
    uint64_t other = appends(1, STATUS_OK);
    uint64_t all = metrics_get_all(METRIC_APPENDS);
    metrics_add(METRIC_APPENDS, METRIC_LABELS(0, STATUS_OK), 2);
    metrics_add(METRIC_APPENDS, METRIC_LABELS(3, STATUS_COUNT - 1), 1);
    assert_int_equal(appends(0, STATUS_OK) - before, 2);
    assert_int_equal(appends(1, STATUS_OK), other);
    assert_int_equal(metrics_get_all(METRIC_APPENDS) - all, 3);
}

static void *add_and_take(void *unused) {
    (void)unused;
    for (size_t i = 0; i < ROUNDS; i++) {
        metrics_add(METRIC_APPEND_EVENTS, METRIC_PLAIN, 1);
        metrics_add(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(LABEL_DIALECT_SSE), 1);
        metrics_sub(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(LABEL_DIALECT_SSE), 1);
    }
    return NULL;
}

static void threads_add_up_also_after_they_end(void **state) {
    (void)state;
    uint64_t last = metrics_get_all(METRIC_APPEND_EVENTS);
    uint64_t before = last;
    for (size_t round = 0; round < 2; round++) {
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, add_and_take, NULL), 0);
        for (size_t i = 0; i < 100; i++) {
            uint64_t now = metrics_get_all(METRIC_APPEND_EVENTS);
            assert_true(now >= last);
            last = now;
        }
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    assert_int_equal(metrics_get_all(METRIC_APPEND_EVENTS) - before, 2 * THREADS * ROUNDS);
    assert_int_equal(number_of(METRIC_SYNC_SOCKET_CONNECTIONS, LABEL_DIALECT_SSE, 0), 0);
}

static void *take_one(void *unused) {
    (void)unused;
    metrics_sub(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(LABEL_DIALECT_PHOENIX), 1);
    return NULL;
}

static void a_gauge_may_be_taken_from_on_another_thread(void **state) {
    (void)state;
    pthread_t thread;
    metrics_add(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(LABEL_DIALECT_PHOENIX), 3);
    assert_int_equal(pthread_create(&thread, NULL, take_one, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(number_of(METRIC_SYNC_SOCKET_CONNECTIONS, LABEL_DIALECT_PHOENIX, 0), 2);
}

static void a_set_gauge_has_the_last_value(void **state) {
    (void)state;
    metrics_set(METRIC_STORE_QUEUE_BYTES, METRIC_PLAIN, 9);
    metrics_set(METRIC_STORE_QUEUE_BYTES, METRIC_PLAIN, 4);
    assert_int_equal(metrics_get_all(METRIC_STORE_QUEUE_BYTES), 4);
}

static void a_bound_is_the_last_value_of_its_bucket(void **state) {
    (void)state;
    static uint64_t before[METRIC_SLOT_COUNT];
    static uint64_t after[METRIC_SLOT_COUNT];
    const struct metric_row *row = metric_row(METRIC_STORE_COMMIT_EVENTS);
    metrics_read(before);
    metrics_observe(METRIC_STORE_COMMIT_EVENTS, METRIC_PLAIN, 0, 1);
    metrics_observe(METRIC_STORE_COMMIT_EVENTS, METRIC_PLAIN, 1, 1);
    metrics_observe(METRIC_STORE_COMMIT_EVENTS, METRIC_PLAIN, 3, 5);
    metrics_observe(METRIC_STORE_COMMIT_EVENTS, METRIC_PLAIN, 4, 1);
    metrics_observe(METRIC_STORE_COMMIT_EVENTS, METRIC_PLAIN, UINT32_MAX, 1);
    metrics_read(after);
    const uint64_t *was = before + row->first_slot;
    const uint64_t *is = after + row->first_slot;
    assert_int_equal(is[0] - was[0], 2);
    assert_int_equal(is[1] - was[1], 0);
    assert_int_equal(is[2] - was[2], 6);
    assert_int_equal(is[row->buckets->count] - was[row->buckets->count], 1);
    assert_int_equal(is[row->buckets->count + 1] - was[row->buckets->count + 1],
                     0 + 1 + 15 + 4 + (uint64_t)UINT32_MAX);
}

static void labels_are_called_what_their_enums_are(void **state) {
    (void)state;
    const struct metric_row *frames = metric_row(METRIC_FANOUT_FRAMES);
    const struct metric_row *denials = metric_row(METRIC_AUTH_DENIALS);
    const struct metric_row *drift = metric_row(METRIC_KHALA_PROJECTION_DRIFT);
    assert_int_equal(frames->sizes[1], TOPIC_CLASS_COUNT);
    for (unsigned i = 0; i < TOPIC_CLASS_DECLARED; i++) {
        assert_string_equal(frames->labels[1].values[i], topic_class_name((enum topic_class)i));
        assert_string_equal(denials->labels[1].values[i], topic_class_name((enum topic_class)i));
    }
    assert_string_equal(denials->labels[1].values[TOPIC_CLASS_COUNT], "none");
    for (unsigned i = 0; i < STATUS_COUNT; i++)
        assert_string_equal(denials->labels[0].values[i], status_code((enum status)i));
    for (unsigned i = 0; i < drift->sizes[0]; i++)
        assert_string_equal(drift->labels[0].values[i], reason_code((enum reason)i));
    const struct metric_row *closed = metric_row(METRIC_SYNC_SOCKET_CLOSED);
    const struct metric_row *deleted = metric_row(METRIC_SYNC_RETENTION_TOPIC_DELETED);
    for (unsigned i = 0; i < POLICY_ROW_COUNT; i++) {
        const struct policy *policy = policy_default((enum policy_row)i);
        assert_string_equal(deleted->labels[3].values[policy->topic_class],
                            policy_has_snapshot(policy) ? "true" : "false");
    }
    assert_string_equal(closed->labels[1].values[label_close_code(CLOSE_SLOW_CONSUMER)], "4000");
    assert_string_equal(closed->labels[1].values[label_close_code(0)], "none");
    const struct metric_row *requests = metric_row(METRIC_HTTP_REQUESTS);
    assert_string_equal(requests->labels[1].values[label_http_status(410)], "410");
    assert_string_equal(requests->labels[1].values[label_http_status(299)], "other");
}

/* Every HTTP status that a status maps to has a label of its own. */
static void every_http_status_of_the_table_is_known(void **state) {
    (void)state;
    unsigned other = label_http_status(0);
    for (unsigned i = 0; i < STATUS_COUNT; i++)
        assert_int_not_equal(label_http_status((unsigned)status_http((enum status)i)), other);
}

static void no_two_series_share_a_number(void **state) {
    (void)state;
    size_t next = 0;
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        const struct metric_row *row = metric_row((enum metric)i);
        size_t series = 1;
        for (size_t j = 0; j < METRIC_POSITIONS_MAX; j++)
            series *= row->sizes[j];
        assert_int_equal(row->first_slot, next);
        assert_int_equal(row->series_count, series);
        next += series * row->series_slots;
    }
    assert_int_equal(next, METRIC_SLOT_COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_series_counts_for_itself),
        cmocka_unit_test(threads_add_up_also_after_they_end),
        cmocka_unit_test(a_gauge_may_be_taken_from_on_another_thread),
        cmocka_unit_test(a_set_gauge_has_the_last_value),
        cmocka_unit_test(a_bound_is_the_last_value_of_its_bucket),
        cmocka_unit_test(labels_are_called_what_their_enums_are),
        cmocka_unit_test(every_http_status_of_the_table_is_known),
        cmocka_unit_test(no_two_series_share_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
