/* Producers: what the writer lets a token without the operator key append. */
#include "authority/rules_fixture.h"

static const struct slice room = SLICE("room:1");
static const struct slice bobs_run = SLICE("run:bobs:events");

static const struct principal ada = {.identity.user_id = SLICE("ada"), .scopes = SCOPE_APPEND};
static const struct principal visitor = {
    .identity.user_id = SLICE("ada"), .topics = {&room, 1}, .scopes = SCOPE_APPEND};
static const struct principal canceller = {.identity.user_id = SLICE("bob"),
                                           .scopes = SCOPE_CANCEL};
static const struct principal granted = {
    .identity.user_id = SLICE("ada"), .topics = {&bobs_run, 1}, .scopes = SCOPE_APPEND};
static const struct principal everything = {
    .identity.user_id = SLICE("ada"), .read_all = true, .scopes = SCOPE_APPEND};
static const struct principal unnamed = {.scopes = SCOPE_APPEND};

#define CREATE_BOBS "{\"run_id\":\"bobs\",\"owner_user_id\":\"bob\"}"
#define LOG         "{\"event_type\":\"run.log\"}"
#define CANCEL      "{\"event_type\":\"run.cancel_requested\"}"

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
    refused(*state, APPEND_RUN_EVENT, "bobs", LOG, STATUS_RUN_NOT_FOUND);
    refused(*state, APPEND_RUN_EVENT, "none", LOG, STATUS_RUN_NOT_FOUND);
    refused(*state, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"bobs\"}", STATUS_ALREADY_EXISTS);
    refused(*state, APPEND_TOPIC_EVENT, "room:1", LOG, STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_AUDIT_EVENT, NULL, LOG, STATUS_FORBIDDEN_TOPIC);
    as(*state, &everything);
    refused(*state, APPEND_RUN_EVENT, "bobs", LOG, STATUS_RUN_NOT_FOUND);
    as(*state, &granted);
    ask_ok(*state, APPEND_RUN_EVENT, "bobs", LOG);
}

static void grants_are_all_that_a_producer_may_append_to(void **state) {
    ask_ok(*state, APPEND_RUN_CREATE, NULL, CREATE_BOBS);
    new_worker(*state, "w");
    as(*state, &ada);
    ask_ok(*state, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"mine\"}");
    ask_ok(*state, APPEND_NOTIFICATION, NULL, "{}");
    as(*state, &visitor);
    ask_ok(*state, APPEND_TOPIC_EVENT, "room:1", LOG);
    refused(*state, APPEND_TOPIC_EVENT, "room:2", LOG, STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_NOTIFICATION, NULL, "{}", STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_RUN_CREATE, NULL, "{}", STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w\"}", STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_WORKER_HEARTBEAT, "w", "{}", STATUS_FORBIDDEN_TOPIC);
    /* Its own run, another's and one that does not exist: the token alone decides. */
    refused(*state, APPEND_RUN_EVENT, "mine", LOG, STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_RUN_EVENT, "bobs", LOG, STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_RUN_EVENT, "none", LOG, STATUS_FORBIDDEN_TOPIC);
    char id[APPEND_ID_BYTES_MAX + 1] = {0};
    memset(id, '*', sizeof(id) - 1);
    refused(*state, APPEND_RUN_EVENT, id, LOG, STATUS_FORBIDDEN_TOPIC);
    as(*state, &granted);
    refused(*state, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"bobs\"}", STATUS_FORBIDDEN_TOPIC);
    refused(*state, APPEND_RUN_EVENT, "mine", LOG, STATUS_FORBIDDEN_TOPIC);
    as(*state, NULL);
    ask_ok(*state, APPEND_RUN_EVENT, "bobs", LOG);
}

static void a_token_to_cancel_appends_nothing_else(void **state) {
    static const struct principal stranger = {.identity.user_id = SLICE("eve"),
                                              .scopes = SCOPE_CANCEL};
    ask_ok(*state, APPEND_RUN_CREATE, NULL, CREATE_BOBS);
    as(*state, &canceller);
    refused(*state, APPEND_RUN_EVENT, "bobs", LOG, STATUS_MISSING_SCOPE);
    refused(*state, APPEND_RUN_CREATE, NULL, "{}", STATUS_MISSING_SCOPE);
    refused(*state, APPEND_NOTIFICATION, NULL, "{}", STATUS_MISSING_SCOPE);
    refused(*state, APPEND_TOPIC_EVENT, "room:1", CANCEL, STATUS_MISSING_SCOPE);
    refused(*state, APPEND_RUN_EVENT, "none", CANCEL, STATUS_RUN_NOT_FOUND);
    const struct append_request *canceled = ask_ok(*state, APPEND_RUN_EVENT, "bobs", CANCEL);
    assert_slice(canceled->entity.status, "canceling");
    as(*state, &stranger);
    refused(*state, APPEND_RUN_EVENT, "bobs", CANCEL, STATUS_RUN_NOT_FOUND);
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
    assert_int_equal(wait_for(foreign)->status, STATUS_RUN_NOT_FOUND);
    assert_int_equal(wait_for(taken)->status, STATUS_ALREADY_EXISTS);
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
        TEST(grants_are_all_that_a_producer_may_append_to),
        TEST(a_token_to_cancel_appends_nothing_else),
        TEST(the_owner_counts_within_one_commit),
        TEST(a_producer_changes_no_owner),
    };
    return cmocka_run_group_tests_name("producer", tests, NULL, NULL);
}
