/* The world is wrong: no room, no file, no intact page. The store says so and goes on after. */
#include "backend.h"
#include "rows.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAYLOAD_BYTES 60000

static char payload[PAYLOAD_BYTES];

static enum status commit_event(struct store_session *session, uint64_t log_id) {
    struct store_event event = rows_event(log_id, 1, log_id);
    struct rows_text key;
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, 1, log_id, &key);
    memset(payload, 'x', sizeof(payload));
    event.payload = (struct slice){payload, sizeof(payload)};
    return store_commit(session, &(struct store_batch){.events = &event,
                                                       .event_count = 1,
                                                       .documents = &document,
                                                       .document_count = 1});
}

static void assert_log(struct fixture *fixture, uint64_t last) {
    struct store_state at;
    struct store_document document;
    struct store_session *sessions[] = {fixture->writer, fixture->reader};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(store_read_state(sessions[i], &at));
        assert_int_equal(at.log_id, last);
        assert_ok(
            store_load_document(sessions[i], DOCUMENT_RUN_SUMMARY, 1, &fixture->arena, &document));
        assert_int_equal(document.version, last);
    }
}

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static rlim_t file_size(const struct fixture *fixture, const char *name) {
    char path[256];
    struct stat found;
    snprintf(path, sizeof(path), "%s/%s", fixture->place, name);
    assert_int_equal(stat(path, &found), 0);
    return (rlim_t)found.st_size;
}

static void a_disk_without_room_refuses_commits_until_there_is_room(void **state) {
    struct fixture *fixture = *state;
    for (uint64_t i = 1; i <= 3; i++)
        assert_ok(commit_event(fixture->writer, i));
    limit_file_size(file_size(fixture, "khala.db-wal") + 8192);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(commit_event(fixture->writer, 4), STATUS_STORE_UNAVAILABLE);
        assert_non_null(strstr(store_session_error(fixture->writer), "khala.db"));
        assert_log(fixture, 3);
    }
    limit_file_size(RLIM_INFINITY);
    for (uint64_t i = 4; i <= 6; i++)
        assert_ok(commit_event(fixture->writer, i));
    assert_log(fixture, 6);
    fixture_reopen(fixture);
    assert_log(fixture, 6);
}

static void a_full_disk_leaves_a_batch_complete_or_absent(void **state) {
    struct fixture *fixture = *state;
    uint64_t last = 0;
    assert_ok(commit_event(fixture->writer, ++last));
    for (rlim_t room = 0; room <= 100000; room += 4120) {
        limit_file_size(file_size(fixture, "khala.db-wal") + room);
        enum status status = commit_event(fixture->writer, last + 1);
        limit_file_size(RLIM_INFINITY);
        assert_true(status == STATUS_OK || status == STATUS_STORE_UNAVAILABLE);
        last += status == STATUS_OK;
        assert_log(fixture, last);
    }
    assert_true(last > 1);
    uint64_t expected = last;
    fixture_reopen(fixture);
    assert_log(fixture, expected);
}

static void a_new_store_on_a_full_disk_is_refused_and_created_later(void **state) {
    struct fixture *fixture = *state;
    char *place = fixture->backend->make();
    struct store *store = NULL;
    struct store_message message = {""};
    limit_file_size(8192);
    enum status status = store_open(&store, place, true, &message);
    limit_file_size(RLIM_INFINITY);
    assert_int_equal(status, STATUS_STORE_UNAVAILABLE);
    assert_non_null(strstr(message.text, "khala.db"));
    store_close(fixture->backend->open(place));
    fixture->backend->destroy(place);
}

/* SQLite would go on writing into it, and a restart would find none of that. */
static void check_moved(struct fixture *fixture, const char *name, uint64_t log_id) {
    char path[256], away[256];
    struct store_message message = {""};
    snprintf(path, sizeof(path), "%s/%s", fixture->place, name);
    snprintf(away, sizeof(away), "%s/elsewhere", fixture->place);
    assert_ok(store_check_location(fixture->store, &message));
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(commit_event(fixture->writer, log_id), STATUS_STORE_UNAVAILABLE);
    assert_int_equal(store_session_reason(fixture->writer), REASON_STORE_MOVED);
    assert_non_null(strstr(store_session_error(fixture->writer), path));
    assert_int_equal(store_check_location(fixture->store, &message), STATUS_STORE_UNAVAILABLE);
    assert_non_null(strstr(message.text, "moved or deleted"));
    /* Nor is another file of that name the one that is meant. */
    close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(commit_event(fixture->writer, log_id), STATUS_STORE_UNAVAILABLE);
    assert_int_equal(store_check_location(fixture->store, &message), STATUS_STORE_UNAVAILABLE);
    assert_non_null(strstr(message.text, "another file"));
    assert_int_equal(rename(away, path), 0);
    assert_ok(store_check_location(fixture->store, &message));
    assert_ok(commit_event(fixture->writer, log_id));
    assert_log(fixture, log_id);
}

