/* The rules of the authority for topics, limits and groups of requests, through the writer, on a
 * real store. */
#include "authority/rules_fixture.h"

/* ---- topics ---- */

static void the_first_event_of_an_application_topic_creates_it(void **state) {
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

static void appends_to_projected_topics_are_refused(void **state) {
    static const char *const owned[] = {"run:r:events", "worker:w:lifecycle",
                                        "fleet:user:u:workers", "runtime.run_summaries",
                                        "runtime.notifications"};
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        refused(*state, APPEND_TOPIC_EVENT, owned[i], "{\"event_type\":\"x\"}",
                STATUS_PROJECTION_OWNED_TOPIC);
}

/* Requests that follow each other share the lookup of their entity. */
static void requests_of_a_batch_find_their_own_topics(void **state) {
    const char *const items[] = {
        "{\"topic\":\"new.one\",\"event_type\":\"x\"}",
        "{\"topic\":\"new.one\",\"event_type\":\"x\"}",
        "{\"topic\":\"run:r:events\",\"event_type\":\"x\"}",
        "{\"topic\":\"run:r:events\",\"event_type\":\"x\"}",
        "{\"topic\":\"new.one\",\"event_type\":\"x\"}",
        "{\"topic\":\"new.two\",\"event_type\":\"x\"}",
        "{\"topic\":\"new.two\",\"event_type\":\"x\"}",
    };
    static const uint64_t seqs[] = {1, 2, 0, 0, 3, 1, 2};
    const struct append_request *requests = wait_for(post_items(*state, 7, items));
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(requests[i].status,
                         seqs[i] > 0 ? STATUS_OK : STATUS_PROJECTION_OWNED_TOPIC);
        assert_int_equal(requests[i].event.seq, seqs[i]);
    }
}

static void notifications_and_audit_events_have_requests_of_their_own(void **state) {
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

static void a_payload_above_the_limit_stores_nothing(void **state) {
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
    assert_string_equal(publish_class_name(worker->refusal.policy->publish_class),
                        "codex_worker_events");
    assert_int_equal(worker->refusal.payload_bytes, 108);
    assert_int_equal(worker->refusal.max_payload_bytes, 107);
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"payload\":{\"p\":\"%0101d\"}}", 0);
    const struct append_request *run = ask(fixture, APPEND_RUN_EVENT, "r1", body);
    assert_int_equal(run->status, STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
    assert_slice(run->refusal.topic, "run:r1:events");
    assert_int_equal(checked_log(fixture), 3);
}

static void a_producer_over_its_rate_stores_nothing_and_learns_when_to_retry(void **state) {
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
    assert_string_equal(publish_class_name(fast->refusal.policy->publish_class), "fallback");
    ask_ok(fixture, APPEND_TOPIC_EVENT, "another", "{\"event_type\":\"x\"}");
    clock_manual_advance_ms(&fixture->clock, 250);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}",
            STATUS_KHALA_PUBLISH_RATE_LIMITED);
    assert_int_equal(checked_log(fixture), 6);
}

static void a_producer_of_a_topic_uses_up_its_own_rate_only(void **state) {
    static const struct slice room = SLICE("t");
    static const struct principal ada = {
        .identity.user_id = SLICE("ada"), .topics = {&room, 1}, .scopes = SCOPE_APPEND};
    static const struct principal eve = {
        .identity.user_id = SLICE("eve"), .topics = {&room, 1}, .scopes = SCOPE_APPEND};
    struct fixture *fixture = *state;
    fixture->policies.rows[POLICY_FALLBACK].publish_rate_per_second = 4;
    fixture->reader.producer = &ada;
    for (int i = 0; i < 4; i++)
        ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}",
            STATUS_KHALA_PUBLISH_RATE_LIMITED);
    fixture->reader.producer = &eve;
    for (int i = 0; i < 3; i++)
        ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
    /* An operator's appends count for the owner that they name. */
    fixture->reader.producer = NULL;
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\",\"owner_user_id\":\"ada\"}",
            STATUS_KHALA_PUBLISH_RATE_LIMITED);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\",\"owner_user_id\":\"eve\"}");
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\",\"owner_user_id\":\"eve\"}",
            STATUS_KHALA_PUBLISH_RATE_LIMITED);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}");
}

static void refused_requests_take_no_token_from_the_bucket(void **state) {
    struct fixture *fixture = *state;
    fixture->policies.rows[POLICY_WORKER_LIFECYCLE].publish_rate_per_second = 5;
    fixture->policies.rows[POLICY_CODEX_WORKER_EVENTS].publish_rate_per_second = 3;
    new_worker(fixture, "w1");
    for (int i = 0; i < 10; i++)
        refused(fixture, APPEND_WORKER_STATUS, "w1", "{\"status\":\"stopped\"}",
                STATUS_INVALID_TRANSITION);
    ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
    ask_ok(fixture, APPEND_WORKER_HEARTBEAT, "w1", "{}");
    /* The narrower of a worker's two limits refuses, and takes no token of the wider one. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_first_event_of_an_application_topic_creates_it),
        TEST(a_stream_id_belongs_to_the_first_topic_that_has_it),
        TEST(appends_to_projected_topics_are_refused),
        TEST(requests_of_a_batch_find_their_own_topics),
        TEST(notifications_and_audit_events_have_requests_of_their_own),
        TEST(a_payload_above_the_limit_stores_nothing),
        TEST(a_producer_over_its_rate_stores_nothing_and_learns_when_to_retry),
        TEST(a_producer_of_a_topic_uses_up_its_own_rate_only),
        TEST(refused_requests_take_no_token_from_the_bucket),
        TEST(one_bad_item_does_not_fail_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
