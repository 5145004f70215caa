/* Opening a database of PostgreSQL: what is refused, with which sentence, and that no message shows
 * the password. */
#include <libpq-fe.h>
#include <unistd.h>

#include "backend_postgres.h"
#include "store/postgres/postgres_migrations.h"

#define PASSWORD "sesame%21open"

static int setup(void **state) {
    *state = pg_make();
    return 0;
}

static int teardown(void **state) {
    pg_destroy(*state);
    return 0;
}

static const char *database_of(const char *place) {
    return strrchr(place, '/') + 1;
}

static void assert_refused(const char *url, enum status expected, const char *part) {
    struct store *store = NULL;
    struct store_message message = {""};
    enum status status = store_open(&store, url, true, &message);
    print_message("%s: %s\n", status_code(status), message.text);
    assert_int_equal(status, expected);
    assert_non_null(strstr(message.text, part));
    assert_null(strstr(message.text, "sesame"));
    assert_null(strchr(message.text, '\n'));
}

/* The URL of the same database for the role 'secret', which needs a password. */
static void secret_url(const char *place, const char *password, char *url, size_t size) {
    const char *host = strchr(place, '@') + 1;
    snprintf(url, size, "postgres://secret:%s@%s", password, host);
}

/* Roles belong to the whole server, which other tests use at the same time. */
static void make_secret_role(const char *place) {
    pg_run(place, "DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); IF NOT EXISTS (SELECT 1 FROM "
                  "pg_roles WHERE rolname = 'secret') THEN CREATE ROLE secret LOGIN PASSWORD "
                  "'sesame!open'; END IF; END $$");
}

static void a_malformed_url_is_refused_without_its_password(void **state) {
    (void)state;
    assert_refused("postgres://user:sesame%zz@host/db", STATUS_INVALID_CONFIG, "DB_URL");
    assert_refused("postgresql://user:sesame@host:port/db", STATUS_INVALID_CONFIG, "DB_URL");
    assert_refused("postgres://user:sesame@host/db?nonsense=1", STATUS_INVALID_CONFIG, "DB_URL");
}

static void a_server_that_does_not_answer_is_unavailable(void **state) {
    (void)state;
    assert_refused("postgres://user:sesame@127.0.0.1:1/db", STATUS_STORE_UNAVAILABLE, "127.0.0.1");
}

static void a_database_that_does_not_exist_is_unavailable(void **state) {
    char url[256];
    (void)state;
    snprintf(url, sizeof(url), "%s/no_such_database", pg_server());
    assert_refused(url, STATUS_STORE_UNAVAILABLE, "no_such_database");
}

static void a_wrong_password_is_refused_without_showing_it(void **state) {
    char url[256];
    make_secret_role(*state);
    secret_url(*state, "sesame-wrong", url, sizeof(url));
    assert_refused(url, STATUS_STORE_UNAVAILABLE, "password authentication failed");
}

static void a_role_without_rights_is_told_which_it_needs(void **state) {
    char url[256];
    make_secret_role(*state);
    secret_url(*state, PASSWORD, url, sizeof(url));
    assert_refused(url, STATUS_STORE_UNAVAILABLE, "schema runtime");
}

static void exhausted_connections_are_unavailable(void **state) {
    char url[256], sql[256];
    make_secret_role(*state);
    secret_url(*state, PASSWORD, url, sizeof(url));
    snprintf(sql, sizeof(sql), "ALTER DATABASE %s CONNECTION LIMIT 0", database_of(*state));
    pg_run(*state, sql);
    assert_refused(url, STATUS_STORE_UNAVAILABLE, "too many connections");
}

static void another_encoding_is_refused(void **state) {
    char url[256], sql[256];
    const char *place = *state;
    snprintf(sql, sizeof(sql),
             "CREATE DATABASE %s_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'",
             database_of(place));
    pg_run(place, sql);
    snprintf(url, sizeof(url), "%s_ascii", place);
    assert_refused(url, STATUS_INVALID_CONFIG, "UTF8");
    snprintf(sql, sizeof(sql), "DROP DATABASE %s_ascii", database_of(place));
    pg_run(place, sql);
}

static void a_read_only_database_is_refused(void **state) {
    char sql[256];
    snprintf(sql, sizeof(sql), "ALTER DATABASE %s SET default_transaction_read_only = on",
             database_of(*state));
    pg_run(*state, sql);
    assert_refused(*state, STATUS_INVALID_CONFIG, "default_transaction_read_only");
}

static void a_schema_of_another_application_is_refused(void **state) {
    pg_run(*state, "CREATE SCHEMA runtime; CREATE TABLE runtime.theirs (id int)");
    assert_refused(*state, STATUS_INVALID_CONFIG, "another application");
}

static void another_schema_version_is_refused_with_the_command(void **state) {
    struct store_message message;
    struct store *store = NULL;
    assert_ok(store_migrate(*state, &message));
    assert_int_equal(store_schema_version(*state), POSTGRES_SCHEMA_VERSION);
    pg_run(*state, "UPDATE runtime.meta SET value = '99' WHERE name = 'schema_version'");
    assert_refused(*state, STATUS_INVALID_CONFIG, "newer khala");
    pg_run(*state, "UPDATE runtime.meta SET value = '2' WHERE name = 'schema_version'");
    assert_refused(*state, STATUS_INVALID_CONFIG, "khala migrate");
    assert_int_equal(store_open(&store, *state, false, &message), STATUS_INVALID_CONFIG);
}

