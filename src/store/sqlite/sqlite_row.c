/* From columns to structs and back, by the layouts of store_rows.h. */
#include <assert.h>

#include "store/sqlite/sqlite.h"

uint64_t sqlite_row_time(sqlite3_stmt *statement, int column, const struct uuid *cursor) {
    return sqlite3_column_type(statement, column) == SQLITE_NULL ? uuid7_timestamp_ms(cursor)
                                                                 : sqlite_number(statement, column);
}

void sqlite_read_value(sqlite3_stmt *statement, int index, const struct store_column *column,
                       struct store_value *value) {
    char type = store_column_type(column);
    sqlite3_value *found = sqlite3_column_value(statement, index);
    int found_type = sqlite3_value_type(found);
    /* A small number that is none is damage. */
    value->is_null = found_type == SQLITE_NULL || (type == 's' && found_type != SQLITE_INTEGER);
    if (type == 'n' || type == 's')
        value->number = sqlite3_value_int64(found);
    else
        value->bytes = sqlite_value_text(found);
}

bool sqlite_read_columns(sqlite3_stmt *statement, int first, const struct store_column *columns,
                         size_t count, void *row) {
    bool is_sound = true;
    for (size_t i = 0; i < count; i++) {
        struct store_value value = {0};
        if (!store_column_is_selected(&columns[i]))
            continue;
        sqlite_read_value(statement, first++, &columns[i], &value);
        is_sound = store_column_set(&columns[i], row, &value) && is_sound;
    }
    return is_sound;
}

bool sqlite_read_row(sqlite3_stmt *statement, int first, const struct store_layout *layout,
                     void *row) {
    memset(row, 0, layout->row_bytes);
    return sqlite_read_columns(statement, first, layout->columns,
                               layout->column_count + layout->joined_count, row);
}

void sqlite_bind_value(sqlite3_stmt *statement, int index, const struct store_column *column,
                       const struct store_value *value) {
    int code;
    switch (value->is_null ? '0' : store_column_type(column)) {
    case '0':
        code = sqlite3_bind_null(statement, index);
        break;
    case 'n':
    case 's':
        code = sqlite3_bind_int64(statement, index, value->number);
        break;
    case 't':
        code = sqlite3_bind_text64(statement, index, value->bytes.data, value->bytes.size,
                                   SQLITE_STATIC, SQLITE_UTF8);
        break;
    default:
        code = sqlite3_bind_blob64(statement, index, value->bytes.data, value->bytes.size,
                                   SQLITE_STATIC);
        break;
    }
    assert(code == SQLITE_OK);
    (void)code;
}

enum status sqlite_run_row(struct sqlite_session *session, enum statement_id id,
                           const struct store_column *columns, size_t count, const void *row) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, id, &statement);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        struct store_value value = {0};
        store_column_get(&columns[i], row, &value);
        sqlite_bind_value(statement, (int)i + 1, &columns[i], &value);
    }
    return sqlite_run(session, statement);
}
