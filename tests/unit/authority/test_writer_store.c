/* The writer and its store: what one batch asks for, and a writer role that is lost. */
#include "hooked_store.h"
#include "writer_fixture.h"

#include "base/log.h"

#define OLD_ID "018bcfe5-6800-7000-8000-0000000000"

static void open_hooked(struct fixture *fixture) {
    struct store_message message;
    assert_ok(store_open(&fixture->store, fixture->folder, true, &message));
    hook_store(fixture->store);
    fixture->options.store = fixture->store;
    assert_ok(writer_start(&fixture->writer, &fixture->options));
}

static int setup(void **state) {
    struct fixture *fixture = fixture_new_unlimited();
    open_hooked(fixture);
    *state = fixture;
    return 0;
}

static void restart(struct fixture *fixture) {
    fixture_close(fixture);
    open_hooked(fixture);
}

/* ---- prefetch ---- */

static const char *const mixed[] = {
    "{\"run_id\":\"r1\",\"event_type\":\"a\",\"event_id\":\"" OLD_ID "01\"}",
    "{\"run_id\":\"r1\",\"event_type\":\"a\",\"idempotency_key\":\"k1\"}",
    "{\"run_id\":\"r2\",\"event_type\":\"a\",\"idempotency_key\":\"k1\",\"event_id\":\"" OLD_ID
    "02\"}",
    "{\"worker_id\":\"w1\",\"status\":\"running\"}",
    "{\"topic\":\"app.one\",\"event_type\":\"a\",\"event_id\":\"" OLD_ID "03\"}",
    "{\"topic\":\"app.two\",\"event_type\":\"a\"}",
    "{\"audit\":true,\"event_type\":\"a\"}",
    "{\"run_id\":\"absent\",\"event_type\":\"a\"}",
};
#define MIXED (sizeof(mixed) / sizeof(mixed[0]))

static void make_entities(struct fixture *fixture) {
    ask_ok(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}");
    ask_ok(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r2\"}");
    ask_ok(fixture, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w1\",\"owner_user_id\":\"u\"}");
    ask_ok(fixture, APPEND_TOPIC_EVENT, "app.one", "{\"event_type\":\"a\"}");
}

static void a_batch_reads_the_store_once(void **state) {
    struct fixture *fixture = *state;
    make_entities(fixture);
    for (int round = 0; round < 3; round++) {
        /* In the first and the last round nothing is in memory. */
        if (round != 1)
            restart(fixture);
        uint64_t reads = hooks.other_reads, prefetches = hooks.prefetches;
        struct append_request *requests = wait_for(post_items(fixture, MIXED, mixed));
        for (size_t i = 0; i + 1 < MIXED; i++) {
            assert_int_equal(requests[i].status, STATUS_OK);
            bool is_repeatable = requests[i].has_event_id || requests[i].idempotency_key.data;
            assert_int_equal(requests[i].deduplicated, round > 0 && is_repeatable);
        }
        assert_int_equal(requests[MIXED - 1].status, STATUS_RUN_NOT_FOUND);
        assert_int_equal(hooks.prefetches, prefetches + 1);
        assert_int_equal(hooks.other_reads, reads);
    }
}

static void cached_entities_and_new_ids_need_no_store_read(void **state) {
    struct fixture *fixture = *state;
    make_entities(fixture);
    uint64_t prefetches = hooks.prefetches;
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"a\"}");
    /* Dated after every id of the log. */
    ask_ok(fixture, APPEND_RUN_EVENT, "r1",
           "{\"event_type\":\"a\",\"event_id\":\"01ffffff-6800-7000-8000-000000000001\"}");
    assert_int_equal(hooks.prefetches, prefetches);
}

static void requests_of_one_batch_see_each_other(void **state) {
    struct fixture *fixture = *state;
    static const char *const items[] = {
        "{\"run_id\":\"new\",\"event_type\":\"a\",\"event_id\":\"" OLD_ID "11\"}",
        "{\"run_id\":\"new\",\"event_type\":\"a\",\"event_id\":\"" OLD_ID "11\"}",
        "{\"run_id\":\"new\",\"event_type\":\"b\",\"event_id\":\"" OLD_ID "11\"}",
        "{\"run_id\":\"new\",\"event_type\":\"a\",\"idempotency_key\":\"k\"}",
        "{\"run_id\":\"new\",\"event_type\":\"a\",\"idempotency_key\":\"k\"}",
        "{\"topic\":\"a.b\",\"event_type\":\"a\"}",
        "{\"topic\":\"a:b\",\"event_type\":\"a\"}",
    };
    static const enum status expected[] = {
        STATUS_OK, STATUS_OK, STATUS_EVENT_ID_CONFLICT, STATUS_OK,
        STATUS_OK, STATUS_OK, STATUS_STREAM_ID_CONFLICT};
    static const uint64_t seqs[] = {2, 2, 0, 3, 3, 1, 0};
    /* The second round is answered from the store. */
    for (int round = 0; round < 2; round++) {
        uint64_t prefetches = hooks.prefetches;
        gate_shut(fixture);
        struct asked *first = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"new\"}");
        struct asked *second = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"new\"}");
        struct asked *asked = post_items(fixture, 7, items);
        gate_open(fixture);
        assert_int_equal(wait_for(first)->deduplicated, round > 0);
        assert_true(wait_for(second)->deduplicated);
        assert_int_equal(first->requests[0].event.seq, 1);
        assert_int_equal(second->requests[0].event.log_id, first->requests[0].event.log_id);
        const struct append_request *requests = wait_for(asked);
        for (size_t i = 0; i < 7; i++) {
            print_message("round %d, item %zu\n", round, i);
            assert_string_equal(status_code(requests[i].status), status_code(expected[i]));
            if (expected[i] == STATUS_OK && i != 5)
                assert_int_equal(requests[i].event.seq, seqs[i]);
        }
        /* One for the event that holds the gate, one for the batch. */
        assert_int_equal(hooks.prefetches, prefetches + 2);
        restart(fixture);
    }
}

