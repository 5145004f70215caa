/* Properties, and rows of whole tables for a move. Their statements are made of the table's row in
 * store_rows.c, and are prepared for each page. */
#include <assert.h>
#include <stdio.h>

#include "store/sqlite/sqlite.h"
#include "store/sqlite/sqlite_fork.h"
#include "store/store_engine.h"

/* ---- statements ---- */

static enum status prepare(struct sqlite_session *session, const char *sql,
                           sqlite3_stmt **statement) {
    int code = sqlite3_prepare_v2(session->database, sql, -1, statement, NULL);
    if (code == SQLITE_OK)
        return STATUS_OK;
    session->reason = REASON_STORE_FAILED;
    return sqlite_connect_fault(session->store->path, session->database, code, session->error);
}

static void places(char text[64], size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += (size_t)snprintf(text + size, 64 - size, i == 0 ? "?" : ",?");
}

/* ---- reading ---- */

static enum status read_page(struct sqlite_session *session, const struct store_rows_query *query,
                             const struct store_value *after, struct store_page *page) {
    const struct store_layout *layout = query->table->layout;
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    sqlite3_stmt *statement = NULL;
    store_rows_sql(query, sql);
    enum status status = prepare(session, sql, &statement);
    for (size_t i = 0; status == STATUS_OK && after && i < query->table->key_count; i++)
        sqlite_bind_value(statement, (int)i + 1, &layout->columns[i], &after[i]);
    while (status == STATUS_OK && !store_page_is_full(page)) {
        struct store_value values[STORE_PAGE_COLUMNS_MAX] = {0};
        status = sqlite_next(session, statement);
        if (status != STATUS_OK)
            break;
        for (size_t i = 0; i < layout->column_count; i++)
            sqlite_read_value(statement, (int)i, &layout->columns[i], &values[i]);
        status = store_page_add(page, values);
        if (status == STATUS_INTERNAL_ERROR)
            status = sqlite_damaged(session, page->table->name, sqlite_number(statement, 0));
        else if (status != STATUS_OK)
            snprintf(session->error, sizeof(session->error),
                     "a row is larger than the memory reserved for it");
    }
    sqlite3_finalize(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_read_rows(struct store_session *base, const struct store_value *after,
                             struct store_page *page) {
    char keys[64] = "";
    places(keys, page->table->key_count);
    const struct store_rows_query query = {.table = page->table,
                                           .places = after ? keys : NULL,
                                           .limit = page->row_max - page->row_count};
    return read_page(sqlite_session_of(base), &query, after, page);
}

enum status sqlite_read_last_row(struct store_session *base, struct store_page *page) {
    const struct store_rows_query query = {.table = page->table, .limit = 1, .is_last = true};
    enum status status = read_page(sqlite_session_of(base), &query, NULL, page);
    return status == STATUS_OK && page->row_count == 0 ? STATUS_NOT_FOUND : status;
}

enum status sqlite_count_rows(struct store_session *base, const struct store_table *table,
                              uint64_t *count) {
    struct sqlite_session *session = sqlite_session_of(base);
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    sqlite3_stmt *statement = NULL;
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s WHERE %s", table->name,
             store_table_filter(table));
    enum status status = prepare(session, sql, &statement);
    if (status == STATUS_OK)
        status = sqlite_next(session, statement);
    if (status == STATUS_OK)
        *count = sqlite_number(statement, 0);
    sqlite3_finalize(statement);
    return status;
}

/* ---- writing ---- */

static enum status execute(struct sqlite_session *session, const char *sql) {
    sqlite3_stmt *statement = NULL;
    enum status status = prepare(session, sql, &statement);
    if (status == STATUS_OK)
        status = sqlite_run(session, statement);
    sqlite3_finalize(statement);
    return status;
}

static enum status delete_rows(struct sqlite_session *session, const struct store_table *table) {
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE %s", table->name, store_table_filter(table));
    return execute(session, sql);
}

static enum status insert_rows(struct sqlite_session *session, const struct store_page *page) {
    const struct store_layout *layout = page->table->layout;
    char sql[STORE_ROWS_SQL_BYTES_MAX], columns[64] = "";
    struct buffer text = buffer_over(sql, sizeof(sql));
    sqlite3_stmt *statement = NULL;
    places(columns, layout->column_count);
    buffer_printf(&text, "INSERT INTO %s (", page->table->name);
    store_table_names(page->table, layout->column_count, "", &text);
    buffer_printf(&text, ") VALUES (%s)%c", columns, '\0');
    assert(buffer_status(&text) == STATUS_OK);
    enum status status = prepare(session, sql, &statement);
    for (size_t i = 0; status == STATUS_OK && i < page->row_count; i++) {
        const struct store_value *row = store_page_row(page, i);
        for (size_t column = 0; column < layout->column_count; column++)
            sqlite_bind_value(statement, (int)column + 1, &layout->columns[column], &row[column]);
        status = sqlite_run(session, statement);
    }
    sqlite3_finalize(statement);
    return status;
}

enum status sqlite_write_rows(struct store_session *base, const struct store_page *page) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK && page->table->is_replaced)
        status = delete_rows(session, page->table);
    if (status == STATUS_OK)
        status = insert_rows(session, page);
    if (status == STATUS_OK && page->row_count > 0 && strcmp(page->table->name, "events") == 0) {
        char sql[STORE_ROWS_SQL_BYTES_MAX];
        /* The positions of these events. All of them go into the large part at once. */
        snprintf(sql, sizeof(sql),
                 "INSERT INTO event_positions (entity_ref, seq, log_id) SELECT entity_ref, seq, "
                 "log_id FROM events WHERE log_id BETWEEN %lld AND %lld ORDER BY entity_ref, seq",
                 (long long)store_page_row(page, 0)->number,
                 (long long)store_page_row(page, page->row_count - 1)->number);
        status = execute(session, sql);
    }
    status = sqlite_end(session, status);
    session->tail.known = false;
    return status;
}

