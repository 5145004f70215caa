/* Sessions of PostgreSQL that are lost, the writer role, and derived tables that are dropped. */
#include "backend_postgres.h"
#include "base/limits.h"
#include "lookup.h"
#include "rows.h"
#include "store/store_maintenance.h"

/* Ends all other sessions of the database, and waits until they are gone. */
static void terminate(struct fixture *fixture) {
    pg_run(fixture->place, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE "
                           "datname = current_database() AND pid <> pg_backend_pid()");
}

static enum status commit_one(struct fixture *fixture, uint64_t log_id) {
    struct store_event event = rows_event(log_id, 1, log_id);
    return store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1});
}

/* The pause between two attempts to connect may have to pass. */
static void take_role(struct fixture *fixture) {
    enum status status = STATUS_WRITER_LOST;
    while (status == STATUS_WRITER_LOST)
        status = store_take_role(fixture->writer);
    assert_ok(status);
}

static uint64_t log_end(struct store_session *session) {
    struct store_state state;
    assert_ok(store_read_state(session, &state));
    return state.log_id;
}

static void a_session_lost_between_prefetch_and_commit_may_not_write(void **state) {
    struct fixture *fixture = *state;
    uint64_t log_id = 0;
    struct store_message message;
    assert_ok(commit_one(fixture, 1));
    struct uuid id = rows_cursor(1);
    assert_ok(lookup_event_id(fixture->writer, &id, &log_id));
    terminate(fixture);
    assert_int_equal(commit_one(fixture, 2), STATUS_WRITER_LOST);
    assert_true(strlen(store_session_error(fixture->writer)) > 0);
    assert_int_equal(commit_one(fixture, 2), STATUS_WRITER_LOST);
    assert_int_equal(store_check_location(fixture->store, &message), STATUS_STORE_UNAVAILABLE);
    assert_int_equal(log_end(fixture->reader), 1);
    take_role(fixture);
    assert_ok(store_check_location(fixture->store, &message));
    assert_int_equal(log_end(fixture->writer), 1);
    assert_ok(commit_one(fixture, 2));
    assert_int_equal(log_end(fixture->reader), 2);
}

static void every_call_of_a_lost_write_session_says_so(void **state) {
    struct fixture *fixture = *state;
    struct store_state read;
    struct store_prune prune = {.topic_ref = 1, .below_seq = 1, .limit = 1};
    struct store_prefetch prefetch = {0};
    struct store_entity_lookup entity = {.kind = ENTITY_RUN, .id = SLICE("x")};
    int64_t wait_ms = 0;
    assert_ok(commit_one(fixture, 1));
    prefetch.entities = &entity;
    prefetch.entity_count = 1;
    terminate(fixture);
    assert_int_equal(store_prefetch(fixture->writer, &prefetch), STATUS_WRITER_LOST);
    assert_int_equal(store_read_state(fixture->writer, &read), STATUS_WRITER_LOST);
    assert_int_equal(store_prune_topics(fixture->writer, &prune, 1), STATUS_WRITER_LOST);
    assert_int_equal(store_heal(fixture->writer, 1), STATUS_WRITER_LOST);
    struct store_single_use use = {SINGLE_USE_TOKEN, SLICE("a"), 2, false};
    assert_int_equal(store_use_once(fixture->writer, &use, 1, 1), STATUS_WRITER_LOST);
    assert_int_equal(store_keep_alive(fixture->writer, &wait_ms), STATUS_WRITER_LOST);
    take_role(fixture);
    assert_ok(store_prefetch(fixture->writer, &prefetch));
    assert_ok(store_keep_alive(fixture->writer, &wait_ms));
    assert_true(wait_ms > 0);
}

static void a_higher_term_stops_the_writer(void **state) {
    struct fixture *fixture = *state;
    assert_ok(commit_one(fixture, 1));
    pg_run(fixture->place, "UPDATE runtime.writer SET term = term + 1");
    assert_int_equal(commit_one(fixture, 2), STATUS_WRITER_LOST);
    assert_int_equal(log_end(fixture->reader), 1);
    take_role(fixture);
    assert_ok(commit_one(fixture, 2));
}

