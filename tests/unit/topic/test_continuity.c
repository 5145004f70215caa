#include "topic/continuity.h"
#include "vectors.h"

static void check_json(const struct continuity *plan, const char *expected) {
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(continuity_write_json(&out, plan));
    assert_slice(buffer_slice(&out), expected);
    buffer_release(&out);
}

static void check_plan(struct topic_window window, uint64_t after_seq, bool epoch_differs,
                       const char *expected) {
    struct continuity plan = continuity_plan(&window, after_seq, epoch_differs);
    check_json(&plan, expected);
}

static void decisions_match_the_vectors_byte_for_byte(void **state) {
    (void)state;
    json_t *vectors = vectors_load("continuity");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "vectors"), index, vector) {
        json_t *shape = json_object_get(vector, "window");
        struct topic_window window = {0};
        if (!json_is_null(shape))
            window = (struct topic_window){vector_number(shape, "oldest_seq"),
                                           vector_number(shape, "head_seq"),
                                           vector_number(shape, "replay_budget_events")};
        struct continuity plan = continuity_plan(json_is_null(shape) ? NULL : &window,
                                                 vector_number(vector, "after_seq"), false);
        char *expected = json_dumps(json_object_get(vector, "expected"), JSON_COMPACT);
        check_json(&plan, expected);
        free(expected);
    }
    json_decref(vectors);
}

static void epoch_mismatch_is_the_first_reason(void **state) {
    (void)state;
    struct continuity plan = continuity_plan(NULL, 5, true);
    check_json(&plan, "{\"decision\":\"rebootstrap\",\"reason_codes\":[\"epoch_mismatch\"],"
                      "\"oldest_available_cursor\":0,\"head_cursor\":0,\"replay_lag\":0,"
                      "\"replay_budget_events\":0}");
    check_plan((struct topic_window){10, 25, 200}, 20, true,
               "{\"decision\":\"rebootstrap\",\"reason_codes\":[\"epoch_mismatch\"],"
               "\"oldest_available_cursor\":9,\"head_cursor\":25,\"replay_lag\":5,"
               "\"replay_budget_events\":200}");
    check_plan((struct topic_window){10, 25000, 500}, 0, true,
               "{\"decision\":\"rebootstrap\",\"reason_codes\":[\"epoch_mismatch\","
               "\"retention_floor_breach\",\"replay_budget_exceeded\"],"
               "\"oldest_available_cursor\":9,\"head_cursor\":25000,\"replay_lag\":25000,"
               "\"replay_budget_events\":500}");
}

