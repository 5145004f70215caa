#include "history.h"

#define REGISTERED                                                                                 \
    "{\"adapter\":\"in_memory\",\"metadata\":{\"a\":1,\"b\":2},\"owner_user_id\":\"u1\","          \
    "\"status\":\"starting\",\"worker_id\":\"w1\",\"workspace_ref\":\"ws\"}"

static void a_registered_worker_has_every_field(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    history_add(&history, "worker.registered", REGISTERED);
    history_expect(&history,
                   "{\"adapter\":\"in_memory\",\"codex_home_ref\":null,"
                   "\"created_at\":1700000000001,\"document_id\":\"runtime/"
                   "codex_worker_summary:w1\",\"event_count\":1,"
                   "\"kind\":\"codex_worker_summary\",\"last_heartbeat_at\":null,"
                   "\"latest_event_at\":1700000000001,\"latest_event_type\":\"worker.registered\","
                   "\"latest_seq\":1,\"metadata\":{\"a\":1,\"b\":2},\"org_id\":null,"
                   "\"owner_guest_scope\":null,\"owner_user_id\":\"u1\",\"projected_at\":1,"
                   "\"projection_version\":\"khala_summary_v2\","
                   "\"runtime_source\":{\"entity\":\"worker\",\"seq\":1,\"worker_id\":\"w1\"},"
                   "\"started_at\":1700000000001,\"status\":\"starting\",\"stopped_at\":null,"
                   "\"terminal_at\":null,\"terminal_reason\":null,\"terminal_reason_class\":null,"
                   "\"updated_at\":1700000000001,\"worker_id\":\"w1\",\"workspace_ref\":\"ws\"}");
    arena_release(&history.arena);
}

static void heartbeats_patch_the_metadata(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    const struct worker_summary *worker = &history.summary.worker;
    history_add(&history, "worker.registered", REGISTERED);
    history_add(&history, "worker.heartbeat", "{}");
    assert_int_equal(worker->last_heartbeat_at_ms, HISTORY_TIME_MS + 2);
    assert_slice(worker->metadata, "{\"a\":1,\"b\":2}");
    history_add(&history, "worker.heartbeat",
                "{\"metadata_patch\":{\"a\":null,\"aa\":{\"x\":null},\"c\":3}}");
    assert_slice(worker->metadata, "{\"aa\":{\"x\":null},\"b\":2,\"c\":3}");
    history_add(&history, "worker.heartbeat", "{\"metadata_patch\":7}");
    assert_slice(worker->metadata, "{\"aa\":{\"x\":null},\"b\":2,\"c\":3}");
    assert_int_equal(worker->last_heartbeat_at_ms, HISTORY_TIME_MS + 4);
    arena_release(&history.arena);
}

static void a_patch_creates_missing_metadata(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    history_add(&history, "worker.registered", "{\"status\":\"starting\"}");
    assert_slice(history.summary.worker.metadata, "null");
    history_add(&history, "worker.heartbeat", "{\"metadata_patch\":{\"a\":null}}");
    assert_slice(history.summary.worker.metadata, "{}");
    arena_release(&history.arena);
}

static void status_changes_set_and_clear_the_terminal_fields(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    const struct worker_summary *worker = &history.summary.worker;
    history_add(&history, "worker.registered", REGISTERED);
    history_add(&history, "worker.status_changed",
                "{\"from\":\"starting\",\"status\":\"running\"}");
    assert_slice(worker->common.status, "\"running\"");
    assert_int_equal(worker->stopped_at_ms, 0);
    history_add(&history, "worker.status_changed",
                "{\"from\":\"running\",\"reason\":\"oom\",\"status\":\"failed\"}");
    assert_slice(worker->common.status, "\"failed\"");
    assert_slice(worker->common.terminal_reason, "\"oom\"");
    assert_slice(worker->common.terminal_reason_class, "\"failed\"");
    assert_int_equal(worker->stopped_at_ms, HISTORY_TIME_MS + 3);
    assert_int_equal(worker->common.terminal_at_ms, HISTORY_TIME_MS + 3);
    history_add(&history, "worker.status_changed", "{\"from\":\"failed\",\"status\":\"running\"}");
    assert_int_equal(worker->stopped_at_ms, 0);
    assert_int_equal(worker->common.terminal_at_ms, 0);
    assert_slice(worker->common.terminal_reason, "null");
    assert_slice(worker->common.terminal_reason_class, "null");
    assert_int_equal(worker->started_at_ms, HISTORY_TIME_MS + 1);
    arena_release(&history.arena);
}

static void registering_again_keeps_absent_members(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    const struct worker_summary *worker = &history.summary.worker;
    history_add(&history, "worker.registered", REGISTERED);
    history_add(&history, "worker.heartbeat", "{}");
    history_add(&history, "worker.status_changed", "{\"reason\":\"x\",\"status\":\"stopped\"}");
    assert_slice(worker->common.terminal_reason_class, "\"stopped\"");
    history_add(&history, "worker.registered", "{\"adapter\":\"shell\",\"status\":\"starting\"}");
    assert_slice(worker->common.status, "\"starting\"");
    assert_slice(worker->adapter, "\"shell\"");
    assert_slice(worker->workspace_ref, "\"ws\"");
    assert_slice(worker->metadata, "{\"a\":1,\"b\":2}");
    assert_slice(worker->common.owner_user_id, "\"u1\"");
    assert_int_equal(worker->started_at_ms, HISTORY_TIME_MS + 4);
    assert_int_equal(worker->stopped_at_ms, 0);
    assert_int_equal(worker->last_heartbeat_at_ms, 0);
    arena_release(&history.arena);
}

static void other_events_are_only_counted(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    history_add(&history, "worker.registered", REGISTERED);
    history_add(&history, "worker.log", "{\"status\":\"failed\"}");
    assert_slice(history.summary.common.status, "\"starting\"");
    assert_slice(history.summary.common.latest_event_type, "\"worker.log\"");
    assert_int_equal(history.summary.common.event_count, 2);
    arena_release(&history.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registered_worker_has_every_field),
        cmocka_unit_test(heartbeats_patch_the_metadata),
        cmocka_unit_test(a_patch_creates_missing_metadata),
        cmocka_unit_test(status_changes_set_and_clear_the_terminal_fields),
        cmocka_unit_test(registering_again_keeps_absent_members),
        cmocka_unit_test(other_events_are_only_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