/* As a dump that is restored: the term is the same, and the log is shorter. */
static void a_schema_that_was_made_again_stops_the_writer(void **state) {
    struct fixture *fixture = *state;
    assert_ok(commit_one(fixture, 1));
    assert_ok(commit_one(fixture, 2));
    pg_run(fixture->place,
           "BEGIN; ALTER TABLE runtime.writer RENAME TO writer_before; CREATE TABLE runtime.writer "
           "(LIKE runtime.writer_before INCLUDING ALL); INSERT INTO runtime.writer SELECT * FROM "
           "runtime.writer_before; DELETE FROM runtime.events WHERE log_id = 2; COMMIT");
    assert_int_equal(commit_one(fixture, 3), STATUS_WRITER_LOST);
    take_role(fixture);
    assert_int_equal(log_end(fixture->writer), 1);
}

static void a_read_session_connects_again_by_itself(void **state) {
    struct fixture *fixture = *state;
    assert_ok(commit_one(fixture, 1));
    assert_int_equal(log_end(fixture->reader), 1);
    for (int i = 0; i < 3; i++) {
        terminate(fixture);
        assert_int_equal(log_end(fixture->reader), 1);
    }
}

static void a_snapshot_that_lost_its_session_fails_until_its_end(void **state) {
    struct fixture *fixture = *state;
    struct store_state read;
    assert_ok(store_read_begin(fixture->reader));
    terminate(fixture);
    assert_int_equal(store_read_state(fixture->reader, &read), STATUS_STORE_UNAVAILABLE);
    assert_int_equal(store_read_state(fixture->reader, &read), STATUS_STORE_UNAVAILABLE);
    store_read_end(fixture->reader);
    assert_int_equal(log_end(fixture->reader), 0);
}

static enum status count_drift(void *user, const struct store_drift *drift) {
    assert_non_null(drift->subject.data);
    (*(int *)user)++;
    return STATUS_OK;
}

static void a_dropped_derived_table_is_made_again(void **state) {
    static const char *const tables[] = {"topics",
                                         "journal",
                                         "checkpoints",
                                         "run_documents",
                                         "worker_documents",
                                         "summary_metadata",
                                         "khala_projection_drifts"};
    struct fixture *fixture = *state;
    uint64_t log_id = 0;
    struct rows_text id, key;
    struct store_entity run = rows_run(2, &id);
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, 2, 1, &key);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char sql[128];
        struct store_message message;
        struct store_topic topic;
        int drifts = 0;
        snprintf(sql, sizeof(sql), "DROP TABLE runtime.%s CASCADE", tables[i]);
        pg_run(fixture->place, sql);
        assert_int_equal(store_check_derived(fixture->reader, &message), STATUS_INTERNAL_ERROR);
        assert_non_null(strstr(message.text, "derived table"));
        assert_ok(store_heal(fixture->writer, 1));
        assert_ok(store_check_derived(fixture->reader, &message));
        assert_ok(store_walk_drifts(fixture->reader, 100, &drifts, count_drift));
        assert_true(drifts > 0);
        log_id++;
        struct store_event event = rows_event(log_id, 2, log_id);
        assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                      .entity_count = 1,
                                                                      .events = &event,
                                                                      .event_count = 1,
                                                                      .documents = &document,
                                                                      .document_count = 1}));
        assert_ok(store_load_topic(fixture->reader, SLICE("runtime.run_summaries"), &fixture->arena,
                                   &topic));
    }
    pg_run(fixture->place, "DROP TABLE runtime.journal CASCADE");
    fixture_reopen(fixture);
    pg_run(fixture->place, "SELECT * FROM runtime.sync_stream_events");
}

static void a_statement_on_a_missing_table_is_damage(void **state) {
    struct fixture *fixture = *state;
    struct rows_text key;
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, 1, 1, &key);
    struct store_batch batch = {.documents = &document, .document_count = 1};
    assert_ok(store_commit(fixture->writer, &batch));
    pg_run(fixture->place, "DROP TABLE runtime.run_documents CASCADE");
    assert_int_equal(store_commit(fixture->writer, &batch), STATUS_INTERNAL_ERROR);
    assert_ok(store_heal(fixture->writer, 1));
    assert_ok(store_commit(fixture->writer, &batch));
}

