/* Each place is a database of the server that KHALA_TEST_POSTGRES names. tests/run starts one. */
#include "backend_postgres.h"

#include <libpq-fe.h>
#include <stdatomic.h>
#include <unistd.h>

const char *pg_server(void) {
    const char *url = getenv("KHALA_TEST_POSTGRES");
    return url && *url ? url : NULL;
}

void pg_run(const char *database_url, const char *sql) {
    PGconn *connection = PQconnectdb(database_url);
    PGresult *result = PQexec(connection, sql);
    ExecStatusType answered = PQresultStatus(result);
    if (answered != PGRES_COMMAND_OK && answered != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(connection));
    PQclear(result);
    PQfinish(connection);
}

static void administer(const char *before, const char *database, const char *behind) {
    char url[256], sql[256];
    snprintf(url, sizeof(url), "%s/postgres", pg_server());
    snprintf(sql, sizeof(sql), "%s %s %s", before, database, behind);
    pg_run(url, sql);
}

char *pg_make(void) {
    static atomic_uint number;
    char name[64];
    char *place = NULL;
    snprintf(name, sizeof(name), "contract_%d_%u", (int)getpid(), atomic_fetch_add(&number, 1));
    administer("CREATE DATABASE", name, "TEMPLATE template0 STRATEGY file_copy");
    assert_true(asprintf(&place, "%s/%s", pg_server(), name) > 0);
    return place;
}

void pg_destroy(char *place) {
    administer("DROP DATABASE", strrchr(place, '/') + 1, "WITH (FORCE)");
    free(place);
}

static struct store *open_store(const char *place) {
    struct store *store = NULL;
    struct store_message message;
    enum status status = store_open(&store, place, true, &message);
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_code(status), message.text);
    return store;
}

const struct backend backend_postgres = {"postgres", pg_make, open_store, pg_destroy};

int pg_run_tests(const char *name, const struct CMUnitTest *tests, size_t count) {
    if (pg_server())
        return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    printf("# KHALA_TEST_POSTGRES is not set: no test on postgres\n");
    return 0;
}
