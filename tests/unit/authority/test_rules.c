/* The rules of the authority, through the writer, on a real store: what each request asks, in which
 * order, and what it changes. */
#include "authority/writer_fixture.h"

#define ID_A "018f3b7e-0000-7000-8000-00000000000a"
#define ID_B "018f3b7e-0000-7000-8000-00000000000b"

static int setup(void **state) {
    struct fixture *fixture = fixture_new();
    fixture_open(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    (void)checked_log(fixture);
    fixture_close(fixture);
    fixture_free(fixture);
    return 0;
}

static void new_run(struct fixture *fixture, const char *id) {
    char body[300];
    (void)snprintf(body, sizeof(body), "{\"run_id\":\"%s\"}", id);
    assert_true(ask_ok(fixture, APPEND_RUN_CREATE, NULL, body)->created);
}

static void new_worker(struct fixture *fixture, const char *id) {
    char body[300];
    (void)snprintf(body, sizeof(body), "{\"worker_id\":\"%s\",\"owner_user_id\":\"u1\"}", id);
    assert_true(ask_ok(fixture, APPEND_WORKER_CREATE, NULL, body)->created);
}

/* ---- runs ---- */

static void a_run_starts_with_everything_there_is_to_know_of_it(void **state) {
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

static void the_same_run_twice_is_one(void **state) {
    struct fixture *fixture = *state;
    const char *body = "{\"run_id\":\"r1\",\"metadata\":{\"k\":\"v\"}}";
    const struct append_request *first = ask_ok(fixture, APPEND_RUN_CREATE, NULL, body);
    for (int round = 0; round < 2; round++) {
        const struct append_request *again = ask_ok(fixture, APPEND_RUN_CREATE, NULL, body);
        assert_true(again->deduplicated && !again->created);
        assert_memory_equal(again->event.event_hash, first->event.event_hash, SHA256_BYTES);
        assert_slice(again->entity.metadata, "{\"k\":\"v\"}");
        refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}", STATUS_ALREADY_EXISTS);
        fixture_restart(fixture);
    }
    assert_int_equal(checked_log(fixture), 1);
}

static void the_same_run_twice_in_one_batch_is_one(void **state) {
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

static void a_run_walks_through_its_states(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.started\"}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"anything\"}");
    const struct append_request *canceling =
        ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}");
    assert_slice(canceling->entity.status, "canceling");
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}",
            STATUS_INVALID_TRANSITION);
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
    assert_int_equal(checked_log(fixture), 6);
}

