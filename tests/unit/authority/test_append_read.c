#include "authority/append_read.h"
#include "authority/run_report.h"
#include "test.h"

#define BODY_BYTES_MAX 65536

struct fixture {
    struct append_parser reader;
    struct arena arena;
    struct append_request request;
};

static int setup(void **state) {
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    append_parser_init(&fixture->reader, BODY_BYTES_MAX);
    arena_init(&fixture->arena, 1 << 20);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    append_parser_release(&fixture->reader);
    arena_release(&fixture->arena);
    free(fixture);
    return 0;
}

static struct json_value parsed(const char *json) {
    struct json_limits limits = {BODY_BYTES_MAX, 32};
    struct json_value value;
    assert_ok(json_parse(slice_of(json), &limits, &value));
    return value;
}

static const struct append_request *read_body(struct fixture *fixture, enum append_kind kind,
                                              const char *id, const char *json) {
    struct slice path_id = id ? slice_of(id) : (struct slice){NULL, 0};
    enum status status = append_read(&fixture->reader, kind, path_id, parsed(json), &fixture->arena,
                                     &fixture->request);
    assert_int_equal(status, fixture->request.status);
    return &fixture->request;
}

static const struct append_request *read_item(struct fixture *fixture, const char *json) {
    enum status status =
        append_read_item(&fixture->reader, parsed(json), &fixture->arena, &fixture->request);
    assert_int_equal(status, fixture->request.status);
    return &fixture->request;
}

static const struct append_request *taken(struct fixture *fixture, enum append_kind kind,
                                          const char *id, const char *json) {
    const struct append_request *request = read_body(fixture, kind, id, json);
    assert_int_equal(request->status, STATUS_OK);
    assert_null(request->refusal.message);
    return request;
}

static void refused(struct fixture *fixture, enum append_kind kind, const char *id,
                    const char *json, const char *field) {
    const struct append_request *request = read_body(fixture, kind, id, json);
    assert_string_equal(status_code(request->status), "invalid_request");
    assert_non_null(request->refusal.message);
    assert_memory_equal(request->refusal.message, field, strlen(field));
}

static void every_field_of_an_event_is_read(void **state) {
    const struct append_request *request =
        taken(*state, APPEND_RUN_EVENT, "r1",
              " {\"event_type\":\"tool.called\", \"payload\":{\"b\":1.50,\"a\":\"\\u0041\"},"
              "\"event_id\":\"018f3b7e-0000-7000-8000-00000000000a\","
              "\"idempotency_key\":\"k \\u00e9\",\"expected_previous_seq\":41,"
              "\"org_id\":\"o\",\"unknown\":[1]}");
    uint8_t digest[SHA256_BYTES];
    assert_slice(request->entity_id, "r1");
    assert_slice(request->event_type, "tool.called");
    assert_slice(request->payload, "{\"a\":\"A\",\"b\":1.5}");
    sha256(request->payload.data, request->payload.size, digest);
    assert_memory_equal(request->payload_hash, digest, SHA256_BYTES);
    assert_true(request->has_event_id);
    assert_int_equal(request->event_id.bytes[15], 0x0a);
    assert_slice(request->idempotency_key, "k \xc3\xa9");
    assert_true(request->has_expected_seq);
    assert_int_equal(request->expected_previous_seq, 41);
    assert_slice(request->owner.org_id, "o");
}

static void a_creation_says_what_the_run_is(void **state) {
    struct fixture *fixture = *state;
    const struct append_request *request =
        taken(fixture, APPEND_RUN_CREATE, NULL,
              "{\"parent_run_id\":\"p\",\"title\":\"T \\u00e9\",\"tags\":[ \"b\", \"\\u0061\" ],"
              "\"metadata\":{\"k\":1}}");
    assert_slice(request->parent_run_id, "p");
    assert_slice(request->title, "T \xc3\xa9");
    assert_slice(request->tags, "[\"b\",\"a\"]");
    refused(fixture, APPEND_RUN_CREATE, NULL, "{\"parent_run_id\":1}", "parent_run_id");
    refused(fixture, APPEND_RUN_CREATE, NULL, "{\"title\":\"\"}", "title");
    refused(fixture, APPEND_RUN_CREATE, NULL, "{\"tags\":\"a\"}", "tags");
    refused(fixture, APPEND_RUN_CREATE, NULL, "{\"tags\":[\"a\",\"\\u0061\"]}", "tags");
}