static void a_secret_is_kept_once(void **state) {
    struct store *store = backend_postgres.open(*state);
    struct store_session *session = NULL;
    struct slice value;
    struct arena arena;
    arena_init(&arena, 4096);
    assert_true(store_has_secrets(store));
    assert_ok(store_session_open(store, STORE_WRITE, &session));
    assert_int_equal(store_load_secret(session, SLICE("a"), &arena, &value), STATUS_NOT_FOUND);
    assert_ok(store_keep_secret(session, SLICE("a"), SLICE("first\n")));
    assert_ok(store_keep_secret(session, SLICE("a"), SLICE("second\n")));
    assert_ok(store_load_secret(session, SLICE("a"), &arena, &value));
    assert_slice(value, "first\n");
    store_session_close(session);
    arena_release(&arena);
    store_close(store);
}

/* A server that ends before it has generated all its keys leaves none. */
static void secrets_under_the_lock_are_stored_together(void **state) {
    struct store *store = backend_postgres.open(*state);
    struct store_session *session = NULL;
    struct slice value;
    struct arena arena;
    arena_init(&arena, 4096);
    for (int commits = 0; commits <= 1; commits++) {
        assert_ok(store_session_open(store, STORE_SIDE, &session));
        assert_ok(store_lock_secrets(session));
        assert_int_equal(store_load_secret(session, SLICE("b"), &arena, &value), STATUS_NOT_FOUND);
        assert_ok(store_keep_secret(session, SLICE("a"), SLICE("1")));
        assert_ok(store_keep_secret(session, SLICE("b"), SLICE("2")));
        assert_ok(store_load_secret(session, SLICE("b"), &arena, &value));
        if (commits)
            assert_ok(store_commit_secrets(session));
        store_session_close(session);
    }
    assert_ok(store_session_open(store, STORE_SIDE, &session));
    assert_ok(store_lock_secrets(session));
    assert_ok(store_load_secret(session, SLICE("a"), &arena, &value));
    assert_slice(value, "1");
    store_session_close(session);
    arena_release(&arena);
    store_close(store);
}

static void migrating_again_changes_nothing(void **state) {
    struct store_message message;
    struct store_state before, after;
    for (int i = 0; i < 2; i++) {
        struct store *store = NULL;
        struct store_session *session = NULL;
        assert_ok(store_migrate(*state, &message));
        assert_ok(store_open(&store, *state, false, &message));
        assert_ok(store_session_open(store, STORE_READ, &session));
        assert_ok(store_read_state(session, i == 0 ? &before : &after));
        store_session_close(session);
        store_close(store);
    }
    assert_string_equal(before.epoch, after.epoch);
    assert_memory_equal(&before.id_mark, &after.id_mark, sizeof(before.id_mark));
}

static void a_database_without_a_store_is_not_opened_for_reading(void **state) {
    struct store *store = NULL;
    struct store_message message;
    assert_int_equal(store_open(&store, *state, false, &message), STATUS_STORE_UNAVAILABLE);
    assert_non_null(strstr(message.text, "holds no store yet"));
}

static void a_second_server_is_refused(void **state) {
    struct store *first = backend_postgres.open(*state), *beside = NULL;
    struct store_message message;
    assert_refused(*state, STATUS_STORE_UNAVAILABLE, "another khala server");
    assert_ok(store_open(&beside, *state, false, &message));
    store_close(beside);
    store_close(first);
    store_close(backend_postgres.open(*state));
}

static void the_names_of_the_projection_contract_can_be_queried(void **state) {
    store_close(backend_postgres.open(*state));
    pg_run(*state, "SELECT topic, next_watermark FROM runtime.sync_topic_sequences");
    pg_run(*state, "SELECT topic, watermark, doc_key, doc_version, payload, payload_hash, "
                   "inserted_at FROM runtime.sync_stream_events");
    pg_run(*state, "SELECT projection_name, entity_id, document_id, last_runtime_seq, "
                   "projection_version, summary_hash, last_projected_at FROM "
                   "runtime.khala_projection_checkpoints");
    pg_run(*state, "SELECT * FROM runtime.events, runtime.runs, runtime.run_ownerships, "
                   "runtime.codex_workers, runtime.sync_run_summaries, "
                   "runtime.sync_codex_worker_summaries");
}

static void a_label_has_no_password(void **state) {
    char label[128];
    (void)state;
    store_url_label("postgres://u:se@same@h:1/db?password=x", label, sizeof(label));
    assert_string_equal(label, "postgres://h:1/db");
    store_url_label("postgresql://h/db#x", label, sizeof(label));
    assert_string_equal(label, "postgres://h/db");
    store_url_label("/data/folder@x", label, sizeof(label));
    assert_string_equal(label, "/data/folder@x");
}

int main(void) {
#define AT_A_PLACE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        AT_A_PLACE(a_malformed_url_is_refused_without_its_password),
        AT_A_PLACE(a_server_that_does_not_answer_is_unavailable),
        AT_A_PLACE(a_database_that_does_not_exist_is_unavailable),
        AT_A_PLACE(a_wrong_password_is_refused_without_showing_it),
        AT_A_PLACE(a_role_without_rights_is_told_which_it_needs),
        AT_A_PLACE(exhausted_connections_are_unavailable),
        AT_A_PLACE(another_encoding_is_refused),
        AT_A_PLACE(a_read_only_database_is_refused),
        AT_A_PLACE(a_schema_of_another_application_is_refused),
        AT_A_PLACE(another_schema_version_is_refused_with_the_command),
        AT_A_PLACE(a_secret_is_kept_once),
        AT_A_PLACE(secrets_under_the_lock_are_stored_together),
        AT_A_PLACE(migrating_again_changes_nothing),
        AT_A_PLACE(a_database_without_a_store_is_not_opened_for_reading),
        AT_A_PLACE(a_second_server_is_refused),
        AT_A_PLACE(the_names_of_the_projection_contract_can_be_queried),
        AT_A_PLACE(a_label_has_no_password),
    };
    return PG_RUN("postgres: opening", tests);
}