static void a_read_only_database_refuses_a_commit_with_its_reason(void **state) {
    struct fixture *fixture = *state;
    char sql[256];
    snprintf(sql, sizeof(sql), "ALTER DATABASE %s SET default_transaction_read_only = on",
             strrchr(fixture->place, '/') + 1);
    assert_ok(commit_one(fixture, 1));
    pg_run(fixture->place, sql);
    terminate(fixture);
    assert_int_equal(commit_one(fixture, 2), STATUS_WRITER_LOST);
    assert_int_equal(store_take_role(fixture->writer), STATUS_WRITER_LOST);
    assert_non_null(strstr(store_session_error(fixture->writer), "default_transaction_read_only"));
    assert_int_equal(log_end(fixture->reader), 1);
}

/* The fixture has two of them. */
static void sessions_of_a_store_are_bounded(void **state) {
    struct fixture *fixture = *state;
    struct store_session *opened[POSTGRES_SESSIONS_MAX];
    size_t count = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && count < POSTGRES_SESSIONS_MAX) {
        status = store_session_open(fixture->store, STORE_READ, &opened[count]);
        if (status == STATUS_OK)
            count++;
    }
    assert_int_equal(status, STATUS_LIMIT_REACHED);
    assert_int_equal(count, POSTGRES_SESSIONS_MAX - 2);
    /* A session that is closed makes room for another. */
    store_session_close(opened[--count]);
    assert_ok(store_session_open(fixture->store, STORE_READ, &opened[count++]));
    while (count > 0)
        store_session_close(opened[--count]);
}

static void a_session_that_waited_while_the_store_was_moved_does_not_get_the_role(void **state) {
    struct fixture *fixture = *state;
    assert_ok(commit_one(fixture, 1));
    pg_run(fixture->place, "INSERT INTO runtime.meta VALUES ('move_out', 'complete 1 elsewhere')");
    terminate(fixture);
    assert_int_equal(commit_one(fixture, 2), STATUS_WRITER_LOST);
    assert_int_equal(store_take_role(fixture->writer), STATUS_WRITER_LOST);
    assert_non_null(strstr(store_session_error(fixture->writer), "moved elsewhere"));
    pg_run(fixture->place, "DELETE FROM runtime.meta WHERE name = 'move_out'");
    take_role(fixture);
    assert_ok(commit_one(fixture, 2));
}

static uint64_t rows_of_commit(struct fixture *fixture, uint64_t log_id) {
    uint64_t before = store_session_rows_read(fixture->writer);
    assert_ok(commit_one(fixture, log_id));
    return store_session_rows_read(fixture->writer) - before;
}

static void a_commit_asks_for_no_position_that_its_session_stored(void **state) {
    struct fixture *fixture = *state;
    assert_ok(commit_one(fixture, 1));
    fixture_reopen(fixture);
    /* The state of the log was read when the session began. */
    assert_int_equal(log_end(fixture->writer), 1);
    struct store_prefetch nothing = {0};
    assert_ok(store_prefetch(fixture->writer, &nothing));
    uint64_t unknown = rows_of_commit(fixture, 2);
    assert_int_equal(rows_of_commit(fixture, 3), unknown - 1);
    /* A session that was lost knows nothing any more. */
    terminate(fixture);
    assert_int_equal(commit_one(fixture, 4), STATUS_WRITER_LOST);
    take_role(fixture);
    assert_ok(store_prefetch(fixture->writer, &nothing));
    assert_int_equal(rows_of_commit(fixture, 4), unknown);
    assert_int_equal(rows_of_commit(fixture, 5), unknown - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_of_a_store_are_bounded),
        cmocka_unit_test(a_session_lost_between_prefetch_and_commit_may_not_write),
        cmocka_unit_test(every_call_of_a_lost_write_session_says_so),
        cmocka_unit_test(a_higher_term_stops_the_writer),
        cmocka_unit_test(a_schema_that_was_made_again_stops_the_writer),
        cmocka_unit_test(a_commit_asks_for_no_position_that_its_session_stored),
        cmocka_unit_test(a_read_session_connects_again_by_itself),
        cmocka_unit_test(a_snapshot_that_lost_its_session_fails_until_its_end),
        cmocka_unit_test(a_dropped_derived_table_is_made_again),
        cmocka_unit_test(a_statement_on_a_missing_table_is_damage),
        cmocka_unit_test(a_read_only_database_refuses_a_commit_with_its_reason),
        cmocka_unit_test(a_session_that_waited_while_the_store_was_moved_does_not_get_the_role),
    };
    return CONTRACT_RUN_ONLY("postgres: sessions", "postgres", tests);
}
