/* The embedded store's folder: its making, its lock, and whose schema is refused. */
#include "backend.h"
#include "death.h"
#include "rows.h"

#include <sqlite3.h>
#include <sys/stat.h>

static void database_path(const char *place, char path[256]) {
    snprintf(path, 256, "%s/khala.db", place);
}

static void execute(const char *place, const char *sql) {
    char path[256];
    sqlite3 *database = NULL;
    database_path(place, path);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

static int64_t number_of(const char *place, const char *sql) {
    char path[256];
    sqlite3 *database = NULL;
    sqlite3_stmt *statement = NULL;
    database_path(place, path);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(database, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    return number;
}

static void assert_refused(const char *place, bool exclusive, enum status expected,
                           const char *words) {
    struct store *store = NULL;
    struct store_message message = {""};
    assert_int_equal(store_open(&store, place, exclusive, &message), expected);
    assert_null(store);
    if (strstr(message.text, words) == NULL)
        fail_msg("'%s' is not in '%s'", words, message.text);
}

static void make_closed(const char *place) {
    store_close(backend_sqlite.open(place));
}

static int setup(void **state) {
    *state = backend_sqlite.make();
    return 0;
}

static int teardown(void **state) {
    backend_sqlite.destroy(*state);
    return 0;
}

static void a_missing_folder_is_created_for_its_owner_only(void **state) {
    struct stat found;
    assert_int_equal(rmdir(*state), 0);
    make_closed(*state);
    assert_int_equal(stat(*state, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    assert_int_equal(number_of(*state, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
    assert_int_equal(number_of(*state, "PRAGMA page_size"), 4096);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM pragma_journal_mode "
                                       "WHERE journal_mode = 'wal'"),
                     1);
}

static void store_files_are_private_in_a_shared_folder(void **state) {
    static const char *const names[] = {"khala.db", "khala.db-wal", "khala.db-shm", "khala.lock"};
    struct store_session *session = NULL;
    struct rows_text id;
    struct store_entity entity = rows_run(2, &id);
    assert_int_equal(chmod(*state, 0755), 0);
    struct store *store = backend_sqlite.open(*state);
    assert_ok(store_session_open(store, STORE_WRITE, &session));
    assert_ok(store_commit(session, &(struct store_batch){.entities = &entity, .entity_count = 1}));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[256];
        struct stat found;
        snprintf(path, sizeof(path), "%s/%s", (char *)*state, names[i]);
        assert_int_equal(stat(path, &found), 0);
        assert_int_equal(found.st_mode & 0777, 0600);
    }
    store_session_close(session);
    store_close(store);
}

static void a_folder_without_a_store_is_reported(void **state) {
    char path[256];
    snprintf(path, sizeof(path), "%s/none", (char *)*state);
    assert_refused(*state, false, STATUS_STORE_UNAVAILABLE, "'khala migrate' makes one");
    assert_refused(path, false, STATUS_STORE_UNAVAILABLE, "'khala migrate' makes one");
}

static void a_folder_that_cannot_be_created_is_named(void **state) {
    char path[256];
    snprintf(path, sizeof(path), "%s/no/folder", (char *)*state);
    assert_refused(path, true, STATUS_STORE_UNAVAILABLE, path);
}

static void a_file_in_place_of_the_folder_is_refused(void **state) {
    char path[256];
    snprintf(path, sizeof(path), "%s/file", (char *)*state);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_refused(path, true, STATUS_STORE_UNAVAILABLE, path);
}

static void the_tables_of_the_contract_exist_by_name(void **state) {
    static const char *const queries[] = {
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM runs",
        "SELECT count(*) FROM run_ownerships",
        "SELECT count(*) FROM codex_workers",
        "SELECT count(*) FROM sync_run_summaries",
        "SELECT count(*) FROM sync_codex_worker_summaries",
        "SELECT count(*) FROM (SELECT topic, next_watermark FROM sync_topic_sequences)",
        "SELECT count(*) FROM (SELECT topic, watermark, doc_key, doc_version, payload, "
        "payload_hash, inserted_at FROM sync_stream_events)",
        "SELECT count(*) FROM (SELECT projection_name, entity_id, document_id, last_runtime_seq, "
        "projection_version, summary_hash, last_projected_at FROM khala_projection_checkpoints)",
    };
    make_closed(*state);
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++)
        number_of(*state, queries[i]);
}

static void the_views_of_runs_and_workers_show_their_ids(void **state) {
    struct store_session *session = NULL;
    struct rows_text ids[2];
    struct store_entity entities[2] = {rows_run(2, &ids[0]), rows_run(3, &ids[1])};
    entities[1].kind = ENTITY_WORKER;
    struct store *store = backend_sqlite.open(*state);
    assert_ok(store_session_open(store, STORE_WRITE, &session));
    assert_ok(
        store_commit(session, &(struct store_batch){.entities = entities, .entity_count = 2}));
    store_session_close(session);
    store_close(store);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM runs JOIN run_ownerships "
                                       "USING (run_id) WHERE run_id = 'run-2' AND "
                                       "owner_user_id = 'user'"),
                     1);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM runs"), 1);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM codex_workers "
                                       "WHERE worker_id = 'run-3' AND adapter = 'in_memory'"),
                     1);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM codex_workers"), 1);
}

