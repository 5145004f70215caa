/* Lists of runs and workers. Their statements follow from what is asked for, and are prepared for
 * each call. */
#include <stdio.h>

#include "base/limits.h"
#include "store/sqlite/sqlite.h"
#include "store/store_list.h"

static enum status prepare(struct sqlite_session *session, const struct store_list_sql *sql,
                           sqlite3_stmt **statement) {
    int code = sqlite3_prepare_v2(session->database, sql->text, -1, statement, NULL);
    if (code != SQLITE_OK) {
        session->reason = REASON_STORE_FAILED;
        return sqlite_connect_fault(session->store->path, session->database, code, session->error);
    }
    for (size_t i = 0; i < sql->value_count; i++)
        sqlite_bind_value(*statement, (int)i + 1, sql->columns[i], &sql->values[i]);
    return STATUS_OK;
}

/* The rows are copied first, because a callback may use the session. */
enum status sqlite_list_rows(struct store_session *base, const struct store_list *list, void *user,
                             store_list_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    struct store_list_sql sql;
    sqlite3_stmt *statement = NULL;
    struct arena arena;
    size_t count = 0;
    arena_init(&arena, SQLITE_WALK_ARENA_BYTES_MAX);
    store_list_rows_sql(list, '?', &sql);
    struct store_list_row *rows = arena_alloc(&arena, list->limit * sizeof(*rows));
    enum status status = rows ? prepare(session, &sql, &statement) : STATUS_OUT_OF_MEMORY;
    while (status == STATUS_OK && (status = sqlite_next(session, statement)) == STATUS_OK) {
        struct store_list_row *row = &rows[count];
        if (!sqlite_read_row(statement, 0, &store_list_layout, row))
            status = sqlite_damaged(session, store_list_layout.row_name, row->ref);
        else if (!store_keep(&arena, &store_list_layout, row))
            status = STATUS_OUT_OF_MEMORY;
        else
            count++;
    }
    sqlite3_finalize(statement);
    status = status == STATUS_NOT_FOUND ? STATUS_OK : status;
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = callback(user, &rows[i]);
    arena_release(&arena);
    return status;
}

enum status sqlite_count_listed(struct store_session *base, const struct store_list *list,
                                uint64_t *count) {
    struct sqlite_session *session = sqlite_session_of(base);
    struct store_list_sql sql;
    sqlite3_stmt *statement = NULL;
    store_count_listed_sql(list, '?', &sql);
    enum status status = prepare(session, &sql, &statement);
    if (status == STATUS_OK)
        status = sqlite_next(session, statement);
    if (status == STATUS_OK)
        *count = sqlite_number(statement, 0);
    sqlite3_finalize(statement);
    return status;
}
