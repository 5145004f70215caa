/* The writes of the embedded store that are gathered: those to the write-ahead log, and those of a
 * checkpoint to the database. */
#include "backend.h"
#include "rows.h"
#include "store/sqlite/sqlite_gather.h"

#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS       2000
#define CALLS_MAX    (EVENTS / 10)
#define LARGE_EVENTS 1200
#define LARGE_BYTES  ((size_t)40000) /* in all more than SQLite's cache holds */

static uint64_t write_calls(void) {
    char line[64];
    unsigned long long count = 0;
    FILE *file = fopen("/proc/self/io", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "syscw: %llu", &count) == 1)
            break;
    fclose(file);
    return count;
}

static void commit(struct fixture *fixture, size_t count, struct slice payload) {
    struct store_event *events = calloc(count, sizeof(*events));
    struct rows_text name;
    struct store_entity entity = rows_run(2, &name);
    assert_non_null(events);
    for (size_t i = 0; i < count; i++) {
        events[i] = rows_event(i + 1, 2, i + 1);
        if (payload.data)
            events[i].payload = payload;
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &entity,
                                                                  .entity_count = 1,
                                                                  .events = events,
                                                                  .event_count = count}));
    free(events);
}

static enum status count_event(void *user, const struct store_event *event) {
    uint64_t *count = user;
    assert_int_equal(event->log_id, ++*count);
    return STATUS_OK;
}

static void assert_stored(struct fixture *fixture, uint64_t expected) {
    uint64_t count = 0;
    assert_ok(store_walk_log(fixture->reader, 0, expected + 1, &count, count_event));
    assert_int_equal(count, expected);
}

static void a_commit_is_few_calls_and_is_read_by_other_connections(void **state) {
    struct fixture *fixture = *state;
    uint64_t before = write_calls();
    commit(fixture, EVENTS, (struct slice){NULL, 0});
    uint64_t calls = write_calls() - before;
    assert_true(calls > 0 && calls < CALLS_MAX);
    assert_stored(fixture, EVENTS);
    fixture_reopen(fixture);
    assert_stored(fixture, EVENTS);
}

/* Its pages leave the cache before the commit, and some of them are read and written again. */
static void a_commit_larger_than_the_cache_is_whole(void **state) {
    struct fixture *fixture = *state;
    char *text = malloc(LARGE_BYTES);
    assert_non_null(text);
    memset(text, 'x', LARGE_BYTES);
    commit(fixture, LARGE_EVENTS, (struct slice){text, LARGE_BYTES});
    assert_stored(fixture, LARGE_EVENTS);
    fixture_reopen(fixture);
    assert_stored(fixture, LARGE_EVENTS);
    struct store_event event;
    assert_ok(store_load_event(fixture->reader, LARGE_EVENTS, &fixture->arena, &event));
    assert_int_equal(event.payload.size, LARGE_BYTES);
    assert_memory_equal(event.payload.data, text, LARGE_BYTES);
    free(text);
}

/* ---- checkpoints ---- */

#define ROWS        4000 /* of 600 bytes: some 700 pages */
#define ROWS_BEHIND 400  /* after the state that a reader holds */
/* In the database, before the last rows that change_few_rows changes and behind the others. */
#define LAST_ROWS_OFFSET (1 << 20)

/* A database with connections that use the gathered files. */
struct database {
    char folder[64];
    char path[96];
    sqlite3 *writer;
    sqlite3 *reader;
};

