/* The forks of topics with journal rows cannot be found in the log: a row that was written again
 * after a repair names an old event. So each is noted when the first later epoch begins, and a
 * topic without a note has fork 0. */
#include "store/sqlite/sqlite_fork.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "store/store.h"

#define TEXT_OF_VALUE(number) #number
#define TEXT_OF(number)       TEXT_OF_VALUE(number)
#define NOTES                 "name LIKE '" STORE_FORK_PREFIX "%'"
#define PROPERTIES            "('fork_log_id', 'import_log_id')"

/* A log, as far as its fork is concerned. */
struct log {
    sqlite3 *database;
    bool has_fork;
    int64_t fork_log_id;
    int64_t last_log_id;
};

int sqlite_fork_note(sqlite3 *database) {
    int code =
        sqlite3_exec(database,
                     "INSERT OR IGNORE INTO meta (name, value) SELECT '" STORE_FORK_PREFIX
                     "' || topic, head_seq FROM topics WHERE entity_ref IS NULL AND NOT EXISTS "
                     "(SELECT 1 FROM meta WHERE name IN " PROPERTIES
                     ") ORDER BY ref LIMIT " TEXT_OF(STORE_FORK_TOPICS_MAX),
                     NULL, NULL, NULL);
    /* A derived table may be missing or have other columns. It is repaired later. */
    if (code != SQLITE_OK && (code & 0xff) != SQLITE_ERROR)
        return code;
    return sqlite3_exec(database,
                        "INSERT OR IGNORE INTO meta (name, value) SELECT 'fork_log_id', "
                        "coalesce(max(log_id), 0) FROM events",
                        NULL, NULL, NULL);
}

/* Stores of before schema 10 have no note: as in that migration, an epoch that is younger than the
 * first event is not the first one. */
static int read_log(struct log *log) {
    static const char sql[] =
        "SELECT (SELECT min(CAST(value AS INTEGER)) FROM meta WHERE name IN " PROPERTIES
        "), coalesce(max(log_id), 0), (SELECT count(*) FROM meta m JOIN events e ON e.log_id = "
        "(SELECT min(log_id) FROM events) WHERE m.name = 'epoch' AND (SELECT user_version FROM "
        "pragma_user_version) < 10 AND hex(substr(e.cursor, 1, 6)) < upper(substr(m.value, 1, 8) "
        "|| substr(m.value, 10, 4))) FROM events";
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(log->database, sql, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        bool is_later = sqlite3_column_int(statement, 2) > 0;
        log->has_fork = is_later || sqlite3_column_type(statement, 0) != SQLITE_NULL;
        log->fork_log_id = sqlite3_column_int64(statement, 0);
        log->last_log_id = sqlite3_column_int64(statement, 1);
        code = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    return code;
}

/* Cursors are unique, and the log of every copy begins as that of its original. So two logs that
 * have the same event at a place are the same up to there. */
static bool is_same_event(sqlite3_stmt *statements[2], int64_t log_id) {
    bool has_row[2];
    for (size_t i = 0; i < 2; i++) {
        sqlite3_reset(statements[i]);
        sqlite3_bind_int64(statements[i], 1, log_id);
        has_row[i] = sqlite3_step(statements[i]) == SQLITE_ROW;
    }
    if (!has_row[0] || !has_row[1])
        return false;
    int size = sqlite3_column_bytes(statements[0], 0);
    return size > 0 && size == sqlite3_column_bytes(statements[1], 0) &&
           memcmp(sqlite3_column_blob(statements[0], 0), sqlite3_column_blob(statements[1], 0),
                  (size_t)size) == 0;
}

/* The last event that both logs have; 0: none, or one of them cannot be read. */
static int64_t find_common(const struct log *copy, const struct log *replaced) {
    static const char sql[] = "SELECT cursor FROM events WHERE log_id = ?";
    sqlite3_stmt *statements[2] = {NULL, NULL};
    int64_t low = 0;
    int64_t high =
        copy->last_log_id < replaced->last_log_id ? copy->last_log_id : replaced->last_log_id;
    if (sqlite3_prepare_v2(copy->database, sql, -1, &statements[0], NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(replaced->database, sql, -1, &statements[1], NULL) != SQLITE_OK)
        high = 0;
    int64_t probe = high; /* first the usual case: one log is the beginning of the other */
    while (low < high) {
        if (is_same_event(statements, probe))
            low = probe;
        else
            high = probe - 1;
        probe = low + (high - low + 1) / 2;
    }
    sqlite3_finalize(statements[0]);
    sqlite3_finalize(statements[1]);
    return low;
}

/* Adds the notes of the replaced store to a temporary table of the copy. */
static int copy_notes(sqlite3 *copy, sqlite3 *replaced) {
    sqlite3_stmt *from = NULL, *to = NULL;
    int code = sqlite3_exec(copy, "CREATE TEMP TABLE replaced (name TEXT PRIMARY KEY, value)", NULL,
                            NULL, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(copy, "INSERT INTO temp.replaced VALUES (?, ?)", -1, &to, NULL);
    if (code == SQLITE_OK &&
        sqlite3_prepare_v2(replaced, "SELECT name, value FROM meta WHERE " NOTES, -1, &from,
                           NULL) == SQLITE_OK)
        while (code == SQLITE_OK && sqlite3_step(from) == SQLITE_ROW) {
            sqlite3_bind_value(to, 1, sqlite3_column_value(from, 0));
            sqlite3_bind_value(to, 2, sqlite3_column_value(from, 1));
            code = sqlite3_step(to) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(copy);
            sqlite3_reset(to);
        }
    sqlite3_finalize(from);
    sqlite3_finalize(to);
    return code;
}

int sqlite_fork_carry(sqlite3 *copy, sqlite3 *replaced) {
    struct log new = {.database = copy}, old = {.database = replaced};
    sqlite3_stmt *statement = NULL;
    int64_t common = 0;
    int code = read_log(&new);
    if (code == SQLITE_OK)
        code = sqlite_fork_note(copy);
    if (code != SQLITE_OK)
        return code;
    if (replaced && read_log(&old) == SQLITE_OK) {
        common = find_common(&new, &old);
        bool is_noted = (new.has_fork &&new.fork_log_id <= common) ||
                        (old.has_fork && old.fork_log_id <= common);
        if (old.has_fork)
            code = copy_notes(copy, replaced);
        if (code == SQLITE_OK && old.has_fork)
            code = sqlite3_exec(copy,
                                "UPDATE meta SET value = min(CAST(value AS INTEGER), "
                                "coalesce((SELECT CAST(r.value AS INTEGER) FROM temp.replaced r "
                                "WHERE r.name = meta.name), 0)) WHERE " NOTES,
                                NULL, NULL, NULL);
        /* The logs part before the copy's end, and no store knows the heads of that moment. */
        if (code == SQLITE_OK && common < new.last_log_id &&old.last_log_id > 0 && !is_noted)
            code = sqlite3_exec(copy, "DELETE FROM meta WHERE " NOTES, NULL, NULL, NULL);
        /* All that the replaced store has given out is in the copy. */
        if (common == old.last_log_id)
            common = new.last_log_id;
    }
    if (old.has_fork && old.fork_log_id < common)
        common = old.fork_log_id;
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(copy,
                                  "UPDATE meta SET value = min(CAST(value AS INTEGER), ?) WHERE "
                                  "name = 'fork_log_id'",
                                  -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite3_bind_int64(statement, 1, common);
    code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}