static void metadata_of_a_run_has_a_limit(void **state) {
    struct fixture *fixture = *state;
    static char body[RUN_METADATA_BYTES_MAX + 200];
    static const char *const openings[] = {
        "{\"metadata\":{\"a\":\"",
        "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"a\":\""};
    static const char *const ends[] = {"\"}}", "\"}}}"};
    static const enum append_kind kinds[] = {APPEND_RUN_CREATE, APPEND_RUN_EVENT};
    for (size_t i = 0; i < 2; i++) {
        size_t size = RUN_METADATA_BYTES_MAX - 7;
        memset(body, 'x', sizeof(body));
        memcpy(body, openings[i], strlen(openings[i]));
        strcpy(body + strlen(openings[i]) + size, ends[i]);
        const struct append_request *request = read_body(fixture, kinds[i], "r1", body);
        assert_int_equal(request->status, STATUS_PAYLOAD_TOO_LARGE);
        assert_non_null(strstr(request->refusal.message, "metadata"));
        /* The log of another server may hold it. */
        fixture->reader.takes_any_shape = true;
        assert_ok(read_body(fixture, kinds[i], "r1", body)->status);
        fixture->reader.takes_any_shape = false;
        strcpy(body + strlen(openings[i]) + size - 1, ends[i]);
        assert_int_equal(taken(fixture, kinds[i], "r1", body)->metadata.size,
                         RUN_METADATA_BYTES_MAX);
    }
}

static void what_a_run_says_has_a_shape(void **state) {
    struct fixture *fixture = *state;
    const char *body = "{\"event_type\":\"run.usage\",\"payload\":{\"input_tokens\":-1}}";
    refused(fixture, APPEND_RUN_EVENT, "r1", body, "payload.input_tokens");
    fixture->reader.takes_any_shape = true;
    taken(fixture, APPEND_RUN_EVENT, "r1", body);
    fixture->reader.takes_any_shape = false;
    taken(fixture, APPEND_TOPIC_EVENT, "topic", body);
    assert_slice(taken(fixture, APPEND_RUN_EVENT, "r1",
                       "{\"event_type\":\"run.updated\",\"payload\":{\"metadata_patch\":{\"a\":1},"
                       "\"title\":\"T\"}}")
                     ->metadata,
                 "{\"a\":1}");
}

static void absent_and_null_fields_stay_absent(void **state) {
    const struct append_request *request =
        taken(*state, APPEND_RUN_EVENT, "r1",
              "{\"event_type\":\"x\",\"payload\":null,\"event_id\":null,\"idempotency_key\":null,"
              "\"expected_previous_seq\":null,\"owner_user_id\":null}");
    uint8_t digest[SHA256_BYTES];
    sha256("{}", 2, digest);
    assert_slice(request->payload, "{}");
    assert_memory_equal(request->payload_hash, digest, SHA256_BYTES);
    assert_false(request->has_event_id || request->has_expected_seq);
    assert_null(request->idempotency_key.data);
    assert_null(request->owner.user_id.data);
    taken(*state, APPEND_RUN_CREATE, NULL, "{}");
    assert_null(((struct fixture *)*state)->request.entity_id.data);
}