static int64_t number_of(sqlite3 *connection, const char *sql, int column) {
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(connection, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(statement, column);
    sqlite3_finalize(statement);
    return number;
}

static void execute(sqlite3 *connection, const char *sql) {
    char *error = NULL;
    if (sqlite3_exec(connection, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

static sqlite3 *connect(const struct database *database) {
    sqlite3 *connection = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    assert_int_equal(sqlite3_open_v2(database->path, &connection, flags, SQLITE_GATHER_VFS),
                     SQLITE_OK);
    execute(connection, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
                        "PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 10");
    return connection;
}

static void add_rows(struct database *database, int count) {
    char sql[160];
    snprintf(sql, sizeof(sql),
             "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
             "INSERT INTO rows (filler) SELECT zeroblob(600) FROM n",
             count);
    execute(database->writer, sql);
}

static void open_database(struct database *database) {
    *database = (struct database){.folder = "/tmp/khala-gather-XXXXXX"};
    assert_non_null(mkdtemp(database->folder));
    snprintf(database->path, sizeof(database->path), "%s/db", database->folder);
    database->writer = connect(database);
    database->reader = connect(database);
    execute(database->writer, "CREATE TABLE rows (key INTEGER PRIMARY KEY, filler BLOB)");
}

static void close_database(struct database *database) {
    assert_int_equal(sqlite3_close(database->reader), SQLITE_OK);
    assert_int_equal(sqlite3_close(database->writer), SQLITE_OK);
    assert_int_equal(unlink(database->path), 0);
    assert_int_equal(rmdir(database->folder), 0);
}

/* The reader holds the state in which the database has these rows, so that a checkpoint can copy
 * only a part of the log. */
static void hold(struct database *database, int rows) {
    execute(database->reader, "BEGIN");
    assert_int_equal(number_of(database->reader, "SELECT count(*) FROM rows", 0), rows);
}

static int checkpoint(struct database *database) {
    return sqlite3_wal_checkpoint_v2(database->writer, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

/* As a connection finds it that has no pages in memory. */
static void assert_whole(struct database *database, int rows) {
    sqlite3 *connection = connect(database);
    assert_int_equal(number_of(connection, "SELECT count(*) FROM rows", 0), rows);
    assert_int_equal(number_of(connection,
                               "SELECT count(*) FROM pragma_integrity_check WHERE "
                               "integrity_check <> 'ok'",
                               0),
                     0);
    sqlite3_close(connection);
}

static void a_checkpoint_is_few_calls(void **state) {
    struct database database;
    (void)state;
    open_database(&database);
    add_rows(&database, ROWS);
    uint64_t before = write_calls();
    assert_int_equal(checkpoint(&database), SQLITE_OK);
    uint64_t calls = write_calls() - before;
    assert_true(number_of(database.writer, "PRAGMA page_count", 0) > ROWS / 10);
    assert_true(calls > 0 && calls < ROWS / 50);
    assert_whole(&database, ROWS);
    close_database(&database);
}

static void a_checkpoint_of_a_part_of_the_log_is_whole(void **state) {
    struct database database;
    (void)state;
    open_database(&database);
    add_rows(&database, ROWS);
    hold(&database, ROWS);
    add_rows(&database, ROWS_BEHIND);
    int pages = 0;
    int copied = 0;
    assert_int_equal(sqlite3_wal_checkpoint_v2(database.writer, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                               &pages, &copied),
                     SQLITE_OK);
    assert_true(copied > 0 && copied < pages);
    assert_whole(&database, ROWS + ROWS_BEHIND);
    execute(database.reader, "COMMIT");
    assert_int_equal(checkpoint(&database), SQLITE_OK);
    assert_whole(&database, ROWS + ROWS_BEHIND);
    close_database(&database);
}

/* With a reader a checkpoint of a part, else of all. */
static void a_full_disk_refuses_a_checkpoint(void **state) {
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int is_held = 0; is_held < 2; is_held++) {
        struct database database;
        open_database(&database);
        add_rows(&database, ROWS);
        if (is_held)
            hold(&database, ROWS);
        add_rows(&database, ROWS_BEHIND);
        struct rlimit small = {.rlim_cur = ROWS * 300, .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_int_not_equal(checkpoint(&database), SQLITE_OK);
        assert_whole(&database, ROWS + ROWS_BEHIND);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        if (is_held)
            execute(database.reader, "COMMIT");
        assert_int_equal(checkpoint(&database), SQLITE_OK);
        assert_whole(&database, ROWS + ROWS_BEHIND);
        close_database(&database);
    }
}

static ssize_t fail_to_write(int fd, const void *bytes, size_t size, off_t offset) {
    (void)fd;
    (void)bytes;
    (void)size;
    (void)offset;
    errno = EIO;
    return -1;
}

/* The function that SQLite writes with; NULL: the system's. */
static void hook_writes(ssize_t (*write_at)(int, const void *, size_t, off_t)) {
    static const char *const names[] = {"pwrite", "pwrite64"};
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");
    for (size_t i = 0; i < 2; i++)
        unix_vfs->xSetSystemCall(unix_vfs, names[i], (sqlite3_syscall_ptr)write_at);
}

/* Changes few rows of an old table, whose pages are written after the copy. */
static void change_few_rows(struct database *database, bool is_held) {
    open_database(database);
    add_rows(database, ROWS);
    assert_int_equal(checkpoint(database), SQLITE_OK);
    execute(database->writer, "UPDATE rows SET filler = x'01' WHERE key < 30");
    if (is_held)
        hold(database, ROWS);
    execute(database->writer, "UPDATE rows SET filler = x'01' WHERE key > 3000 AND key < 3030");
}

/* With a reader a checkpoint of a part, else of all. */
static void a_failed_write_fails_the_checkpoint(void **state) {
    (void)state;
    for (int is_held = 0; is_held < 2; is_held++) {
        struct database database;
        change_few_rows(&database, is_held);
        hook_writes(fail_to_write);
        assert_int_not_equal(checkpoint(&database), SQLITE_OK);
        hook_writes(NULL);
        assert_whole(&database, ROWS);
        if (is_held)
            execute(database.reader, "COMMIT");
        assert_int_equal(checkpoint(&database), SQLITE_OK);
        assert_int_equal(
            number_of(database.reader, "SELECT count(*) FROM rows WHERE filler = x'01'", 0),
            2 * 29);
        assert_whole(&database, ROWS);
        close_database(&database);
    }
}

/* The other connection of the database, which adds to the log during a checkpoint. */
static sqlite3 *intruder;

static ssize_t intrude_and_fail(int fd, const void *bytes, size_t size, off_t offset) {
    sqlite3 *connection = intruder;
    if (!connection || offset < LAST_ROWS_OFFSET)
        return pwrite(fd, bytes, size, offset);
    intruder = NULL;
    execute(connection, "INSERT INTO rows (filler) VALUES (x'03')");
    errno = EIO;
    return -1;
}

/* Before the pages count as copied. */
static void an_error_that_cannot_be_returned_ends_the_process(void **state) {
    struct database database;
    (void)state;
    change_few_rows(&database, false);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fclose(stderr);
        intruder = database.reader;
        hook_writes(intrude_and_fail);
        (void)checkpoint(&database);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_whole(&database, ROWS + 1);
    assert_int_equal(checkpoint(&database), SQLITE_OK);
    assert_whole(&database, ROWS + 1);
    close_database(&database);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_is_few_calls_and_is_read_by_other_connections),
        cmocka_unit_test(a_commit_larger_than_the_cache_is_whole),
        cmocka_unit_test(a_checkpoint_is_few_calls),
        cmocka_unit_test(a_checkpoint_of_a_part_of_the_log_is_whole),
        cmocka_unit_test(a_full_disk_refuses_a_checkpoint),
        cmocka_unit_test(a_failed_write_fails_the_checkpoint),
        cmocka_unit_test(an_error_that_cannot_be_returned_ends_the_process),
    };
    return CONTRACT_RUN_ONLY("sqlite: gathered writes", "sqlite", tests);
}
