/* The rules of the authority for runs and for the conditions of an append, through the writer, on a
 * real store. */
#include "authority/rules_fixture.h"
#include "authority/run_report.h"

#define ID_A "018f3b7e-0000-7000-8000-00000000000a"

/* ---- runs ---- */

static void run_started_holds_all_members_of_the_run(void **state) {
    struct fixture *fixture = *state;
    const struct append_request *made =
        ask_ok(fixture, APPEND_RUN_CREATE, NULL,
               "{\"run_id\":\"r1\",\"worker_id\":\"w1\",\"thread_id\":\"t1\",\"org_id\":\"o1\","
               "\"owner_user_id\":\"u1\",\"metadata\":{\"b\":1,\"a\":[2]}}");
    assert_true(made->created && !made->deduplicated);
    assert_int_equal(made->event.seq, 1);
    assert_slice(made->event.type, "run.started");
    assert_slice(made->event.payload,
                 "{\"metadata\":{\"a\":[2],\"b\":1},\"org_id\":\"o1\",\"owner_user_id\":\"u1\","
                 "\"run_id\":\"r1\",\"thread_id\":\"t1\",\"worker_id\":\"w1\"}");
    assert_slice(made->entity.status, "running");
    assert_slice(made->entity.owner.user_id, "u1");
    assert_slice(made->entity.metadata, "{\"a\":[2],\"b\":1}");
    assert_int_equal(made->entity.created_at_ms, fixture->clock.reading.wall_ms);
    assert_int_equal(made->entity.head_seq, 1);
}

static void a_run_without_an_id_gets_one(void **state) {
    const struct append_request *made = ask_ok(*state, APPEND_RUN_CREATE, NULL, "{}");
    assert_true(slice_starts(made->entity.id, SLICE("run_")));
    assert_int_equal(made->entity.id.size, 4 + UUID_TEXT_SIZE);
    assert_true(slice_equal(made->entity.id, made->event.entity_id));
}

static void creating_a_run_twice_stores_one_run(void **state) {
    struct fixture *fixture = *state;
    const char *body = "{\"run_id\":\"r1\",\"metadata\":{\"k\":\"v\"}}";
    const struct append_request *first = ask_ok(fixture, APPEND_RUN_CREATE, NULL, body);
    for (int round = 0; round < 2; round++) {
        const struct append_request *again = ask_ok(fixture, APPEND_RUN_CREATE, NULL, body);
        assert_true(again->deduplicated && !again->created);
        assert_memory_equal(again->event.chain_hash, first->event.chain_hash, SHA256_BYTES);
        assert_slice(again->entity.metadata, "{\"k\":\"v\"}");
        refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}", STATUS_ALREADY_EXISTS);
        fixture_restart(fixture);
    }
    assert_int_equal(checked_log(fixture), 1);
}

static void creating_a_run_twice_in_one_batch_stores_one_run(void **state) {
    struct fixture *fixture = *state;
    gate_shut(fixture);
    struct asked *first = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}");
    struct asked *again = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}");
    struct asked *other =
        post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\",\"thread_id\":\"t\"}");
    struct asked *event = post(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\"}");
    gate_open(fixture);
    assert_true(wait_for(first)->created);
    assert_true(wait_for(again)->deduplicated);
    assert_int_equal(wait_for(again)->event.log_id, wait_for(first)->event.log_id);
    assert_int_equal(wait_for(other)->status, STATUS_ALREADY_EXISTS);
    assert_int_equal(wait_for(event)->event.seq, 2);
}

static void a_run_moves_through_its_states(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.started\"}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"anything\"}");
    const struct append_request *canceling =
        ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}");
    assert_slice(canceling->entity.status, "canceling");
    const struct append_request *repeated =
        ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}");
    assert_slice(repeated->entity.status, "canceling");
    refused(fixture, APPEND_RUN_EVENT, "r1",
            "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"succeeded\"}}",
            STATUS_INVALID_TRANSITION);
    fixture_restart(fixture);
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.started\"}",
            STATUS_INVALID_TRANSITION);
    const struct append_request *done = ask_ok(
        fixture, APPEND_RUN_EVENT, "r1",
        "{\"event_type\":\"run.finished\",\"payload\":{\"why\":1,\"status\":\"cancelled\"}}");
    assert_slice(done->entity.status, "canceled");
    assert_slice(done->event.payload, "{\"status\":\"canceled\",\"why\":1}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"late.note\"}");
    assert_int_equal(checked_log(fixture), 7);
}