static void an_invalid_body_is_refused_with_the_name_of_the_field(void **state) {
    static const char *const bodies[][2] = {
        {"event_type", "{}"},
        {"event_type", "{\"event_type\":null}"},
        {"event_type", "{\"event_type\":1}"},
        {"event_type", "{\"event_type\":\"\"}"},
        {"event_type", "{\"event_type\":\" x\"}"},
        {"event_type", "{\"event_type\":\"x\\u3000\"}"},
        {"event_type", "{\"event_type\":\"a\\u0000b\"}"},
        {"payload", "{\"event_type\":\"x\",\"payload\":[]}"},
        {"payload", "{\"event_type\":\"x\",\"payload\":\"{}\"}"},
        {"payload", "{\"event_type\":\"x\",\"payload\":0}"},
        {"event_id", "{\"event_type\":\"x\",\"event_id\":5}"},
        {"event_id", "{\"event_type\":\"x\",\"event_id\":\"\"}"},
        {"event_id",
         "{\"event_type\":\"x\",\"event_id\":\"018F3B7E-0000-7000-8000-00000000000A\"}"},
        {"event_id",
         "{\"event_type\":\"x\",\"event_id\":\"018f3b7e-0000-4000-8000-00000000000a\"}"},
        {"idempotency_key", "{\"event_type\":\"x\",\"idempotency_key\":7}"},
        {"idempotency_key", "{\"event_type\":\"x\",\"idempotency_key\":\"\"}"},
        {"idempotency_key", "{\"event_type\":\"x\",\"idempotency_key\":\"a\\u007f\"}"},
        {"expected_previous_seq", "{\"event_type\":\"x\",\"expected_previous_seq\":-1}"},
        {"expected_previous_seq", "{\"event_type\":\"x\",\"expected_previous_seq\":1.0}"},
        {"expected_previous_seq", "{\"event_type\":\"x\",\"expected_previous_seq\":\"1\"}"},
        {"expected_previous_seq",
         "{\"event_type\":\"x\",\"expected_previous_seq\":9007199254740992}"},
        {"owner_user_id",
         "{\"event_type\":\"x\",\"owner_user_id\":\"u\",\"owner_guest_scope\":\"g\"}"},
        {"owner_guest_scope", "{\"event_type\":\"x\",\"owner_guest_scope\":[]}"},
        {"payload", "{\"event_type\":\"run.finished\"}"},
        {"payload", "{\"event_type\":\"run.finished\",\"payload\":{\"status\":1}}"},
        {"payload", "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"running\"}}"},
        {"payload", "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"Failed\"}}"},
        {"A request", "[]"},
        {"A request", "\"x\""},
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        refused(*state, APPEND_RUN_EVENT, "r1", bodies[i][1], bodies[i][0]);
}

static void texts_above_their_limits_are_refused(void **state) {
    char body[1000];
    char text[600];
    memset(text, 'a', sizeof(text));
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"%.128s\"}", text);
    taken(*state, APPEND_RUN_EVENT, "r1", body);
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"%.129s\"}", text);
    refused(*state, APPEND_RUN_EVENT, "r1", body, "event_type");
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"idempotency_key\":\"%.256s\"}",
                   text);
    taken(*state, APPEND_RUN_EVENT, "r1", body);
    (void)snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"idempotency_key\":\"%.257s\"}",
                   text);
    refused(*state, APPEND_RUN_EVENT, "r1", body, "idempotency_key");
    (void)snprintf(body, sizeof(body), "{\"run_id\":\"%.257s\"}", text);
    refused(*state, APPEND_RUN_CREATE, NULL, body, "run_id");
    text[257] = 0;
    refused(*state, APPEND_RUN_EVENT, text, "{\"event_type\":\"x\"}", "run_id");
    refused(*state, APPEND_WORKER_HEARTBEAT, text, "{}", "worker_id");
    text[256] = 0;
    taken(*state, APPEND_RUN_EVENT, text, "{\"event_type\":\"x\"}");
}

static void ids_of_a_path_are_checked(void **state) {
    static const char *const bad[] = {"",     " r",   "r ",        "r\n",      "r\x7f",
                                      "\xff", "\xc3", "r\xc2\x85", "\xc2\xa0r"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(append_id_valid(slice_of(bad[i])));
        refused(*state, APPEND_RUN_EVENT, bad[i], "{\"event_type\":\"x\"}", "run_id");
    }
    assert_true(append_id_valid(SLICE("r 1/\xc3\xa9:x")));
    const struct append_request *request =
        read_body(*state, APPEND_TOPIC_EVENT, "a\nb", "{\"event_type\":\"x\"}");
    assert_int_equal(request->status, STATUS_INVALID_TOPIC);
}

