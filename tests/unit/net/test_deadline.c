#include "net/deadline.h"

#include <stdlib.h>
#include <time.h>

#include "test.h"

static void queue_open(struct deadline_queue *queue) {
    deadline_queue_init(queue);
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++)
        deadline_queue_define(queue, (enum deadline_kind)kind, 1000, NULL);
    deadline_queue_define(queue, DEADLINE_REQUEST, 100, NULL);
}

/* Sets the deadline with its kind's usual delay, as a loop does. */
static void set_usual(struct deadline_queue *queue, struct deadline *deadline,
                      enum deadline_kind kind, uint64_t now_ms) {
    deadline_set_at(queue, deadline, kind, now_ms + queue->kinds[kind].delay_ms);
}

static void an_empty_queue_has_no_next_deadline(void **state) {
    (void)state;
    struct deadline_queue queue;
    queue_open(&queue);
    assert_true(deadline_next_ms(&queue) == UINT64_MAX);
    assert_null(deadline_expired(&queue, UINT64_MAX));
}

static void a_deadline_passes_once_at_its_millisecond(void **state) {
    (void)state;
    struct deadline_queue queue;
    struct deadline deadline = {0};
    queue_open(&queue);
    set_usual(&queue, &deadline, DEADLINE_REQUEST, 5000);
    assert_int_equal(deadline_next_ms(&queue), 5100);
    assert_null(deadline_expired(&queue, 5099));
    assert_ptr_equal(deadline_expired(&queue, 5100), &deadline);
    assert_int_equal(deadline.kind, DEADLINE_REQUEST);
    assert_null(deadline_expired(&queue, 9999));
    assert_true(deadline_next_ms(&queue) == UINT64_MAX);
}

static void deadlines_of_a_kind_pass_in_the_order_they_were_set(void **state) {
    (void)state;
    struct deadline_queue queue;
    struct deadline deadlines[3] = {0};
    queue_open(&queue);
    for (uint64_t i = 0; i < 3; i++)
        set_usual(&queue, &deadlines[i], DEADLINE_REQUEST, i);
    for (uint64_t i = 0; i < 3; i++)
        assert_ptr_equal(deadline_expired(&queue, 1000), &deadlines[i]);
}

static void setting_a_deadline_again_moves_it_even_to_another_kind(void **state) {
    (void)state;
    struct deadline_queue queue;
    struct deadline first = {0};
    struct deadline second = {0};
    queue_open(&queue);
    set_usual(&queue, &first, DEADLINE_REQUEST, 10);
    set_usual(&queue, &second, DEADLINE_REQUEST, 20);
    set_usual(&queue, &first, DEADLINE_REQUEST, 30);
    assert_int_equal(deadline_next_ms(&queue), 120);
    set_usual(&queue, &second, DEADLINE_IDLE, 40);
    assert_int_equal(deadline_next_ms(&queue), 130);
    assert_ptr_equal(deadline_expired(&queue, 130), &first);
    assert_null(deadline_expired(&queue, 1039));
    assert_ptr_equal(deadline_expired(&queue, 1040), &second);
}

static void a_dropped_deadline_never_passes_and_may_be_dropped_again(void **state) {
    (void)state;
    struct deadline_queue queue;
    struct deadline deadlines[3] = {0};
    queue_open(&queue);
    deadline_drop(&deadlines[0]);
    for (int i = 0; i < 3; i++)
        set_usual(&queue, &deadlines[i], DEADLINE_IDLE, 1);
    deadline_drop(&deadlines[1]);
    deadline_drop(&deadlines[1]);
    assert_ptr_equal(deadline_expired(&queue, 5000), &deadlines[0]);
    assert_ptr_equal(deadline_expired(&queue, 5000), &deadlines[2]);
    assert_null(deadline_expired(&queue, 5000));
}

static void the_earliest_deadline_of_all_kinds_is_next(void **state) {
    (void)state;
    struct deadline_queue queue;
    struct deadline idle = {0};
    struct deadline request = {0};
    queue_open(&queue);
    set_usual(&queue, &idle, DEADLINE_IDLE, 0);
    set_usual(&queue, &request, DEADLINE_REQUEST, 950);
    assert_int_equal(deadline_next_ms(&queue), 1000);
    assert_ptr_equal(deadline_expired(&queue, 1000), &idle);
    assert_int_equal(deadline_next_ms(&queue), 1050);
}