static void moved_files_are_not_written_until_they_are_back(void **state) {
    struct fixture *fixture = *state;
    assert_ok(commit_event(fixture->writer, 1));
    check_moved(fixture, "khala.db", 2);
    check_moved(fixture, "khala.db-wal", 3);
    check_moved(fixture, "khala.db-shm", 4);
    fixture_reopen(fixture);
    assert_log(fixture, 4);
}

static void a_write_lock_of_another_process_is_reported_after_a_wait(void **state) {
    struct fixture *fixture = *state;
    char path[256];
    sqlite3 *other = NULL;
    snprintf(path, sizeof(path), "%s/khala.db", fixture->place);
    assert_ok(commit_event(fixture->writer, 1));
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(commit_event(fixture->writer, 2), STATUS_STORE_UNAVAILABLE);
    assert_log(fixture, 1);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_ok(commit_event(fixture->writer, 2));
    assert_log(fixture, 2);
}

/* ---- damage -----------------------------------------------------------------------------------
 */

static void close_all(struct fixture *fixture) {
    store_session_close(fixture->reader);
    store_session_close(fixture->writer);
    store_close(fixture->store);
}

static void open_all(struct fixture *fixture) {
    fixture->store = fixture->backend->open(fixture->place);
    assert_ok(store_session_open(fixture->store, STORE_WRITE, &fixture->writer));
    assert_ok(store_session_open(fixture->store, STORE_READ, &fixture->reader));
}

static enum status pass(void *user, const struct store_event *event) {
    (void)user, (void)event;
    return STATUS_OK;
}

/* Every page but those of the schema becomes noise. */
static void scribble(const struct fixture *fixture, off_t from, off_t size) {
    char path[256], noise[4096];
    snprintf(path, sizeof(path), "%s/khala.db", fixture->place);
    memset(noise, 0xa5, sizeof(noise));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = from; at < from + size; at += (off_t)sizeof(noise))
        assert_int_equal(pwrite(fd, noise, sizeof(noise), at), sizeof(noise));
    close(fd);
}

static void damaged_pages_are_reported_and_never_served(void **state) {
    struct fixture *fixture = *state;
    for (uint64_t i = 1; i <= 20; i++)
        assert_ok(commit_event(fixture->writer, i));
    close_all(fixture);
    off_t size = (off_t)file_size(fixture, "khala.db");
    scribble(fixture, 40 * 4096, size - 40 * 4096);
    open_all(fixture);
    assert_int_equal(store_walk_log(fixture->reader, 0, UINT64_MAX, NULL, pass),
                     STATUS_INTERNAL_ERROR);
    assert_non_null(strstr(store_session_error(fixture->reader), "damaged"));
}

static void a_damaged_header_is_reported_at_the_start(void **state) {
    struct fixture *fixture = *state;
    struct store *store = NULL;
    struct store_message message = {""};
    assert_ok(commit_event(fixture->writer, 1));
    close_all(fixture);
    scribble(fixture, 0, 4096);
    assert_int_equal(store_open(&store, fixture->place, true, &message), STATUS_INTERNAL_ERROR);
    assert_non_null(strstr(message.text, "damaged"));
    fixture->backend->destroy(fixture->place);
    fixture->place = fixture->backend->make();
    open_all(fixture);
}