static void payload_errors_keep_their_own_codes(void **state) {
    assert_int_equal(read_body(*state, APPEND_RUN_EVENT, "r",
                               "{\"event_type\":\"x\",\"payload\":{\"a\":1,\"a\":2}}")
                         ->status,
                     STATUS_JSON_DUPLICATE_KEY);
    assert_int_equal(
        read_body(*state, APPEND_RUN_EVENT, "r", "{\"event_type\":\"x\",\"payload\":{\"a\":1e999}}")
            ->status,
        STATUS_JSON_NUMBER_OUT_OF_RANGE);
    assert_int_equal(
        read_body(*state, APPEND_RUN_EVENT, "r", "{\"event_type\":\"x\",\"event_type\":\"y\"}")
            ->status,
        STATUS_JSON_DUPLICATE_KEY);
}

static void an_outcome_is_stored_in_one_spelling(void **state) {
    static const char *const outcomes[][2] = {{"succeeded", "succeeded"},
                                              {"failed", "failed"},
                                              {"canceled", "canceled"},
                                              {"cancelled", "canceled"},
                                              {"c\\u0061ncelled", "canceled"}};
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
        char body[200];
        char wanted[200];
        uint8_t digest[SHA256_BYTES];
        (void)snprintf(body, sizeof(body),
                       "{\"event_type\":\"run.finished\",\"payload\":{\"z\":\"cancelled\","
                       "\"status\":\"%s\",\"a\":2}}",
                       outcomes[i][0]);
        (void)snprintf(wanted, sizeof(wanted), "{\"a\":2,\"status\":\"%s\",\"z\":\"cancelled\"}",
                       outcomes[i][1]);
        const struct append_request *request = taken(*state, APPEND_RUN_EVENT, "r1", body);
        assert_slice(request->status_name, outcomes[i][1]);
        assert_slice(request->payload, wanted);
        sha256(wanted, strlen(wanted), digest);
        assert_memory_equal(request->payload_hash, digest, SHA256_BYTES);
    }
}

static void a_run_is_read(void **state) {
    const struct append_request *request = taken(
        *state, APPEND_RUN_CREATE, NULL,
        "{\"run_id\":\"r\",\"worker_id\":\"w\",\"thread_id\":\"t\",\"owner_guest_scope\":\"g\","
        "\"org_id\":\"o\",\"metadata\":{\"b\":1,\"a\":2}}");
    assert_slice(request->entity_id, "r");
    assert_slice(request->worker_id, "w");
    assert_slice(request->thread_id, "t");
    assert_slice(request->owner.guest_scope, "g");
    assert_slice(request->owner.org_id, "o");
    assert_slice(request->metadata, "{\"a\":2,\"b\":1}");
    refused(*state, APPEND_RUN_CREATE, NULL, "{\"metadata\":3}", "metadata");
    refused(*state, APPEND_RUN_CREATE, NULL, "{\"thread_id\":\"\"}", "thread_id");
    refused(*state, APPEND_RUN_CREATE, NULL,
            "{\"owner_user_id\":\"u\",\"owner_guest_scope\":\"g\"}", "owner_user_id");
}

static void a_worker_is_read(void **state) {
    const struct append_request *request =
        taken(*state, APPEND_WORKER_CREATE, NULL,
              "{\"worker_id\":\"w\",\"owner_user_id\":\"u\",\"workspace_ref\":\"ws\","
              "\"codex_home_ref\":\"ch\",\"adapter\":\"ad\",\"metadata\":{}}");
    assert_slice(request->entity_id, "w");
    assert_slice(request->owner.user_id, "u");
    assert_slice(request->workspace_ref, "ws");
    assert_slice(request->codex_home_ref, "ch");
    assert_slice(request->adapter, "ad");
    assert_slice(request->metadata, "{}");
    refused(*state, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w\"}", "owner_user_id");
    refused(*state, APPEND_WORKER_CREATE, NULL,
            "{\"owner_user_id\":\"u\",\"owner_guest_scope\":\"g\"}", "owner_user_id");
}

