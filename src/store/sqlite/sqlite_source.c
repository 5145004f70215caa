#include "store/sqlite/sqlite_source.h"

#include <assert.h>
#include <stdlib.h>

struct source_table {
    sqlite3_vtab base;
    struct sqlite_session *session;
};

struct source_cursor {
    sqlite3_vtab_cursor base;
    const struct sqlite_source *source;
    size_t index;
};

static struct source_cursor *cursor_of(sqlite3_vtab_cursor *cursor) {
    return (struct source_cursor *)cursor;
}

static const void *row_at(const struct source_cursor *cursor) {
    const struct sqlite_source *source = cursor->source;
    return (const char *)source->rows + cursor->index * source->row_bytes;
}

static int is_at_end(sqlite3_vtab_cursor *cursor) {
    return cursor_of(cursor)->index == cursor_of(cursor)->source->row_count;
}

static void skip_hidden_rows(struct source_cursor *cursor) {
    const struct sqlite_source *source = cursor->source;
    while (source->has_row && cursor->index < source->row_count &&
           !source->has_row(source, row_at(cursor)))
        cursor->index++;
}

static int connect_table(sqlite3 *database, void *session, int argument_count,
                         const char *const *arguments, sqlite3_vtab **made, char **error) {
    (void)argument_count;
    (void)arguments;
    (void)error;
    /* As many columns as the widest row has, which is an event. */
    int code = sqlite3_declare_vtab(database, "CREATE TABLE source (c1, c2, c3, c4, c5, c6, c7, "
                                              "c8, c9, c10, c11, c12, c13, c14)");
    struct source_table *table = code == SQLITE_OK ? calloc(1, sizeof(*table)) : NULL;
    if (!table)
        return code == SQLITE_OK ? SQLITE_NOMEM : code;
    table->session = session;
    *made = &table->base;
    return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *table) {
    free(table);
    return SQLITE_OK;
}

/* Every statement reads all rows in their order. */
static int plan(sqlite3_vtab *table, sqlite3_index_info *info) {
    (void)table;
    info->estimatedCost = 1;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **opened) {
    (void)table;
    struct source_cursor *cursor = calloc(1, sizeof(*cursor));
    if (!cursor)
        return SQLITE_NOMEM;
    *opened = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor) {
    free(cursor);
    return SQLITE_OK;
}

static int rewind_cursor(sqlite3_vtab_cursor *base, int plan_number, const char *plan_text,
                         int argument_count, sqlite3_value **arguments) {
    struct source_cursor *cursor = cursor_of(base);
    (void)plan_number;
    (void)plan_text;
    (void)argument_count;
    (void)arguments;
    cursor->source = ((struct source_table *)base->pVtab)->session->source;
    assert(cursor->source);
    cursor->index = 0;
    skip_hidden_rows(cursor);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *base) {
    struct source_cursor *cursor = cursor_of(base);
    cursor->index++;
    skip_hidden_rows(cursor);
    return SQLITE_OK;
}

static int read_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int index) {
    const struct source_cursor *cursor = cursor_of(base);
    const struct store_column *column = &cursor->source->columns[index];
    struct store_value value = {0};
    store_column_get(column, row_at(cursor), &value);
    /* A column without an answer is NULL. */
    if (value.is_null)
        return SQLITE_OK;
    switch (store_column_type(column)) {
    case 'n':
    case 's':
        sqlite3_result_int64(context, value.number);
        break;
    case 't':
        sqlite3_result_text64(context, value.bytes.data, value.bytes.size, SQLITE_STATIC,
                              SQLITE_UTF8);
        break;
    default:
        sqlite3_result_blob64(context, value.bytes.data, value.bytes.size, SQLITE_STATIC);
        break;
    }
    return SQLITE_OK;
}

static int read_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid) {
    *rowid = (sqlite3_int64)cursor_of(base)->index;
    return SQLITE_OK;
}

/* Without xCreate the table exists in every connection that has the module, and in no schema. */
static const sqlite3_module module = {
    .xConnect = connect_table,
    .xBestIndex = plan,
    .xDisconnect = disconnect_table,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = rewind_cursor,
    .xNext = next_row,
    .xEof = is_at_end,
    .xColumn = read_column,
    .xRowid = read_rowid,
};

enum status sqlite_source_register(struct sqlite_session *session) {
    int code = sqlite3_create_module(session->database, "source", &module, session);
    return code == SQLITE_OK ? STATUS_OK
                             : sqlite_connect_fault(session->store->path, session->database, code,
                                                    session->error);
}

static bool is_empty(const struct sqlite_source *source) {
    struct source_cursor first = {.source = source};
    skip_hidden_rows(&first);
    return first.index == source->row_count;
}

enum status sqlite_run_source(struct sqlite_session *session, enum statement_id id,
                              const struct sqlite_source *source) {
    if (is_empty(source))
        return STATUS_OK;
    assert(!session->source);
    session->source = source;
    enum status status = sqlite_execute(session, id);
    session->source = NULL;
    return status;
}

enum status sqlite_query_source(struct sqlite_session *session, enum statement_id id,
                                const struct sqlite_source *source,
                                void (*on_row)(sqlite3_stmt *row)) {
    sqlite3_stmt *statement = NULL;
    if (is_empty(source))
        return STATUS_OK;
    enum status status = sqlite_statement(session, id, &statement);
    assert(!session->source);
    session->source = source;
    while (status == STATUS_OK && (status = sqlite_next(session, statement)) == STATUS_OK)
        on_row(statement);
    session->source = NULL;
    if (statement)
        sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}