/* Compares many random operations with a plain array of times. */
static void random_deadlines_match_a_plain_array(void **state) {
    (void)state;
    enum { COUNT = 50 };
    struct deadline_queue queue;
    struct deadline deadlines[COUNT] = {0};
    uint64_t at_ms[COUNT] = {0};
    uint64_t seed = 7;
    queue_open(&queue);
    for (uint64_t now_ms = 1; now_ms < 20000; now_ms += test_random(&seed) % 3) {
        size_t chosen = test_random(&seed) % COUNT;
        enum deadline_kind kind = (enum deadline_kind)(test_random(&seed) % DEADLINE_KIND_COUNT);
        if (test_random(&seed) % 4 == 0) {
            deadline_drop(&deadlines[chosen]);
            at_ms[chosen] = 0;
        } else {
            set_usual(&queue, &deadlines[chosen], kind, now_ms);
            at_ms[chosen] = now_ms + queue.kinds[kind].delay_ms;
        }
        struct deadline *passed;
        while ((passed = deadline_expired(&queue, now_ms))) {
            size_t index = (size_t)(passed - deadlines);
            assert_in_range(at_ms[index], 1, now_ms);
            at_ms[index] = 0;
        }
        uint64_t earliest = UINT64_MAX;
        for (size_t i = 0; i < COUNT; i++)
            if (at_ms[i] != 0 && at_ms[i] < earliest)
                earliest = at_ms[i];
        assert_true(earliest > now_ms);
        assert_true(deadline_next_ms(&queue) == earliest);
    }
}

static void deadlines_with_different_delays_are_kept_in_order(void **state) {
    (void)state;
    struct deadline_queue queue;
    struct deadline late = {0};
    struct deadline soon = {0};
    struct deadline between = {0};
    deadline_queue_init(&queue);
    deadline_set_at(&queue, &late, DEADLINE_WAIT, 300);
    deadline_set_at(&queue, &soon, DEADLINE_WAIT, 100);
    deadline_set_at(&queue, &between, DEADLINE_WAIT, 200);
    assert_int_equal(deadline_next_ms(&queue), 100);
    assert_ptr_equal(deadline_expired(&queue, 300), &soon);
    assert_ptr_equal(deadline_expired(&queue, 300), &between);
    assert_ptr_equal(deadline_expired(&queue, 300), &late);
    assert_null(deadline_expired(&queue, 300));
}

/* CPU time for setting and expiring that many deadlines. step: between the times of two deadlines
 * that are set one after the other; they wrap around at count. */
static double seconds_of(struct deadline *deadlines, uint64_t count, uint64_t step) {
    struct deadline_queue queue;
    clock_t start = clock();
    deadline_queue_init(&queue);
    for (uint64_t i = 0; i < count; i++)
        deadline_set_at(&queue, &deadlines[i], DEADLINE_WAIT, 1 + i * step % count);
    uint64_t last_ms = 0;
    for (uint64_t i = 0; i < count; i++) {
        const struct deadline *passed = deadline_expired(&queue, count);
        assert_non_null(passed);
        uint64_t at_ms = 1 + (uint64_t)(passed - deadlines) * step % count;
        assert_int_equal(at_ms, last_ms + 1);
        last_ms = at_ms;
    }
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* A list would need up to 50 000 steps for each of them, some thousand times as many. */
static void deadlines_in_any_order_cost_about_as_much_as_deadlines_in_order(void **state) {
    (void)state;
    enum { COUNT = 50000 };
    struct deadline *deadlines = calloc(COUNT, sizeof(*deadlines));
    assert_non_null(deadlines);
    double in_order = seconds_of(deadlines, COUNT, 1);
    double backwards = seconds_of(deadlines, COUNT, COUNT - 1);
    double mixed = seconds_of(deadlines, COUNT, 20011);
    print_message("in order %.4f s, backwards %.4f s, mixed %.4f s\n", in_order, backwards, mixed);
    assert_true(backwards < 50 * in_order + 0.05);
    assert_true(mixed < 50 * in_order + 0.05);
    free(deadlines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_in_any_order_cost_about_as_much_as_deadlines_in_order),
        cmocka_unit_test(deadlines_with_different_delays_are_kept_in_order),
        cmocka_unit_test(an_empty_queue_has_no_next_deadline),
        cmocka_unit_test(a_deadline_passes_once_at_its_millisecond),
        cmocka_unit_test(deadlines_of_a_kind_pass_in_the_order_they_were_set),
        cmocka_unit_test(setting_a_deadline_again_moves_it_even_to_another_kind),
        cmocka_unit_test(a_dropped_deadline_never_passes_and_may_be_dropped_again),
        cmocka_unit_test(the_earliest_deadline_of_all_kinds_is_next),
        cmocka_unit_test(random_deadlines_match_a_plain_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