static void a_child_needs_a_parent_of_its_owner(void **state) {
    struct fixture *fixture = *state;
    const char *child = "{\"run_id\":\"c1\",\"owner_user_id\":\"u1\",\"org_id\":\"o1\","
                        "\"parent_run_id\":\"p1\",\"title\":\"T\",\"tags\":[\"b\",\"a\"]}";
    refused(fixture, APPEND_RUN_CREATE, NULL, child, STATUS_RUN_NOT_FOUND);
    ask_ok(fixture, APPEND_RUN_CREATE, NULL,
           "{\"run_id\":\"p1\",\"owner_user_id\":\"u1\",\"org_id\":\"o1\"}");
    for (int round = 0; round < 2; round++) {
        refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"c2\",\"parent_run_id\":\"p1\"}",
                STATUS_RUN_NOT_FOUND);
        refused(fixture, APPEND_RUN_CREATE, NULL,
                "{\"run_id\":\"c2\",\"owner_user_id\":\"u1\",\"parent_run_id\":\"p1\"}",
                STATUS_RUN_NOT_FOUND);
        refused(fixture, APPEND_RUN_CREATE, NULL,
                "{\"run_id\":\"c2\",\"owner_user_id\":\"u2\",\"org_id\":\"o1\","
                "\"parent_run_id\":\"p1\"}",
                STATUS_RUN_NOT_FOUND);
        refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"c2\",\"parent_run_id\":\"c2\"}",
                STATUS_RUN_NOT_FOUND);
        const struct append_request *made = ask_ok(fixture, APPEND_RUN_CREATE, NULL, child);
        assert_int_equal(made->deduplicated, round > 0);
        assert_slice(made->event.payload,
                     "{\"org_id\":\"o1\",\"owner_user_id\":\"u1\",\"parent_run_id\":\"p1\","
                     "\"run_id\":\"c1\",\"tags\":[\"b\",\"a\"],\"title\":\"T\"}");
        fixture_restart(fixture);
    }
    assert_int_equal(checked_log(fixture), 2);
}

static void a_parent_may_be_made_in_the_same_batch(void **state) {
    struct fixture *fixture = *state;
    gate_shut(fixture);
    struct asked *early =
        post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"c0\",\"parent_run_id\":\"p1\"}");
    struct asked *parent = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"p1\"}");
    struct asked *child =
        post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"c1\",\"parent_run_id\":\"p1\"}");
    struct asked *grandchild =
        post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"c2\",\"parent_run_id\":\"c1\"}");
    gate_open(fixture);
    assert_int_equal(wait_for(early)->status, STATUS_RUN_NOT_FOUND);
    assert_true(wait_for(parent)->created);
    assert_true(wait_for(child)->created);
    assert_true(wait_for(grandchild)->created);
}

static void patches_change_the_metadata_of_a_run(void **state) {
    struct fixture *fixture = *state;
    static char large[RUN_METADATA_BYTES_MAX], body[2 * RUN_METADATA_BYTES_MAX];
    ask_ok(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\",\"metadata\":{\"a\":{\"b\":1}}}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1",
           "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"a\":{\"c\":2}}}}");
    fixture_restart(fixture);
    ask_ok(
        fixture, APPEND_RUN_EVENT, "r1",
        "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"a\":{\"b\":null}}}}");
    assert_slice(ask_ok(fixture, APPEND_RUN_CREATE, NULL,
                        "{\"run_id\":\"r1\",\"metadata\":{\"a\":{\"b\":1}}}")
                     ->entity.metadata,
                 "{\"a\":{\"c\":2}}");
    memset(large, 'x', sizeof(large) - 15);
    snprintf(body, sizeof(body),
             "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"b\":\"%s\"}}}",
             large);
    refused(fixture, APPEND_RUN_EVENT, "r1", body, STATUS_PAYLOAD_TOO_LARGE);
    ask_ok(fixture, APPEND_RUN_EVENT, "r1",
           "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"a\":null}}}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", body);
    refused(
        fixture, APPEND_RUN_EVENT, "r1",
        "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"c\":\"0123456789\"}}}",
        STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(checked_log(fixture), 5);
}

static void an_unknown_entity_is_not_found_before_any_other_check(void **state) {
    refused(*state, APPEND_RUN_EVENT, "nobody",
            "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"failed\"},"
            "\"expected_previous_seq\":7}",
            STATUS_RUN_NOT_FOUND);
    refused(*state, APPEND_WORKER_HEARTBEAT, "nobody", "{}", STATUS_WORKER_NOT_FOUND);
    refused(*state, APPEND_WORKER_STATUS, "nobody", "{\"status\":\"running\"}",
            STATUS_WORKER_NOT_FOUND);
    refused(*state, APPEND_WORKER_EVENT, "nobody", "{\"event_type\":\"worker.x\"}",
            STATUS_WORKER_NOT_FOUND);
}

static void a_run_of_another_owner_takes_no_events(void **state) {
    struct fixture *fixture = *state;
    ask_ok(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\",\"owner_user_id\":\"u1\"}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"owner_user_id\":\"u1\"}");
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"owner_user_id\":\"u2\"}",
            STATUS_OWNER_MISMATCH);
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"owner_guest_scope\":\"u1\"}",
            STATUS_OWNER_MISMATCH);
}

