/* The rules of the authority for workers, through the writer, on a real store. */
#include "authority/rules_fixture.h"

static void a_worker_registers_and_reports(void **state) {
    struct fixture *fixture = *state;
    const struct append_request *made =
        ask_ok(fixture, APPEND_WORKER_CREATE, NULL,
               "{\"worker_id\":\"w1\",\"owner_user_id\":\"u1\",\"workspace_ref\":\"ws\","
               "\"metadata\":{\"a\":1,\"b\":2}}");
    assert_true(made->created);
    assert_slice(made->event.payload,
                 "{\"adapter\":\"in_memory\",\"metadata\":{\"a\":1,\"b\":2},"
                 "\"owner_user_id\":\"u1\",\"status\":\"starting\",\"worker_id\":\"w1\","
                 "\"workspace_ref\":\"ws\"}");
    assert_slice(made->entity.status, "starting");
    assert_int_equal(made->entity.last_heartbeat_at_ms, 0);
    const struct append_request *beat =
        ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1",
               "{\"metadata_patch\":{\"b\":null,\"c\":{\"d\":3},\"\\u0061\":4}}");
    assert_slice(beat->event.type, "worker.heartbeat");
    assert_slice(beat->event.payload, "{\"metadata_patch\":{\"a\":4,\"b\":null,\"c\":{\"d\":3}}}");
    assert_slice(beat->entity.metadata, "{\"a\":4,\"c\":{\"d\":3}}");
    assert_int_equal(beat->entity.last_heartbeat_at_ms, fixture->clock.reading.wall_ms);
    const struct append_request *status =
        ask_ok(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"running\",\"reason\":\"up\"}");
    assert_slice(status->event.payload,
                 "{\"from\":\"starting\",\"reason\":\"up\",\"status\":\"running\"}");
    fixture_restart(fixture);
    const struct append_request *later = ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
    assert_slice(later->event.payload, "{}");
    assert_slice(later->entity.status, "running");
    assert_slice(later->entity.metadata, "{\"a\":4,\"c\":{\"d\":3}}");
    assert_slice(later->entity.workspace_ref, "ws");
    assert_int_equal(
        ask_ok(fixture, APPEND_WORKER_EVENT, "w1", "{\"event_type\":\"worker.note\"}")->event.seq,
        5);
}

static void a_worker_without_an_id_gets_one(void **state) {
    const struct append_request *made =
        ask_ok(*state, APPEND_WORKER_CREATE, NULL, "{\"owner_guest_scope\":\"g\"}");
    assert_true(slice_starts(made->entity.id, SLICE("codexw_")));
    assert_slice(made->entity.owner.guest_scope, "g");
}

static void a_worker_changes_status_only_as_allowed(void **state) {
    struct fixture *fixture = *state;
    new_worker(fixture, "w1");
    refused(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"stopped\"}",
            STATUS_INVALID_TRANSITION);
    ask_ok(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"starting\"}");
    ask_ok(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"stopping\"}");
    const struct append_request *stopped =
        ask_ok(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"stopped\"}");
    assert_int_equal(stopped->entity.stopped_at_ms, fixture->clock.reading.wall_ms);
    const struct append_request *up =
        ask_ok(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"running\"}");
    assert_int_equal(up->entity.stopped_at_ms, 0);
}

static void a_live_worker_registering_again_changes_nothing(void **state) {
    struct fixture *fixture = *state;
    new_worker(fixture, "w1");
    for (int round = 0; round < 2; round++) {
        const struct append_request *again =
            ask_ok(fixture, APPEND_WORKER_CREATE, NULL,
                   "{\"worker_id\":\"w1\",\"owner_user_id\":\"u1\",\"adapter\":\"other\"}");
        assert_false(again->created);
        assert_int_equal(again->event.seq, 1);
        assert_slice(again->entity.adapter, "in_memory");
        fixture_restart(fixture);
    }
    assert_int_equal(checked_log(fixture), 1);
}