static enum status put_property(struct sqlite_session *session,
                                const struct store_property *property) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(
        session, property->value.data ? STATEMENT_PUT_PROPERTY : STATEMENT_REMOVE_PROPERTY,
        &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_text(statement, 1, property->name);
    if (property->value.data)
        sqlite_bind_text(statement, 2, property->value);
    return sqlite_run(session, statement);
}

/* Users cannot append in transactions of their own, so appending needs no change. */
enum status sqlite_put_properties(struct store_session *base,
                                  const struct store_property *properties, size_t count,
                                  enum store_appending appending) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    (void)appending;
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = put_property(session, &properties[i]);
    return sqlite_end(session, status);
}

enum status sqlite_note_fork(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK) {
        int code = sqlite_fork_note(session->database);
        if (code != SQLITE_OK)
            status =
                sqlite_connect_fault(session->store->path, session->database, code, session->error);
    }
    return sqlite_end(session, status);
}

enum status sqlite_lower_fork(struct store_session *base, uint64_t log_id) {
    struct sqlite_session *session = sqlite_session_of(base);
    char sql[200];
    snprintf(sql, sizeof(sql),
             "INSERT INTO meta (name, value) VALUES ('fork_log_id', %llu) ON CONFLICT (name) DO "
             "UPDATE SET value = min(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
             (unsigned long long)log_id);
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = sqlite_execute(session, STATEMENT_DROP_FORKS);
    if (status == STATUS_OK)
        status = execute(session, sql);
    return sqlite_end(session, status);
}

enum status sqlite_clear_rows(struct store_session *base, const struct store_property *property) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    for (const struct store_table *table = store_tables; status == STATUS_OK && table->name;
         table++)
        if (!table->is_replaced)
            status = delete_rows(session, table);
    if (status == STATUS_OK)
        status = put_property(session, property);
    status = sqlite_end(session, status);
    session->tail.known = false;
    return status;
}

enum status sqlite_load_property(struct store_session *base, struct slice name, struct arena *arena,
                                 struct slice *value) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_PROPERTY, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_text(statement, 1, name);
    status = sqlite_next(session, statement);
    if (status == STATUS_OK) {
        *value = arena_copy(arena, sqlite_text(statement, 0));
        status = value->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    sqlite3_reset(statement);
    return status;
}