static void reports_of_a_worker_are_read(void **state) {
    const struct append_request *request = taken(*state, APPEND_WORKER_HEARTBEAT, "w", "{}");
    assert_slice(request->event_type, "worker.heartbeat");
    assert_slice(request->payload, "{}");
    assert_null(request->metadata.data);
    request =
        taken(*state, APPEND_WORKER_HEARTBEAT, "w", "{\"metadata_patch\":{\"b\":null,\"a\":1}}");
    assert_slice(request->payload, "{\"metadata_patch\":{\"a\":1,\"b\":null}}");
    assert_slice(request->metadata, "{\"a\":1,\"b\":null}");
    refused(*state, APPEND_WORKER_HEARTBEAT, "w", "{\"metadata_patch\":[]}", "metadata_patch");
    request = taken(*state, APPEND_WORKER_STATUS, "w",
                    "{\"status\":\"stopping\",\"reason\":\" line\\nbreaks \"}");
    assert_slice(request->status_name, "stopping");
    assert_slice(request->reason, " line\nbreaks ");
    refused(*state, APPEND_WORKER_STATUS, "w", "{}", "status");
    refused(*state, APPEND_WORKER_STATUS, "w", "{\"status\":\"asleep\"}", "status");
    refused(*state, APPEND_WORKER_STATUS, "w", "{\"status\":1}", "status");
    refused(*state, APPEND_WORKER_STATUS, "w", "{\"status\":\"failed\",\"reason\":2}", "reason");
    char body[1100];
    (void)snprintf(body, sizeof(body), "{\"status\":\"failed\",\"reason\":\"%01025d\"}", 0);
    refused(*state, APPEND_WORKER_STATUS, "w", body, "reason");
}

static void event_types_that_change_a_workers_state_are_refused_as_plain_events(void **state) {
    static const char *const bad[] = {"note",
                                      "worker.",
                                      "run.started",
                                      "worker.heartbeat",
                                      "worker.registered",
                                      "worker.status_changed"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char body[100];
        (void)snprintf(body, sizeof(body), "{\"event_type\":\"%s\"}", bad[i]);
        refused(*state, APPEND_WORKER_EVENT, "w", body, "event_type");
    }
    taken(*state, APPEND_WORKER_EVENT, "w", "{\"event_type\":\"worker.heartbeats\"}");
}

static void types_that_only_the_server_writes_are_refused(void **state) {
    static const char *const reserved[] = {"operator.", "operator.token_minted", "run.erased",
                                           "worker.erased", ".erased"};
    static const char *const free_ones[] = {"operator", "operators.x", "run.operator.x",
                                            "erased",   "run.erased.", "run.Erased"};
    static const enum append_kind kinds[] = {APPEND_RUN_EVENT, APPEND_TOPIC_EVENT,
                                             APPEND_AUDIT_EVENT, APPEND_NOTIFICATION};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (size_t j = 0; j < sizeof(reserved) / sizeof(reserved[0]); j++) {
            char body[100];
            (void)snprintf(body, sizeof(body), "{\"event_type\":\"%s\"}", reserved[j]);
            assert_int_equal(read_body(fixture, kinds[i], "r", body)->status,
                             STATUS_RESERVED_EVENT_TYPE);
        }
        for (size_t j = 0; j < sizeof(free_ones) / sizeof(free_ones[0]); j++) {
            char body[100];
            (void)snprintf(body, sizeof(body), "{\"event_type\":\"%s\"}", free_ones[j]);
            taken(fixture, kinds[i], "r", body);
        }
    }
}