static void a_prefetch_that_fails_fails_the_batch_and_the_next_one_works(void **state) {
    struct fixture *fixture = *state;
    make_entities(fixture);
    restart(fixture);
    hooks.prefetch_answer = STATUS_STORE_UNAVAILABLE;
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"a\"}", STATUS_STORE_UNAVAILABLE);
    refused(fixture, APPEND_RUN_EVENT, "none", "{\"event_type\":\"a\"}", STATUS_STORE_UNAVAILABLE);
    hooks.prefetch_answer = STATUS_OK;
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"a\"}");
    refused(fixture, APPEND_RUN_EVENT, "none", "{\"event_type\":\"a\"}", STATUS_RUN_NOT_FOUND);
}

/* ---- the writer role ---- */

static void never_run(struct writer_job *job, struct store_session *store) {
    (void)job;
    (void)store;
    fail();
}

static void assert_lost(struct fixture *fixture) {
    struct writer_job job = {.run = never_run};
    enum reason reason;
    assert_true(writer_is_failing(fixture->writer, &reason));
    assert_int_equal(reason, REASON_WRITER_LOST);
    assert_int_equal(status_http(STATUS_WRITER_LOST), 503);
    /* The store is not asked again, although it would answer now. */
    hooks.commit_answer = hooks.prefetch_answer = STATUS_OK;
    uint64_t calls = hooks.commits + hooks.prefetches + hooks.other_reads;
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"a\"}", STATUS_WRITER_LOST);
    refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}", STATUS_WRITER_LOST);
    assert_int_equal(writer_post_job(fixture->writer, &job), STATUS_WRITER_LOST);
    assert_int_equal(hooks.commits + hooks.prefetches + hooks.other_reads, calls);
}

static void a_commit_that_loses_the_role_acknowledges_nothing(void **state) {
    struct fixture *fixture = *state;
    make_entities(fixture);
    uint64_t events = checked_log(fixture);
    gate_shut(fixture);
    hooks.commit_answer = STATUS_WRITER_LOST;
    /* The first is not stored; the second would be answered with it; the third is refused
     * because of it; the fourth was answered before. */
    struct asked *first = post(fixture, APPEND_RUN_EVENT, "r1",
                               "{\"event_type\":\"a\",\"event_id\":\"" OLD_ID "21\"}");
    struct asked *second = post(fixture, APPEND_RUN_EVENT, "r1",
                                "{\"event_type\":\"a\",\"event_id\":\"" OLD_ID "21\"}");
    struct asked *third = post(fixture, APPEND_RUN_EVENT, "r1",
                               "{\"event_type\":\"b\",\"event_id\":\"" OLD_ID "21\"}");
    struct asked *fourth = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r2\"}");
    gate_open(fixture);
    assert_string_equal(status_code(wait_for(first)->status), "writer_lost");
    assert_string_equal(status_code(wait_for(second)->status), "writer_lost");
    assert_string_equal(status_code(wait_for(third)->status), "writer_lost");
    assert_int_equal(wait_for(fourth)->status, STATUS_OK);
    assert_int_equal(first->requests[0].event.log_id, 0);
    assert_lost(fixture);
    assert_int_equal(checked_log(fixture), events + 1);
    /* A new writer on the same store begins from what is stored. */
    restart(fixture);
    struct append_request *again = ask_ok(fixture, APPEND_RUN_EVENT, "r1",
                                          "{\"event_type\":\"b\",\"event_id\":\"" OLD_ID "21\"}");
    assert_int_equal(again->event.seq, 2);
}

static void a_prefetch_that_loses_the_role_acknowledges_nothing(void **state) {
    struct fixture *fixture = *state;
    make_entities(fixture);
    uint64_t commits = hooks.commits;
    hooks.prefetch_answer = STATUS_WRITER_LOST;
    refused(fixture, APPEND_RUN_EVENT, "unknown", "{\"event_type\":\"a\"}", STATUS_WRITER_LOST);
    assert_int_equal(hooks.commits, commits);
    assert_lost(fixture);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_batch_reads_the_store_once),
        TEST(cached_entities_and_new_ids_need_no_store_read),
        TEST(requests_of_one_batch_see_each_other),
        TEST(a_prefetch_that_fails_fails_the_batch_and_the_next_one_works),
        TEST(a_commit_that_loses_the_role_acknowledges_nothing),
        TEST(a_prefetch_that_loses_the_role_acknowledges_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
