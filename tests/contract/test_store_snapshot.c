/* A read of several steps: it sees one moment, nothing else sees it, and it ends. */
#include "backend.h"
#include "rows.h"

static void commit_run(struct fixture *fixture, uint64_t number) {
    struct rows_text id, key;
    struct store_entity run = rows_run(number + 1, &id);
    struct store_event event = rows_event(number, run.ref, 1);
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, run.ref, number, &key);
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .events = &event,
                                                                  .event_count = 1,
                                                                  .documents = &document,
                                                                  .document_count = 1}));
}

static enum status count_document(void *user, const struct store_document *document) {
    uint64_t *count = user;
    assert_slice(document->owner.user_id, "user");
    assert_slice(document->owner.org_id, "org");
    assert_null(document->owner.guest_scope.data);
    ++*count;
    return STATUS_OK;
}

/* Every way of looking agrees on how many there are. */
static void assert_runs(struct store_session *session, uint64_t count) {
    struct store_state at;
    uint64_t documents = 0;
    assert_ok(store_read_state(session, &at));
    assert_int_equal(at.log_id, count);
    assert_ok(store_walk_documents(session, DOCUMENT_RUN_SUMMARY, 0, UINT64_MAX, &documents,
                                   count_document));
    assert_int_equal(documents, count);
}

static void a_read_transaction_sees_one_state_of_the_store(void **state) {
    struct fixture *fixture = *state;
    commit_run(fixture, 1);
    assert_ok(store_read_begin(fixture->reader));
    commit_run(fixture, 2);
    /* The moment is the beginning's, not that of the first row that is asked for. */
    assert_runs(fixture->reader, 1);
    commit_run(fixture, 3);
    assert_runs(fixture->reader, 1);
    assert_runs(fixture->writer, 3);
    store_read_end(fixture->reader);
    assert_runs(fixture->reader, 3);
}

static void a_session_may_begin_a_read_repeatedly(void **state) {
    struct fixture *fixture = *state;
    for (uint64_t i = 1; i <= 20; i++) {
        commit_run(fixture, i);
        assert_ok(store_read_begin(fixture->reader));
        assert_runs(fixture->reader, i);
        store_read_end(fixture->reader);
    }
    fixture_reopen(fixture);
    assert_runs(fixture->reader, 20);
}

static void two_sessions_have_separate_read_transactions(void **state) {
    struct fixture *fixture = *state;
    struct store_session *other;
    assert_ok(store_session_open(fixture->store, STORE_READ, &other));
    commit_run(fixture, 1);
    assert_ok(store_read_begin(fixture->reader));
    commit_run(fixture, 2);
    assert_ok(store_read_begin(other));
    commit_run(fixture, 3);
    assert_runs(fixture->reader, 1);
    assert_runs(other, 2);
    store_read_end(fixture->reader);
    assert_runs(other, 2);
    store_read_end(other);
    store_session_close(other);
}

static enum status refuse_document(void *user, const struct store_document *document) {
    (void)user;
    (void)document;
    return STATUS_LIMIT_REACHED;
}

static void a_read_can_end_after_a_refused_request(void **state) {
    struct fixture *fixture = *state;
    commit_run(fixture, 1);
    assert_ok(store_read_begin(fixture->reader));
    assert_int_equal(
        store_walk_documents(fixture->reader, DOCUMENT_RUN_SUMMARY, 0, 9, NULL, refuse_document),
        STATUS_LIMIT_REACHED);
    store_read_end(fixture->reader);
    commit_run(fixture, 2);
    assert_runs(fixture->reader, 2);
}

static void the_rows_a_session_reads_are_counted(void **state) {
    struct fixture *fixture = *state;
    uint64_t documents = 0;
    for (uint64_t i = 1; i <= 10; i++)
        commit_run(fixture, i);
    uint64_t before = store_session_rows_read(fixture->reader);
    assert_ok(store_walk_documents(fixture->reader, DOCUMENT_RUN_SUMMARY, 0, UINT64_MAX, &documents,
                                   count_document));
    assert_int_equal(store_session_rows_read(fixture->reader) - before, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_transaction_sees_one_state_of_the_store),
        cmocka_unit_test(a_session_may_begin_a_read_repeatedly),
        cmocka_unit_test(two_sessions_have_separate_read_transactions),
        cmocka_unit_test(a_read_can_end_after_a_refused_request),
        cmocka_unit_test(the_rows_a_session_reads_are_counted),
    };
    return CONTRACT_RUN("store: one moment", tests);
}