static void lineage_is_judged_before_the_window(void **state) {
    (void)state;
    const struct topic_window window = {10, 25, 200};
    const struct topic_epoch epoch = {"e.2"};
    const struct topic_fork none = {.is_set = false};
    static const struct {
        struct position position;
        size_t count;
        enum reason reasons[2];
    } rows[] = {
        {{25, {""}}, 0, {0}},
        {{25, {"e.2"}}, 0, {0}},
        {{26, {""}}, 1, {REASON_CURSOR_AHEAD_OF_HEAD}},
        {{25, {"e.1"}}, 1, {REASON_EPOCH_MISMATCH}},
        {{25, {"e"}}, 1, {REASON_EPOCH_MISMATCH}},
        {{26, {"other"}}, 2, {REASON_EPOCH_MISMATCH, REASON_CURSOR_AHEAD_OF_HEAD}},
        {{3, {"other"}}, 2, {REASON_EPOCH_MISMATCH, REASON_RETENTION_FLOOR_BREACH}},
        {{0, {"other"}}, 1, {REASON_RETENTION_FLOOR_BREACH}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t after_seq = rows[i].position.seq;
        struct continuity plan = continuity_judge(
            &window, after_seq, lineage_of(&window, &rows[i].position, &epoch, &none));
        assert_int_equal(plan.reason_count, rows[i].count);
        for (size_t k = 0; k < rows[i].count; k++)
            assert_int_equal(plan.reasons[k], rows[i].reasons[k]);
    }
    /* A topic that does not exist has no head yet. */
    struct lineage missing = lineage_of(NULL, &(struct position){26, {""}}, &epoch, &none);
    assert_int_equal(continuity_judge(NULL, 26, missing).decision, CONTINUITY_RESUME);
    missing = lineage_of(NULL, &(struct position){26, {"other"}}, &epoch, &none);
    assert_int_equal(continuity_judge(NULL, 26, missing).decision, CONTINUITY_REBOOTSTRAP);
}

/* The vectors: a position of a client, the topic's epoch and where its histories part. */
static void lineages_match_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("lineage");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "vectors"), index, vector) {
        json_t *shape = json_object_get(vector, "window"),
               *fork_seq = json_object_get(vector, "fork_seq");
        const char *given = json_string_value(json_object_get(vector, "epoch"));
        struct position position = {.seq = vector_number(vector, "after_seq")};
        struct topic_epoch epoch;
        struct topic_fork fork = {.is_set = !json_is_null(fork_seq)};
        struct topic_window window = {0};
        if (fork.is_set)
            fork.seq = vector_number(vector, "fork_seq");
        if (given)
            assert_ok(topic_epoch_read(slice_of(given), &position.epoch));
        assert_ok(topic_epoch_read(
            slice_of(json_string_value(json_object_get(vector, "topic_epoch"))), &epoch));
        if (!json_is_null(shape))
            window = (struct topic_window){vector_number(shape, "oldest_seq"),
                                           vector_number(shape, "head_seq"),
                                           vector_number(shape, "replay_budget_events")};
        const struct topic_window *judged = json_is_null(shape) ? NULL : &window;
        struct lineage lineage = lineage_of(judged, &position, &epoch, &fork);
        struct continuity plan = continuity_judge(judged, position.seq, lineage);
        json_t *expected = json_object_get(vector, "reason_codes");
        assert_int_equal(plan.reason_count, json_array_size(expected));
        for (size_t i = 0; i < plan.reason_count; i++)
            assert_string_equal(reason_code(plan.reasons[i]),
                                json_string_value(json_array_get(expected, i)));
    }
    json_decref(vectors);
}

static void an_empty_journal_resumes_only_from_its_head(void **state) {
    (void)state;
    struct topic_window window = {26, 25, 200};
    assert_int_equal(continuity_plan(&window, 25, false).decision, CONTINUITY_RESUME);
    struct continuity plan = continuity_plan(&window, 24, false);
    assert_int_equal(plan.decision, CONTINUITY_REBOOTSTRAP);
    assert_int_equal(plan.reason_count, 1);
    assert_int_equal(plan.reasons[0], REASON_RETENTION_FLOOR_BREACH);
    assert_int_equal(plan.replay_lag, 1);
}

static void the_ends_of_the_number_range_do_not_wrap(void **state) {
    (void)state;
    check_plan((struct topic_window){1, 1, 1}, UINT64_MAX, false,
               "{\"decision\":\"resume\",\"after_seq\":18446744073709551615}");
    check_plan((struct topic_window){UINT64_MAX, UINT64_MAX, UINT64_MAX}, 0, false,
               "{\"decision\":\"rebootstrap\",\"reason_codes\":[\"retention_floor_breach\"],"
               "\"oldest_available_cursor\":18446744073709551614,"
               "\"head_cursor\":18446744073709551615,\"replay_lag\":18446744073709551615,"
               "\"replay_budget_events\":18446744073709551615}");
    check_plan((struct topic_window){0, UINT64_MAX, 0}, UINT64_MAX, false,
               "{\"decision\":\"resume\",\"after_seq\":18446744073709551615}");
}

static void a_buffer_of_any_size_gets_the_whole_text_or_nothing(void **state) {
    (void)state;
    struct topic_window window = {10, 25000, 500};
    struct continuity plan = continuity_plan(&window, 0, true);
    struct buffer whole;
    buffer_init(&whole, 1000);
    assert_ok(continuity_write_json(&whole, &plan));
    for (size_t size = 1; size <= whole.size + 1; size++) {
        struct buffer out;
        buffer_init(&out, size + 1);
        assert_ok(buffer_append_byte(&out, '!'));
        enum status status = continuity_write_json(&out, &plan);
        assert_int_equal(status, size < whole.size ? STATUS_PAYLOAD_TOO_LARGE : STATUS_OK);
        assert_int_equal(out.size, size < whole.size ? 1 : 1 + whole.size);
        buffer_release(&out);
    }
    buffer_release(&whole);
}