static void an_unknown_run_is_not_found_before_anything_else_is_looked_at(void **state) {
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

static void somebody_elses_run_takes_no_events(void **state) {
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

static void the_same_event_id_is_one_event(void **state) {
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

static void an_id_the_server_made_is_taken_too(void **state) {
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

static void the_same_key_is_one_event_of_its_entity(void **state) {
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

static void repeats_within_one_batch_are_seen(void **state) {
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
    /* The key answers before the expected sequence is looked at. */
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_KEY("k", "{}"));
    assert_true(ask_ok(fixture, APPEND_RUN_EVENT, "r1",
                       "{\"event_type\":\"x\",\"idempotency_key\":\"k\","
                       "\"expected_previous_seq\":99}")
                    ->deduplicated);
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}");
    /* The sequence before the transition, the transition before the size. */
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

/* ---- workers ---- */

static void a_worker_registers_and_lives(void **state) {
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

static void a_status_repeated_by_key_is_one_whatever_it_came_from(void **state) {
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

static void metadata_cannot_grow_past_a_payload(void **state) {
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

/* ---- topics ---- */

static void an_application_topic_comes_to_be_with_its_first_event(void **state) {
    struct fixture *fixture = *state;
    const struct append_request *first =
        ask_ok(fixture, APPEND_TOPIC_EVENT, "chat:42",
               "{\"event_type\":\"said\",\"owner_user_id\":\"u1\",\"payload\":{\"t\":\"hi\"}}");
    assert_int_equal(first->event.seq, 1);
    assert_slice(first->event.owner.user_id, "u1");
    struct store_session *session;
    struct arena arena;
    struct store_topic topic;
    struct store_event event;
    arena_init(&arena, 65536);
    assert_ok(store_session_open(fixture->store, STORE_READ, &session));
    assert_ok(store_load_topic(session, SLICE("chat:42"), &arena, &topic));
    assert_slice(topic.stream_id, "runtime.topic.chat.42");
    assert_int_equal(topic.entity_ref, first->entity.ref);
    assert_int_equal(topic.oldest_seq, 1);
    assert_ok(store_load_event(session, first->event.log_id, &arena, &event));
    assert_slice(event.owner.user_id, "u1");
    assert_ok(store_load_topic(session, SLICE("chat:42"), &arena, &topic));
    store_session_close(session);
    arena_release(&arena);
    assert_int_equal(
        ask_ok(fixture, APPEND_TOPIC_EVENT, "chat:42", "{\"event_type\":\"said\"}")->event.seq, 2);
}

static void a_stream_id_belongs_to_the_first_topic_that_has_it(void **state) {
    struct fixture *fixture = *state;
    ask_ok(fixture, APPEND_TOPIC_EVENT, "a.b", "{\"event_type\":\"x\"}");
    for (int round = 0; round < 2; round++) {
        refused(fixture, APPEND_TOPIC_EVENT, "a:b", "{\"event_type\":\"x\"}",
                STATUS_STREAM_ID_CONFLICT);
        fixture_restart(fixture);
    }
    refused(fixture, APPEND_TOPIC_EVENT, "runtime:run_summaries", "{\"event_type\":\"x\"}",
            STATUS_STREAM_ID_CONFLICT);
    refused(fixture, APPEND_TOPIC_EVENT, "runtime:audit", "{\"event_type\":\"x\"}",
            STATUS_STREAM_ID_CONFLICT);
    const char *const items[] = {
        "{\"topic\":\"c.d\",\"event_type\":\"x\"}",
        "{\"topic\":\"c:d\",\"event_type\":\"x\"}",
        "{\"topic\":\"c.d\",\"event_type\":\"x\"}",
    };
    const struct append_request *requests = wait_for(post_items(fixture, 3, items));
    assert_int_equal(requests[0].status, STATUS_OK);
    assert_int_equal(requests[1].status, STATUS_STREAM_ID_CONFLICT);
    assert_int_equal(requests[2].event.seq, 2);
}

static void the_projectors_topics_are_refused(void **state) {
    static const char *const owned[] = {"run:r:events", "worker:w:lifecycle",
                                        "fleet:user:u:workers", "runtime.run_summaries",
                                        "runtime.notifications"};
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        refused(*state, APPEND_TOPIC_EVENT, owned[i], "{\"event_type\":\"x\"}",
                STATUS_PROJECTION_OWNED_TOPIC);
}

static void notifications_and_the_audit_log_have_their_own_ways_in(void **state) {
    struct fixture *fixture = *state;
    const struct append_request *note =
        ask_ok(fixture, APPEND_NOTIFICATION, NULL, "{\"payload\":{\"text\":\"hi\"}}");
    assert_slice(note->event.entity_id, "runtime.notifications");
    assert_slice(note->event.type, "notification");
    assert_int_equal(note->event.entity_kind, ENTITY_TOPIC);
    const char *const items[] = {
        "{\"topic\":\"runtime.notifications\",\"event_type\":\"n\"}",
        "{\"audit\":true,\"event_type\":\"a\"}",
    };
    const struct append_request *requests = wait_for(post_items(fixture, 2, items));
    assert_int_equal(requests[0].event.seq, 2);
    assert_int_equal(requests[1].event.seq, 1);
    assert_int_equal(requests[1].event.entity_kind, ENTITY_AUDIT);
    fixture_restart(fixture);
    assert_int_equal(ask_ok(fixture, APPEND_AUDIT_EVENT, NULL, "{\"event_type\":\"a\"}")->event.seq,
                     2);
}

/* ---- limits ---- */

static void a_payload_too_large_stores_nothing(void **state) {
    struct fixture *fixture = *state;
    char body[400];
    fixture->policies.rows[POLICY_RUN_EVENTS].max_payload_bytes = 108;
    fixture->policies.rows[POLICY_CODEX_WORKER_EVENTS].max_payload_bytes = 107;
    new_run(fixture, "r1");
    new_worker(fixture, "w1");
    (void)snprintf(body, sizeof(body),
                   "{\"event_type\":\"worker.x\",\"payload\":{\"p\":\"%0100d\"}}", 0);
    assert_int_equal(ask_ok(fixture, APPEND_RUN_EVENT, "r1", body)->event.payload.size, 108);
    const struct append_request *worker = ask(fixture, APPEND_WORKER_EVENT, "w1", body);
    assert_int_equal(worker->status, STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
    assert_slice(worker->refusal.topic, "runtime.codex_worker_events");
    assert_string_equal(worker->refusal.topic_class, "codex_worker_events");
    assert_int_equal(worker->refusal.payload_bytes, 108);
    assert_int_equal(worker->refusal.max_payload_bytes, 107);
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"payload\":{\"p\":\"%0101d\"}}", 0);
    const struct append_request *run = ask(fixture, APPEND_RUN_EVENT, "r1", body);
    assert_int_equal(run->status, STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
    assert_slice(run->refusal.topic, "run:r1:events");
    assert_int_equal(checked_log(fixture), 3);
}

static void a_producer_too_fast_stores_nothing_and_hears_when_to_come_back(void **state) {
    struct fixture *fixture = *state;
    fixture->policies.rows[POLICY_FALLBACK].publish_rate_per_second = 4;
    for (int i = 0; i < 4; i++)
        ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
    const struct append_request *fast =
        ask(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
    assert_int_equal(fast->status, STATUS_KHALA_PUBLISH_RATE_LIMITED);
    assert_int_equal(fast->refusal.retry_after_ms, 250);
    assert_int_equal(fast->refusal.limit, 4);
    assert_slice(fast->refusal.topic, "t");
    assert_string_equal(fast->refusal.topic_class, "fallback");
    ask_ok(fixture, APPEND_TOPIC_EVENT, "another", "{\"event_type\":\"x\"}");
    clock_manual_advance_ms(&fixture->clock, 250);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}",
            STATUS_KHALA_PUBLISH_RATE_LIMITED);
    assert_int_equal(checked_log(fixture), 6);
}

static void refused_requests_take_no_token(void **state) {
    struct fixture *fixture = *state;
    fixture->policies.rows[POLICY_WORKER_LIFECYCLE].publish_rate_per_second = 5;
    fixture->policies.rows[POLICY_CODEX_WORKER_EVENTS].publish_rate_per_second = 3;
    new_worker(fixture, "w1");
    for (int i = 0; i < 10; i++)
        refused(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"stopped\"}",
                STATUS_INVALID_TRANSITION);
    ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
    ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
    /* The narrower of a worker's two limits refuses, and the wider one loses nothing by it. */
    for (int i = 0; i < 10; i++)
        refused(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}", STATUS_KHALA_PUBLISH_RATE_LIMITED);
    clock_manual_advance_ms(&fixture->clock, 334);
    ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
}

/* ---- groups ---- */

static void one_bad_item_does_not_fail_the_others(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    new_worker(fixture, "w1");
    const char *const items[] = {
        "{\"run_id\":\"r1\",\"event_type\":\"x\"}",
        "{\"run_id\":\"nobody\",\"event_type\":\"x\"}",
        "[1]",
        "{\"worker_id\":\"w1\",\"metadata_patch\":{\"a\":1}}",
        "{\"worker_id\":\"w1\",\"status\":\"running\"}",
        "{\"worker_id\":\"w1\"}",
        "{\"topic\":\"t\",\"event_type\":\"x\"}",
        "{\"run_id\":\"r1\",\"event_type\":\"y\"}",
    };
    static const enum status wanted[] = {
        STATUS_OK,
        STATUS_RUN_NOT_FOUND,
        STATUS_INVALID_REQUEST,
        STATUS_OK,
        STATUS_OK,
        STATUS_INVALID_REQUEST,
        STATUS_OK,
        STATUS_OK,
    };
    const struct append_request *requests = wait_for(post_items(fixture, 8, items));
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(requests[i].status, wanted[i]);
    assert_int_equal(requests[0].event.seq, 2);
    assert_int_equal(requests[7].event.seq, 3);
    assert_slice(requests[4].entity.metadata, "{\"a\":1}");
    assert_int_equal(checked_log(fixture), 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_run_starts_with_everything_there_is_to_know_of_it),
        TEST(a_run_without_an_id_gets_one),
        TEST(the_same_run_twice_is_one),
        TEST(the_same_run_twice_in_one_batch_is_one),
        TEST(a_run_walks_through_its_states),
        TEST(an_unknown_run_is_not_found_before_anything_else_is_looked_at),
        TEST(somebody_elses_run_takes_no_events),
        TEST(the_same_event_id_is_one_event),
        TEST(an_id_the_server_made_is_taken_too),
        TEST(the_same_key_is_one_event_of_its_entity),
        TEST(repeats_within_one_batch_are_seen),
        TEST(an_expected_sequence_must_be_the_actual_one),
        TEST(checks_come_in_the_order_of_the_specification),
        TEST(a_worker_registers_and_lives),
        TEST(a_worker_without_an_id_gets_one),
        TEST(a_worker_changes_status_only_as_allowed),
        TEST(a_live_worker_registering_again_changes_nothing),
        TEST(a_stopped_worker_is_revived_by_its_owner_only),
        TEST(a_status_repeated_by_key_is_one_whatever_it_came_from),
        TEST(metadata_cannot_grow_past_a_payload),
        TEST(an_application_topic_comes_to_be_with_its_first_event),
        TEST(a_stream_id_belongs_to_the_first_topic_that_has_it),
        TEST(the_projectors_topics_are_refused),
        TEST(notifications_and_the_audit_log_have_their_own_ways_in),
        TEST(a_payload_too_large_stores_nothing),
        TEST(a_producer_too_fast_stores_nothing_and_hears_when_to_come_back),
        TEST(refused_requests_take_no_token),
        TEST(one_bad_item_does_not_fail_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