static void damage(struct fixture *fixture, const char *sql) {
    char path[256];
    sqlite3 *other = NULL;
    snprintf(path, sizeof(path), "%s/khala.db", fixture->place);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static enum status pass_journal(void *user, const struct store_journal_row *row,
                                const struct store_event *event) {
    (void)row;
    return pass(user, event);
}

static void rows_altered_by_hand_are_reported(void **state) {
    struct fixture *fixture = *state;
    struct store_event event;
    struct store_document document;
    uint64_t log_id;
    for (uint64_t i = 1; i <= 5; i++)
        assert_ok(commit_event(fixture->writer, i));
    struct store_journal_row row = rows_journal(1, 1, 3);
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.journal = &row, .journal_count = 1}));
    damage(fixture, "UPDATE events SET chain_hash = x'00' WHERE log_id = 4;"
                    "UPDATE run_documents SET payload_hash = x''");
    assert_int_equal(store_load_event(fixture->reader, 4, &fixture->arena, &event),
                     STATUS_INTERNAL_ERROR);
    assert_non_null(strstr(store_session_error(fixture->reader), "event 4"));
    assert_int_equal(
        store_load_document(fixture->reader, DOCUMENT_RUN_SUMMARY, 1, &fixture->arena, &document),
        STATUS_INTERNAL_ERROR);
    damage(fixture, "DELETE FROM events WHERE log_id = 3");
    struct event_cursor cursor = {rows_time_ms(2), rows_cursor(2)};
    assert_int_equal(store_find_cursor(fixture->reader, &cursor, &log_id), STATUS_INTERNAL_ERROR);
    assert_int_equal(store_walk_journal(fixture->reader, 1, 0, 9, NULL, pass_journal),
                     STATUS_INTERNAL_ERROR);
    damage(fixture, "DELETE FROM entities");
    assert_int_equal(store_walk_log(fixture->reader, 0, 1, NULL, pass), STATUS_INTERNAL_ERROR);
}

static void a_log_that_lost_its_end_gets_no_event_under_another_number(void **state) {
    struct fixture *fixture = *state;
    struct store_state at;
    for (uint64_t i = 1; i <= 3; i++)
        assert_ok(commit_event(fixture->writer, i));
    damage(fixture, "DELETE FROM events WHERE log_id = 3");
    assert_int_equal(commit_event(fixture->writer, 4), STATUS_SEQUENCE_CONFLICT);
    assert_non_null(strstr(store_session_error(fixture->writer), "the last event would be 3"));
    assert_ok(store_read_state(fixture->reader, &at));
    assert_int_equal(at.log_id, 2);
    /* Nor under the number of the lost event, now or after the next start. */
    assert_int_equal(commit_event(fixture->writer, 3), STATUS_INTERNAL_ERROR);
    assert_int_equal(store_read_state(fixture->writer, &at), STATUS_INTERNAL_ERROR);
    assert_non_null(strstr(store_session_error(fixture->writer), "the end of the log"));
    fixture_reopen(fixture);
    assert_int_equal(store_read_state(fixture->writer, &at), STATUS_INTERNAL_ERROR);
    assert_int_equal(commit_event(fixture->writer, 3), STATUS_INTERNAL_ERROR);
}

static void only_the_latest_drifts_are_kept(void **state) {
    struct fixture *fixture = *state;
    damage(fixture, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10050) "
                    "INSERT INTO khala_projection_drifts SELECT i, 'run_summary', 1, "
                    "'sequence_gap', 1, 2, i, NULL FROM n");
    struct store_drift drift = {.entity_ref = 1, .reason = REASON_CHECKPOINT_AHEAD};
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.drifts = &drift, .drift_count = 1}));
    damage(fixture, "CREATE TEMP TABLE checked (kept INTEGER CHECK (kept = 10000));"
                    "INSERT INTO checked SELECT count(*) FROM khala_projection_drifts");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_without_room_refuses_commits_until_there_is_room),
        cmocka_unit_test(a_full_disk_leaves_a_batch_complete_or_absent),
        cmocka_unit_test(a_new_store_on_a_full_disk_is_refused_and_created_later),
        cmocka_unit_test(moved_files_are_not_written_until_they_are_back),
        cmocka_unit_test(a_write_lock_of_another_process_is_reported_after_a_wait),
        cmocka_unit_test(damaged_pages_are_reported_and_never_served),
        cmocka_unit_test(a_damaged_header_is_reported_at_the_start),
        cmocka_unit_test(rows_altered_by_hand_are_reported),
        cmocka_unit_test(a_log_that_lost_its_end_gets_no_event_under_another_number),
        cmocka_unit_test(only_the_latest_drifts_are_kept),
    };
    /* A write past the limit is to fail, not to kill. */
    signal(SIGXFSZ, SIG_IGN);
    return CONTRACT_RUN_ONLY("faults", "sqlite", tests);
}