/* ---- conditions ---- */

#define WITH_ID(id, payload)                                                                       \
    "{\"event_type\":\"x\",\"event_id\":\"" id "\",\"payload\":" payload "}"
#define WITH_KEY(key, payload)                                                                     \
    "{\"event_type\":\"x\",\"idempotency_key\":\"" key "\",\"payload\":" payload "}"

static void a_repeated_event_id_stores_one_event(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    new_run(fixture, "r2");
    const struct append_request *first =
        ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_ID(ID_A, "{\"n\":1}"));
    for (int round = 0; round < 2; round++) {
        const struct append_request *again =
            ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_ID(ID_A, "{\"n\":1}"));
        assert_true(again->deduplicated);
        assert_int_equal(again->event.log_id, first->event.log_id);
        assert_slice(again->event.payload, "{\"n\":1}");
        refused(fixture, APPEND_RUN_EVENT, "r1", WITH_ID(ID_A, "{\"n\":2}"),
                STATUS_EVENT_ID_CONFLICT);
        refused(fixture, APPEND_RUN_EVENT, "r2", WITH_ID(ID_A, "{\"n\":1}"),
                STATUS_EVENT_ID_CONFLICT);
        refused(fixture, APPEND_RUN_EVENT, "r1",
                "{\"event_type\":\"y\",\"event_id\":\"" ID_A "\",\"payload\":{\"n\":1}}",
                STATUS_EVENT_ID_CONFLICT);
        refused(fixture, APPEND_TOPIC_EVENT, "new topic", WITH_ID(ID_A, "{\"n\":1}"),
                STATUS_EVENT_ID_CONFLICT);
        fixture_restart(fixture);
    }
    assert_int_equal(checked_log(fixture), 3);
}

static void an_id_that_the_server_made_deduplicates_too(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    const struct append_request *made =
        ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\"}");
    char text[UUID_TEXT_SIZE + 1] = {0};
    char body[200];
    uuid_format(&made->event.event_id, text);
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"event_id\":\"%s\"}", text);
    assert_true(ask_ok(fixture, APPEND_RUN_EVENT, "r1", body)->deduplicated);
    fixture_restart(fixture);
    assert_true(ask_ok(fixture, APPEND_RUN_EVENT, "r1", body)->deduplicated);
}

static void a_repeated_idempotency_key_stores_one_event_of_its_entity(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    new_run(fixture, "r2");
    const struct append_request *first =
        ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{}"));
    assert_false(first->deduplicated);
    for (int round = 0; round < 2; round++) {
        const struct append_request *again =
            ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{}"));
        assert_true(again->deduplicated);
        assert_int_equal(again->event.seq, first->event.seq);
        refused(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{\"n\":1}"),
                STATUS_IDEMPOTENCY_KEY_CONFLICT);
        fixture_restart(fixture);
    }
    assert_false(ask_ok(fixture, APPEND_RUN_EVENT, "r2", WITH_KEY("k", "{}"))->deduplicated);
    assert_int_equal(checked_log(fixture), 4);
}