static void an_item_names_its_target(void **state) {
    static const struct {
        const char *json;
        enum append_kind kind;
        const char *id;
    } items[] = {
        {"{\"run_id\":\"r\",\"event_type\":\"x\"}", APPEND_RUN_EVENT, "r"},
        {"{\"run_id\":\"r\\u0031\",\"event_type\":\"x\",\"topic\":null,\"audit\":false}",
         APPEND_RUN_EVENT, "r1"},
        {"{\"worker_id\":\"w\",\"event_type\":\"worker.x\"}", APPEND_WORKER_EVENT, "w"},
        {"{\"worker_id\":\"w\",\"status\":\"running\"}", APPEND_WORKER_STATUS, "w"},
        {"{\"worker_id\":\"w\",\"metadata_patch\":{}}", APPEND_WORKER_HEARTBEAT, "w"},
        {"{\"topic\":\"t:1\",\"event_type\":\"x\"}", APPEND_TOPIC_EVENT, "t:1"},
        {"{\"topic\":\"runtime.notifications\"}", APPEND_NOTIFICATION, "runtime.notifications"},
        {"{\"audit\":true,\"event_type\":\"x\"}", APPEND_AUDIT_EVENT, NULL},
    };
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        const struct append_request *request = read_item(*state, items[i].json);
        assert_int_equal(request->status, STATUS_OK);
        assert_int_equal(request->kind, items[i].kind);
        if (items[i].id)
            assert_slice(request->entity_id, items[i].id);
    }
}

static void an_item_without_one_target_is_refused(void **state) {
    static const char *const items[][2] = {
        {"run_id", "{\"event_type\":\"x\"}"},
        {"run_id", "{\"event_type\":\"x\",\"audit\":false}"},
        {"worker_id", "{\"event_type\":\"x\",\"run_id\":\"r\",\"worker_id\":\"w\"}"},
        {"audit", "{\"event_type\":\"x\",\"topic\":\"t\",\"audit\":true}"},
        {"audit", "{\"event_type\":\"x\",\"audit\":1}"},
        {"run_id", "{\"event_type\":\"x\",\"run_id\":1}"},
        {"run_id", "{\"event_type\":\"x\",\"run_id\":\"\"}"},
        {"topic", "{\"event_type\":\"x\",\"topic\":{}}"},
        {"event_type", "{\"worker_id\":\"w\"}"},
        {"event_type", "{\"run_id\":\"r\"}"},
        {"event_type", "{\"audit\":true}"},
        {"A request", "7"},
    };
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        const struct append_request *request = read_item(*state, items[i][1]);
        assert_int_equal(request->status, STATUS_INVALID_REQUEST);
        assert_memory_equal(request->refusal.message, items[i][0], strlen(items[i][0]));
    }
    assert_int_equal(read_item(*state, "{\"event_type\":\"x\",\"topic\":\"\"}")->status,
                     STATUS_INVALID_TOPIC);
}

static void a_full_arena_is_reported(void **state) {
    struct fixture *fixture = *state;
    struct arena arena;
    arena_init(&arena, 100);
    enum status status = append_read(
        &fixture->reader, APPEND_RUN_EVENT, SLICE("r"),
        parsed("{\"event_type\":\"x\",\"payload\":{\"a\":\"0123456789012345678901234567890123456789"
               "012345678901234567890123456789012345678901234567890123456789\"}}"),
        &arena, &fixture->request);
    assert_int_equal(status, STATUS_OUT_OF_MEMORY);
    arena_release(&arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_field_of_an_event_is_read),
        TEST(a_creation_says_what_the_run_is),
        TEST(metadata_of_a_run_has_a_limit),
        TEST(what_a_run_says_has_a_shape),
        TEST(absent_and_null_fields_stay_absent),
        TEST(an_invalid_body_is_refused_with_the_name_of_the_field),
        TEST(texts_above_their_limits_are_refused),
        TEST(ids_of_a_path_are_checked),
        TEST(payload_errors_keep_their_own_codes),
        TEST(an_outcome_is_stored_in_one_spelling),
        TEST(a_run_is_read),
        TEST(a_worker_is_read),
        TEST(reports_of_a_worker_are_read),
        TEST(event_types_that_change_a_workers_state_are_refused_as_plain_events),
        TEST(types_that_only_the_server_writes_are_refused),
        TEST(an_item_names_its_target),
        TEST(an_item_without_one_target_is_refused),
        TEST(a_full_arena_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
