/* The page cache of the embedded store: which searches for pages beyond the end reach SQLite's own
 * cache, and that databases stay whole when transactions grow and shrink them. */
#include "store/sqlite/sqlite_page_cache.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test.h"

#define PAGE_BYTES   4096
#define LOCKS_PAGE   (0x40000000 / PAGE_BYTES + 1)
#define TRANSACTIONS 60
#define ROWS         200

/* SQLite's own cache, with its calls counted. */
static sqlite3_pcache_methods2 own;
static unsigned searches;
static unsigned renumbered_to_locks;

static void search(sqlite3_pcache *cache, unsigned number) {
    searches++;
    own.xTruncate(cache, number);
}

static void renumber(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned before,
                     unsigned number) {
    renumbered_to_locks += number == LOCKS_PAGE;
    own.xRekey(cache, page, before, number);
}

static int set_up(void **state) {
    (void)state;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &own), SQLITE_OK);
    sqlite3_pcache_methods2 counted = own;
    counted.xTruncate = search;
    counted.xRekey = renumber;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_PCACHE2, &counted), SQLITE_OK);
    sqlite_page_cache_register();
    return 0;
}

struct database {
    sqlite3 *connection;
    char folder[64];
    char path[96];
    uint64_t random;
};

static void execute(struct database *database, const char *sql) {
    char *error = NULL;
    if (sqlite3_exec(database->connection, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

static void open_database(struct database *database) {
    *database = (struct database){.folder = "/tmp/khala-pages-XXXXXX", .random = 7};
    assert_non_null(mkdtemp(database->folder));
    snprintf(database->path, sizeof(database->path), "%s/db", database->folder);
    assert_int_equal(sqlite3_open(database->path, &database->connection), SQLITE_OK);
    execute(database, "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; "
                      "CREATE TABLE rows (key INTEGER PRIMARY KEY, filler BLOB) WITHOUT ROWID");
}

static void close_database(struct database *database) {
    assert_int_equal(sqlite3_close(database->connection), SQLITE_OK);
    assert_int_equal(unlink(database->path), 0);
    assert_int_equal(rmdir(database->folder), 0);
}

/* Inserts at random places, so that SQLite sorts pages. */
static void insert_rows(struct database *database) {
    char sql[128];
    for (int i = 0; i < ROWS; i++) {
        database->random = database->random * 6364136223846793005u + 1442695040888963407u;
        snprintf(sql, sizeof(sql), "INSERT OR IGNORE INTO rows VALUES (%u, zeroblob(600))",
                 (unsigned)(database->random >> 40));
        execute(database, sql);
    }
}

static int64_t number_of(struct database *database, const char *sql) {
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(database->connection, sql, -1, &statement, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return number;
}

static void assert_whole(struct database *database, int64_t rows) {
    assert_int_equal(number_of(database, "SELECT count(*) FROM rows"), rows);
    assert_int_equal(number_of(database, "SELECT count(*) FROM pragma_integrity_check WHERE "
                                         "integrity_check <> 'ok'"),
                     0);
}

static void a_commit_that_sorts_pages_searches_no_cache(void **state) {
    (void)state;
    struct database database;
    /* Versions before give pages other numbers while they sort them. */
    if (sqlite3_libversion_number() < 3039004)
        skip();
    open_database(&database);
    execute(&database, "BEGIN");
    insert_rows(&database);
    execute(&database, "COMMIT");
    unsigned searches_before = searches;
    unsigned renumbered_before = renumbered_to_locks;
    for (int i = 0; i < TRANSACTIONS; i++) {
        execute(&database, "BEGIN");
        insert_rows(&database);
        execute(&database, "COMMIT");
    }
    assert_true(renumbered_to_locks > renumbered_before);
    assert_int_equal(searches, searches_before);
    close_database(&database);
}

static void pages_beyond_the_end_leave_the_cache(void **state) {
    (void)state;
    struct database database;
    open_database(&database);
    int64_t rows = 0;
    int rolled_back = 0; /* transactions that added pages */
    for (int i = 0; i < TRANSACTIONS; i++) {
        int64_t pages = number_of(&database, "PRAGMA page_count");
        execute(&database, "BEGIN");
        insert_rows(&database);
        if (i % 5 == 4)
            execute(&database, "DELETE FROM rows WHERE key % 3 = 0");
        int64_t changed = number_of(&database, "SELECT count(*) FROM rows");
        bool has_grown = number_of(&database, "PRAGMA page_count") > pages;
        unsigned searches_before = searches;
        execute(&database, i % 2 == 1 ? "ROLLBACK" : "COMMIT");
        /* The pages that the transaction added must not be read again. */
        if (i % 2 == 1 && has_grown) {
            assert_true(searches > searches_before);
            rolled_back++;
        }
        rows = i % 2 == 1 ? rows : changed;
        assert_whole(&database, rows);
        if (i % 10 == 9)
            execute(&database, "VACUUM");
    }
    assert_true(rolled_back > 0);
    close_database(&database);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_that_sorts_pages_searches_no_cache),
        cmocka_unit_test(pages_beyond_the_end_leave_the_cache),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
