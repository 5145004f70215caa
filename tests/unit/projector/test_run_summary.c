#include "history.h"

static void a_started_run_has_every_field(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started",
                "{\"metadata\":{\"a\":1},\"org_id\":\"o1\",\"owner_user_id\":\"u1\",\"parent_run_"
                "id\":\"r0\","
                "\"run_id\":\"r1\",\"tags\":[\"x\"],\"thread_id\":\"t1\",\"title\":\"T\",\"worker_"
                "id\":\"w1\"}");
    history_expect(
        &history,
        "{\"current_step\":null,\"document_id\":\"runtime/run_summary:r1\",\"error\":null,"
        "\"event_count\":1,\"kind\":\"run_summary\",\"latest_event_at\":1700000000001,"
        "\"latest_event_type\":\"run.started\",\"latest_seq\":1,\"metadata\":{\"a\":1},"
        "\"open_steps\":0,\"org_id\":\"o1\",\"other_open_steps\":[],"
        "\"owner_guest_scope\":null,\"owner_user_id\":\"u1\",\"parent_run_id\":\"r0\","
        "\"projected_at\":1,\"projection_version\":\"khala_summary_v2\",\"run_id\":\"r1\","
        "\"runtime_source\":{\"entity\":\"run\",\"run_id\":\"r1\",\"seq\":1},"
        "\"started_at\":1700000000001,\"status\":\"running\",\"tags\":[\"x\"],"
        "\"terminal_at\":null,\"terminal_reason\":null,\"terminal_reason_class\":null,"
        "\"thread_id\":\"t1\",\"title\":\"T\",\"updated_at\":1700000000001,\"usage\":null,"
        "\"waiting\":null,\"worker_id\":\"w1\"}");
    arena_release(&history.arena);
}

static void expect_end(const char *finish, const char *status, const char *class,
                       const char *reason) {
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"run_id\":\"r1\"}");
    history_add(&history, "run.finished", finish);
    history_add(&history, "note", "{\"status\":\"failed\"}");
    const struct summary *summary = &history.summary.common;
    assert_slice(summary->status, status);
    assert_slice(summary->terminal_reason_class, class);
    assert_slice(summary->terminal_reason, reason);
    assert_int_equal(summary->terminal_at_ms, HISTORY_TIME_MS + 2);
    assert_int_equal(summary->latest_event_at_ms, HISTORY_TIME_MS + 3);
    assert_int_equal(summary->event_count, 3);
    arena_release(&history.arena);
}

static void a_finished_run_has_an_outcome_and_a_reason(void **state) {
    (void)state;
    expect_end("{\"status\":\"succeeded\"}", "\"succeeded\"", "\"completed\"", "null");
    expect_end("{\"reason\":\"a \\\"b\\\"\",\"status\":\"failed\"}", "\"failed\"", "\"failed\"",
               "\"a \\\"b\\\"\"");
    expect_end("{\"status\":\"canceled\"}", "\"canceled\"", "\"canceled\"", "null");
    expect_end("{\"reason\":7,\"status\":\"cancelled\"}", "\"canceled\"", "\"canceled\"", "null");
}

static void only_three_event_types_change_the_status(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"run_id\":\"r1\"}");
    history_add(&history, "run.progress", "{\"status\":\"failed\"}");
    assert_slice(history.summary.common.status, "\"running\"");
    history_add(&history, "run.cancel_requested", "{}");
    assert_slice(history.summary.common.status, "\"canceling\"");
    history_add(&history, "run.finished", "{\"status\":\"failed\"}");
    assert_slice(history.summary.common.status, "\"failed\"");
    arena_release(&history.arena);
}

static void starting_again_does_not_change_the_owner(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"owner_guest_scope\":\"g1\",\"run_id\":\"r1\"}");
    history_add(&history, "run.cancel_requested", "{}");
    history_add(&history, "run.started", "{\"owner_user_id\":\"thief\",\"thread_id\":\"t\"}");
    assert_slice(history.summary.common.owner_guest_scope, "\"g1\"");
    assert_slice(history.summary.common.owner_user_id, "null");
    assert_slice(history.summary.run.thread_id, "null");
    assert_slice(history.summary.common.status, "\"canceling\"");
    arena_release(&history.arena);
}

static void payloads_of_any_shape_are_counted(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"owner_user_id\":5,\"thread_id\":{}}");
    history_add(&history, "a\"b", "[1]");
    history_add(&history, "run.finished", "null");
    history_add(&history, "run.finished", "{\"status\":\"unheard of\"}");
    assert_slice(history.summary.common.status, "\"running\"");
    assert_slice(history.summary.common.owner_user_id, "null");
    assert_int_equal(history.summary.common.event_count, 4);
    arena_release(&history.arena);
}

static void a_type_is_quoted(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "a\"b", "{}");
    assert_slice(history.summary.common.latest_event_type, "\"a\\\"b\"");
    history_add(&history, "a\"b", "{}");
    assert_slice(history.summary.common.latest_event_type, "\"a\\\"b\"");
    arena_release(&history.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_started_run_has_every_field),
        cmocka_unit_test(a_finished_run_has_an_outcome_and_a_reason),
        cmocka_unit_test(only_three_event_types_change_the_status),
        cmocka_unit_test(starting_again_does_not_change_the_owner),
        cmocka_unit_test(payloads_of_any_shape_are_counted),
        cmocka_unit_test(a_type_is_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