static void a_second_open_is_refused_with_the_pid_of_the_first(void **state) {
    char pid[32];
    struct store *store = backend_sqlite.open(*state);
    struct store_message message;
    snprintf(pid, sizeof(pid), "pid %ld", (long)getpid());
    assert_refused(*state, true, STATUS_STORE_UNAVAILABLE, pid);
    assert_int_equal(store_migrate(*state, &message), STATUS_STORE_UNAVAILABLE);
    assert_non_null(strstr(message.text, pid));
    store_close(store);
    make_closed(*state);
}

static void an_open_by_another_process_is_refused(void **state) {
    struct store *store = backend_sqlite.open(*state);
    pid_t child = fork();
    if (child == 0) {
        struct store *second = NULL;
        struct store_message message;
        _exit(store_open(&second, *state, true, &message) == STATUS_STORE_UNAVAILABLE ? 0 : 1);
    }
    int result = 1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    store_close(store);
}

static void a_reader_may_open_the_store_of_a_running_server(void **state) {
    struct store *server = backend_sqlite.open(*state), *beside = NULL;
    struct store_message message;
    struct store_session *writer = NULL, *reader = NULL;
    struct store_event event = rows_event(1, 1, 1);
    struct store_state at;
    assert_ok(store_session_open(server, STORE_WRITE, &writer));
    assert_ok(store_open(&beside, *state, false, &message));
    assert_ok(store_session_open(beside, STORE_READ, &reader));
    assert_ok(store_commit(writer, &(struct store_batch){.events = &event, .event_count = 1}));
    assert_ok(store_read_state(reader, &at));
    assert_int_equal(at.log_id, 1);
    store_session_close(reader);
    store_close(beside);
    store_session_close(writer);
    store_close(server);
}

static void opening_for_reads_creates_no_store(void **state) {
    char path[256];
    assert_refused(*state, false, STATUS_STORE_UNAVAILABLE, "khala.db");
    snprintf(path, sizeof(path), "%s/none", (char *)*state);
    assert_refused(path, false, STATUS_STORE_UNAVAILABLE, "none");
    assert_int_equal(access(path, F_OK), -1);
}

static void an_older_schema_is_refused_with_the_command_that_migrates_it(void **state) {
    make_closed(*state);
    execute(*state, "PRAGMA user_version = 0");
    assert_refused(*state, true, STATUS_INVALID_CONFIG, "khala migrate");
    assert_refused(*state, false, STATUS_INVALID_CONFIG, "khala migrate");
    assert_int_equal(number_of(*state, "PRAGMA user_version"), 0);
}

static void a_newer_schema_is_refused(void **state) {
    struct store_message message;
    make_closed(*state);
    execute(*state, "PRAGMA user_version = 99");
    assert_refused(*state, true, STATUS_INVALID_CONFIG, "newer khala");
    assert_refused(*state, false, STATUS_INVALID_CONFIG, "newer khala");
    assert_int_equal(store_migrate(*state, &message), STATUS_INVALID_CONFIG);
    assert_non_null(strstr(message.text, "newer khala"));
    assert_int_equal(number_of(*state, "PRAGMA user_version"), 99);
}

static void a_database_of_another_program_is_not_changed(void **state) {
    struct store_message message;
    execute(*state, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
    assert_refused(*state, true, STATUS_INVALID_CONFIG, "another application");
    assert_int_equal(store_migrate(*state, &message), STATUS_INVALID_CONFIG);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM theirs"), 1);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM sqlite_schema"), 1);
}

