/* The size of batches and the pauses between them. */
#include "retention/cycle.h"

#include "test.h"

static uint64_t note(struct pace *pace, uint64_t work, uint64_t ns, bool is_busy) {
    return pace_update(pace, &(struct pace_batch){work, ns, ns}, is_busy);
}

static void batches_converge_to_the_size_that_fits_their_time(void **state) {
    (void)state;
    static const uint64_t row_ns[] = {400, 2000, 10000, 50000};
    for (size_t i = 0; i < sizeof(row_ns) / sizeof(row_ns[0]); i++) {
        struct pace pace;
        pace_init(&pace, 250, 5000);
        for (int batch = 0; batch < 20; batch++)
            (void)note(&pace, pace.work_next, pace.work_next * row_ns[i], true);
        uint64_t fitting = PACE_BATCH_NS / row_ns[i];
        uint64_t wanted = fitting < 250 ? 250 : fitting > 5000 ? 5000 : fitting;
        assert_int_equal(pace.work_next, wanted);
    }
}

static void one_slow_batch_halves_the_next_at_most(void **state) {
    (void)state;
    struct pace pace;
    pace_init(&pace, 250, 5000);
    uint64_t before = pace.work_next;
    (void)note(&pace, before, 1000 * PACE_BATCH_NS, true);
    assert_int_equal(pace.work_next, before / 2);
    (void)note(&pace, pace.work_next, 1, true);
    assert_int_equal(pace.work_next, before);
}

static void a_small_quick_batch_does_not_change_the_size(void **state) {
    (void)state;
    struct pace pace;
    pace_init(&pace, 250, 5000);
    uint64_t before = pace.work_next;
    (void)note(&pace, 2, PACE_BATCH_NS / 2, true);
    assert_int_equal(pace.work_next, before);
}

static void a_slow_sync_lengthens_the_pause_and_not_the_batches(void **state) {
    (void)state;
    struct pace pace;
    pace_init(&pace, 250, 5000);
    uint64_t before = pace.work_next;
    const struct pace_batch batch = {before, PACE_BATCH_NS, 10 * PACE_BATCH_NS};
    assert_int_equal(pace_update(&pace, &batch, true), (PACE_SHARE - 1) * 10 * PACE_BATCH_NS);
    assert_int_equal(pace.work_next, before);
}

static void there_is_a_pause_only_while_appends_arrive(void **state) {
    (void)state;
    struct pace pace;
    pace_init(&pace, 250, 5000);
    assert_int_equal(note(&pace, 500, 2000000, false), 0);
    assert_int_equal(note(&pace, 500, 2000000, true), (PACE_SHARE - 1) * 2000000);
    assert_int_equal(note(&pace, 500, UINT64_C(60000000000), true), PACE_PAUSE_NS_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_converge_to_the_size_that_fits_their_time),
        cmocka_unit_test(one_slow_batch_halves_the_next_at_most),
        cmocka_unit_test(a_small_quick_batch_does_not_change_the_size),
        cmocka_unit_test(a_slow_sync_lengthens_the_pause_and_not_the_batches),
        cmocka_unit_test(there_is_a_pause_only_while_appends_arrive),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
