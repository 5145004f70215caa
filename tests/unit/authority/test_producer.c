/* Producers: what the writer lets a token without the operator key append. */
#include "authority/rules_fixture.h"

static const struct slice room = SLICE("room:1");
static const struct slice bobs_run = SLICE("run:bobs:events");

static const struct principal ada = {
    .identity.user_id = SLICE("ada"), .topics = {&room, 1}, .scopes = SCOPE_APPEND};
static const struct principal granted = {
    .identity.user_id = SLICE("ada"), .topics = {&bobs_run, 1}, .scopes = SCOPE_APPEND};
static const struct principal everything = {
    .identity.user_id = SLICE("ada"), .read_all = true, .scopes = SCOPE_APPEND};
static const struct principal unnamed = {.scopes = SCOPE_APPEND};

#define CREATE_BOBS "{\"run_id\":\"bobs\",\"owner_user_id\":\"bob\"}"
#define LOG         "{\"event_type\":\"run.log\"}"

static void as(struct fixture *fixture, const struct principal *producer) {
    fixture->reader.producer = producer;
}

static void a_creation_gets_the_owner_of_its_producer(void **state) {
    as(*state, &ada);
    const struct append_request *request =
        ask_ok(*state, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"mine\"}");
    assert_slice(request->entity.owner.user_id, "ada");
    refused(*state, APPEND_RUN_CREATE, NULL, CREATE_BOBS, STATUS_OWNER_MISMATCH);
    as(*state, &unnamed);
    refused(*state, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"x\"}", STATUS_OWNER_MISMATCH);
}

static void only_the_owner_or_an_exact_grant_appends(void **state) {
    ask_ok(*state, APPEND_RUN_CREATE, NULL, CREATE_BOBS);
    as(*state, &ada);
    refused(*state, APPEND_RUN_EVENT, "bobs", LOG, STATUS_OWNER_MISMATCH);
    refused(*state, APPEND_RUN_EVENT, "none", LOG, STATUS_RUN_NOT_FOUND);
    refused(*state, APPEND_TOPIC_EVENT, "room:2", LOG, STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_AUDIT_EVENT, NULL, LOG, STATUS_FORBIDDEN_TOPIC);
    ask_ok(*state, APPEND_TOPIC_EVENT, "room:1", LOG);
    as(*state, &everything);
    refused(*state, APPEND_RUN_EVENT, "bobs", LOG, STATUS_OWNER_MISMATCH);
    as(*state, &granted);
    ask_ok(*state, APPEND_RUN_EVENT, "bobs", LOG);
    refused(*state, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"bobs\"}", STATUS_OWNER_MISMATCH);
}

/* The run exists only in the batch under way. */
static void the_owner_counts_within_one_commit(void **state) {
    struct fixture *fixture = *state;
    gate_shut(fixture);
    struct asked *created = post(fixture, APPEND_RUN_CREATE, NULL, CREATE_BOBS);
    as(fixture, &ada);
    struct asked *foreign = post(fixture, APPEND_RUN_EVENT, "bobs", LOG);
    struct asked *taken = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"bobs\"}");
    as(fixture, NULL);
    gate_open(fixture);
    assert_int_equal(wait_for(created)->status, STATUS_OK);
    assert_int_equal(wait_for(foreign)->status, STATUS_OWNER_MISMATCH);
    assert_int_equal(wait_for(taken)->status, STATUS_OWNER_MISMATCH);
}

static void a_producer_changes_no_owner(void **state) {
    static const struct principal member = {
        .identity = {.user_id = SLICE("u1"), .org_id = SLICE("acme")}, .scopes = SCOPE_APPEND};
    new_worker(*state, "w");
    as(*state, &member);
    ask_ok(*state, APPEND_WORKER_STATUS, "w", "{\"status\":\"failed\"}");
    const struct append_request *again =
        ask_ok(*state, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w\"}");
    assert_false(again->deduplicated);
    assert_slice(again->entity.owner.user_id, "u1");
    assert_null(again->entity.owner.org_id.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_creation_gets_the_owner_of_its_producer),
        TEST(only_the_owner_or_an_exact_grant_appends),
        TEST(the_owner_counts_within_one_commit),
        TEST(a_producer_changes_no_owner),
    };
    return cmocka_run_group_tests_name("producer", tests, NULL, NULL);
}