static void a_file_that_is_not_a_database_is_refused(void **state) {
    char path[256];
    database_path(*state, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        fputs("not a database ", file);
    fclose(file);
    assert_refused(*state, true, STATUS_INTERNAL_ERROR, "not a database");
}

static void an_interrupted_creation_is_completed(void **state) {
    char path[256];
    database_path(*state, path);
    FILE *file = fopen(path, "w"); /* made, and nothing in it yet */
    assert_non_null(file);
    fclose(file);
    make_closed(*state);
    assert_int_equal(number_of(*state, "SELECT count(*) FROM meta WHERE name = 'epoch'"), 1);
}

/* SQLite would delete such a log, and with it the only copy of what is in it. */
static void a_wal_without_its_database_is_not_changed(void **state) {
    struct store_message message;
    char path[256], wal[256];
    struct stat found;
    database_path(*state, path);
    snprintf(wal, sizeof(wal), "%s/khala.db-wal", (const char *)*state);
    FILE *file = fopen(wal, "w");
    assert_non_null(file);
    fputs("frames", file);
    fclose(file);
    assert_refused(*state, true, STATUS_STORE_UNAVAILABLE, "khala.db-wal");
    assert_int_equal(store_migrate(*state, &message), STATUS_STORE_UNAVAILABLE);
    assert_int_not_equal(stat(path, &found), 0);
    fclose(fopen(path, "w"));
    assert_refused(*state, true, STATUS_STORE_UNAVAILABLE, "khala.db-wal");
    assert_refused(*state, false, STATUS_STORE_UNAVAILABLE, "khala.db-wal");
    assert_int_equal(stat(wal, &found), 0);
    assert_int_equal(found.st_size, 6);
}

static void migrate_creates_a_store_and_a_second_run_changes_nothing(void **state) {
    struct store_message message;
    struct store *store = NULL;
    struct store_session *session = NULL;
    struct store_state first, second;
    assert_ok(store_migrate(*state, &message));
    for (int i = 0; i < 2; i++) {
        assert_ok(store_open(&store, *state, false, &message));
        assert_ok(store_session_open(store, STORE_READ, &session));
        assert_ok(store_read_state(session, i == 0 ? &first : &second));
        store_session_close(session);
        store_close(store);
        assert_ok(store_migrate(*state, &message));
    }
    assert_string_equal(first.epoch, second.epoch);
}

static void the_url_chooses_the_engine(void **state) {
    struct store *store = NULL;
    struct store_message message = {""};
    char url[300];
    snprintf(url, sizeof(url), "sqlite:%s", (const char *)*state);
    assert_ok(store_open(&store, url, true, &message));
    store_close(store);
    /* The folder's own name opens the store that the URL made. */
    assert_ok(store_open(&store, *state, false, &message));
    store_close(store);
    assert_ok(store_migrate(url, &message));
}

static void open_second_writer(void *user) {
    struct store_session *session = NULL;
    enum status status = store_session_open(user, STORE_WRITE, &session);
    (void)status;
}

static void commit_with_reader(void *user) {
    enum status status = store_commit(user, &(struct store_batch){0});
    (void)status;
}

static void only_one_session_may_write(void **state) {
    struct store *store = backend_sqlite.open(*state), *beside = NULL;
    struct store_session *writer = NULL, *reader = NULL;
    struct store_message message;
    assert_ok(store_session_open(store, STORE_WRITE, &writer));
    assert_ok(store_session_open(store, STORE_READ, &reader));
    assert_ok(store_open(&beside, *state, false, &message));
    assert_true(aborts(open_second_writer, store));
    assert_true(aborts(open_second_writer, beside));
    assert_true(aborts(commit_with_reader, reader));
    store_session_close(writer);
    assert_ok(store_session_open(store, STORE_WRITE, &writer));
    store_session_close(writer);
    store_session_close(reader);
    store_close(beside);
    store_close(store);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_missing_folder_is_created_for_its_owner_only),
        IN_FOLDER(store_files_are_private_in_a_shared_folder),
        IN_FOLDER(a_folder_without_a_store_is_reported),
        IN_FOLDER(a_folder_that_cannot_be_created_is_named),
        IN_FOLDER(a_file_in_place_of_the_folder_is_refused),
        IN_FOLDER(the_tables_of_the_contract_exist_by_name),
        IN_FOLDER(the_views_of_runs_and_workers_show_their_ids),
        IN_FOLDER(a_second_open_is_refused_with_the_pid_of_the_first),
        IN_FOLDER(an_open_by_another_process_is_refused),
        IN_FOLDER(a_reader_may_open_the_store_of_a_running_server),
        IN_FOLDER(opening_for_reads_creates_no_store),
        IN_FOLDER(an_older_schema_is_refused_with_the_command_that_migrates_it),
        IN_FOLDER(a_newer_schema_is_refused),
        IN_FOLDER(a_database_of_another_program_is_not_changed),
        IN_FOLDER(a_file_that_is_not_a_database_is_refused),
        IN_FOLDER(an_interrupted_creation_is_completed),
        IN_FOLDER(a_wal_without_its_database_is_not_changed),
        IN_FOLDER(migrate_creates_a_store_and_a_second_run_changes_nothing),
        IN_FOLDER(the_url_chooses_the_engine),
        IN_FOLDER(only_one_session_may_write),
    };
    return cmocka_run_group_tests_name("sqlite: opening", tests, NULL, NULL);
}