static void a_stopped_worker_is_revived_by_its_owner_only(void **state) {
    struct fixture *fixture = *state;
    ask_ok(fixture, APPEND_WORKER_CREATE, NULL,
           "{\"worker_id\":\"w1\",\"owner_user_id\":\"u1\",\"workspace_ref\":\"ws\"}");
    ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
    ask_ok(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"failed\"}");
    refused(fixture, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w1\",\"owner_user_id\":\"u2\"}",
            STATUS_OWNER_MISMATCH);
    refused(fixture, APPEND_WORKER_CREATE, NULL,
            "{\"worker_id\":\"w1\",\"owner_guest_scope\":\"u1\"}", STATUS_OWNER_MISMATCH);
    clock_manual_advance_ms(&fixture->clock, 5000);
    const struct append_request *revived =
        ask_ok(fixture, APPEND_WORKER_CREATE, NULL,
               "{\"worker_id\":\"w1\",\"owner_user_id\":\"u1\",\"adapter\":\"docker\"}");
    assert_false(revived->created || revived->deduplicated);
    assert_int_equal(revived->event.seq, 4);
    assert_slice(revived->event.type, "worker.registered");
    assert_slice(revived->entity.status, "starting");
    assert_slice(revived->entity.adapter, "docker");
    assert_slice(revived->entity.workspace_ref, "ws");
    assert_int_equal(revived->entity.stopped_at_ms, 0);
    assert_int_equal(revived->entity.last_heartbeat_at_ms, 0);
    assert_int_equal(revived->entity.started_at_ms, fixture->clock.reading.wall_ms);
}

static void a_status_repeated_by_key_is_one_event(void **state) {
    struct fixture *fixture = *state;
    const char *body = "{\"status\":\"running\",\"idempotency_key\":\"k\"}";
    new_worker(fixture, "w1");
    ask_ok(fixture, APPEND_WORKER_STATUS, "w1", body);
    const struct append_request *again = ask_ok(fixture, APPEND_WORKER_STATUS, "w1", body);
    assert_true(again->deduplicated);
    assert_slice(again->entity.status, "running");
    refused(fixture, APPEND_WORKER_STATUS, "w1",
            "{\"status\":\"running\",\"reason\":\"r\",\"idempotency_key\":\"k\"}",
            STATUS_IDEMPOTENCY_KEY_CONFLICT);
    refused(fixture, APPEND_WORKER_STATUS, "w1",
            "{\"status\":\"failed\",\"idempotency_key\":\"k\"}", STATUS_IDEMPOTENCY_KEY_CONFLICT);
}

static void metadata_cannot_grow_beyond_the_payload_limit(void **state) {
    struct fixture *fixture = *state;
    fixture->policies.rows[POLICY_WORKER_LIFECYCLE].max_payload_bytes = 300;
    new_worker(fixture, "w1");
    char body[300];
    uint64_t taken = 0;
    for (int i = 0; i < 5; i++) {
        (void)snprintf(body, sizeof(body), "{\"metadata_patch\":{\"k%d\":\"%0100d\"}}", i, 0);
        const struct append_request *beat = ask(fixture, APPEND_WORKER_HEARTBEAT, "w1", body);
        assert_true(beat->status == STATUS_OK ||
                    beat->status == STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
        taken += beat->status == STATUS_OK;
    }
    assert_int_equal(taken, 2);
    assert_int_equal(checked_log(fixture), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_worker_registers_and_reports),
        TEST(a_worker_without_an_id_gets_one),
        TEST(a_worker_changes_status_only_as_allowed),
        TEST(a_live_worker_registering_again_changes_nothing),
        TEST(a_stopped_worker_is_revived_by_its_owner_only),
        TEST(a_status_repeated_by_key_is_one_event),
        TEST(metadata_cannot_grow_beyond_the_payload_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