static void a_bootstrap_starts_where_retention_and_budget_allow(void **state) {
    (void)state;
    static const struct {
        struct topic_window window;
        uint64_t from_seq;
        bool truncated;
    } cases[] = {
        {{0, 0, 500}, 1, false}, /* no event so far */
        {{1, 0, 500}, 1, false}, /* the same in another form */
        {{1, 0, 0}, 1, false},
        {{1, 1, 500}, 1, false},
        {{1, 500, 500}, 1, false}, /* the budget reaches exactly the first event */
        {{1, 501, 500}, 2, true},
        {{10, 25, 500}, 10, true}, /* pruned */
        {{10, 25, 16}, 10, true},  /* both at the same seq */
        {{10, 25, 15}, 11, true},  /* the budget is the later limit */
        {{10, 25, 1}, 25, true},
        {{10, 25, 0}, 26, true},
        {{26, 25, 500}, 26, true}, /* empty journal */
        {{2, 1, 500}, 2, true},
        {{0, 3, 500}, 1, false},
        {{1, 100, UINT64_MAX}, 1, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct continuity_bootstrap start = continuity_bootstrap(&cases[i].window);
        assert_true(start.from_seq == cases[i].from_seq);
        assert_int_equal(start.truncated, cases[i].truncated);
    }
    assert_true(continuity_bootstrap(NULL).from_seq == 1);
    assert_false(continuity_bootstrap(NULL).truncated);
}

static uint64_t random_seq(uint64_t *seed) {
    return test_random(seed) >> (1 + test_random(seed) % 63);
}

static void a_bootstrapped_cursor_is_never_stale_and_skips_only_what_it_must(void **state) {
    (void)state;
    uint64_t seed = 31;
    for (int round = 0; round < 300000; round++) {
        struct topic_window window = {0, random_seq(&seed), random_seq(&seed)};
        window.oldest_seq = test_random(&seed) % (window.head_seq + 2);
        struct continuity_bootstrap start = continuity_bootstrap(&window);
        uint64_t after_seq = start.from_seq - 1;
        assert_int_equal(continuity_plan(&window, after_seq, false).decision, CONTINUITY_RESUME);
        assert_int_equal(start.truncated, after_seq > 0);
        if (after_seq > 0)
            assert_int_equal(continuity_plan(&window, after_seq - 1, false).decision,
                             CONTINUITY_REBOOTSTRAP);
    }
}

static void the_plan_agrees_with_signed_arithmetic(void **state) {
    (void)state;
    uint64_t seed = 32;
    for (int round = 0; round < 300000; round++) {
        struct topic_window window = {test_random(&seed) % 40, test_random(&seed) % 60,
                                      test_random(&seed) % 30};
        uint64_t after_seq = test_random(&seed) % 70;
        int64_t oldest = (int64_t)window.oldest_seq;
        int64_t head = (int64_t)window.head_seq;
        int64_t after = (int64_t)after_seq;
        bool is_pruned = after < oldest - 1;
        bool is_too_far = head - after > (int64_t)window.replay_budget_events;
        struct continuity plan = continuity_plan(&window, after_seq, false);
        assert_int_equal(plan.reason_count, is_pruned + is_too_far);
        assert_int_equal(plan.decision == CONTINUITY_RESUME, !is_pruned && !is_too_far);
        if (is_pruned)
            assert_int_equal(plan.reasons[0], REASON_RETENTION_FLOOR_BREACH);
        if (is_too_far)
            assert_int_equal(plan.reasons[is_pruned], REASON_REPLAY_BUDGET_EXCEEDED);
        assert_int_equal(plan.replay_lag, head > after ? head - after : 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_match_the_vectors_byte_for_byte),
        cmocka_unit_test(epoch_mismatch_is_the_first_reason),
        cmocka_unit_test(lineage_is_judged_before_the_window),
        cmocka_unit_test(lineages_match_the_vectors),
        cmocka_unit_test(an_empty_journal_resumes_only_from_its_head),
        cmocka_unit_test(the_ends_of_the_number_range_do_not_wrap),
        cmocka_unit_test(a_buffer_of_any_size_gets_the_whole_text_or_nothing),
        cmocka_unit_test(a_bootstrap_starts_where_retention_and_budget_allow),
        cmocka_unit_test(a_bootstrapped_cursor_is_never_stale_and_skips_only_what_it_must),
        cmocka_unit_test(the_plan_agrees_with_signed_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