static void repeats_within_one_batch_are_detected(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    gate_shut(fixture);
    struct asked *id_first = post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID(ID_A, "{}"));
    struct asked *id_again = post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID(ID_A, "{}"));
    struct asked *id_other = post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID(ID_A, "{\"n\":1}"));
    struct asked *key_first = post(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{}"));
    struct asked *key_again = post(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{}"));
    struct asked *key_other = post(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{\"n\":1}"));
    struct asked *expected =
        post(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"expected_previous_seq\":3}");
    struct asked *late =
        post(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"expected_previous_seq\":3}");
    gate_open(fixture);
    assert_int_equal(wait_for(id_first)->event.seq, 2);
    assert_true(wait_for(id_again)->deduplicated);
    assert_int_equal(wait_for(id_again)->event.seq, 2);
    assert_int_equal(wait_for(id_other)->status, STATUS_EVENT_ID_CONFLICT);
    assert_int_equal(wait_for(key_first)->event.seq, 3);
    assert_true(wait_for(key_again)->deduplicated);
    assert_int_equal(wait_for(key_other)->status, STATUS_IDEMPOTENCY_KEY_CONFLICT);
    assert_int_equal(wait_for(expected)->event.seq, 4);
    assert_int_equal(wait_for(late)->status, STATUS_SEQUENCE_CONFLICT);
    assert_int_equal(wait_for(late)->refusal.actual_seq, 4);
}

static void an_expected_sequence_must_be_the_actual_one(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    const struct append_request *wrong =
        ask(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"expected_previous_seq\":0}");
    assert_int_equal(wrong->status, STATUS_SEQUENCE_CONFLICT);
    assert_int_equal(wrong->refusal.actual_seq, 1);
    assert_int_equal(ask_ok(fixture, APPEND_RUN_EVENT, "r1",
                            "{\"event_type\":\"x\",\"expected_previous_seq\":1}")
                         ->event.seq,
                     2);
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\",\"expected_previous_seq\":1}",
            STATUS_SEQUENCE_CONFLICT);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\",\"expected_previous_seq\":0}");
}

static void checks_come_in_the_order_of_the_specification(void **state) {
    struct fixture *fixture = *state;
    fixture->policies.rows[POLICY_RUN_EVENTS].max_payload_bytes = 100;
    new_run(fixture, "r1");
    /* The key is checked before the expected sequence. */
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{}"));
    assert_true(ask_ok(fixture, APPEND_RUN_EVENT, "r1",
                       "{\"event_type\":\"x\",\"idempotency_key\":\"k\","
                       "\"expected_previous_seq\":99}")
                    ->deduplicated);
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}");
    /* The sequence is checked before the transition, the transition before the size. */
    refused(fixture, APPEND_RUN_EVENT, "r1",
            "{\"event_type\":\"run.started\",\"expected_previous_seq\":99}",
            STATUS_SEQUENCE_CONFLICT);
    char large[400];
    (void)snprintf(large, sizeof(large), "{\"event_type\":\"%s\",\"payload\":{\"p\":\"%0200d\"}}",
                   "run.started", 0);
    refused(fixture, APPEND_RUN_EVENT, "r1", large, STATUS_INVALID_TRANSITION);
    (void)snprintf(large, sizeof(large), "{\"event_type\":\"%s\",\"payload\":{\"p\":\"%0200d\"}}",
                   "x", 0);
    refused(fixture, APPEND_RUN_EVENT, "r1", large, STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
    refused(fixture, APPEND_RUN_EVENT, "r2", large, STATUS_RUN_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(run_started_holds_all_members_of_the_run),
        TEST(a_run_without_an_id_gets_one),
        TEST(creating_a_run_twice_stores_one_run),
        TEST(creating_a_run_twice_in_one_batch_stores_one_run),
        TEST(a_run_moves_through_its_states),
        TEST(a_child_needs_a_parent_of_its_owner),
        TEST(a_parent_may_be_made_in_the_same_batch),
        TEST(patches_change_the_metadata_of_a_run),
        TEST(an_unknown_entity_is_not_found_before_any_other_check),
        TEST(a_run_of_another_owner_takes_no_events),
        TEST(a_repeated_event_id_stores_one_event),
        TEST(an_id_that_the_server_made_deduplicates_too),
        TEST(a_repeated_idempotency_key_stores_one_event_of_its_entity),
        TEST(repeats_within_one_batch_are_detected),
        TEST(an_expected_sequence_must_be_the_actual_one),
        TEST(checks_come_in_the_order_of_the_specification),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
