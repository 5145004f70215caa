/* From columns to structs. The order of the columns is that of the statements' texts. */
#include <endian.h>

#include "store/postgres/postgres.h"

bool postgres_is_null(struct postgres_row row, int column) {
    return PQgetisnull(row.result, row.row, column) != 0;
}

uint64_t postgres_number(struct postgres_row row, int column) {
    uint64_t ordered;
    uint16_t small;
    const char *data = PQgetvalue(row.result, row.row, column);
    if (PQgetlength(row.result, row.row, column) == sizeof(small)) {
        memcpy(&small, data, sizeof(small));
        return (uint64_t)(int16_t)be16toh(small);
    }
    if (PQgetlength(row.result, row.row, column) != sizeof(ordered))
        return 0;
    memcpy(&ordered, data, sizeof(ordered));
    return be64toh(ordered);
}

struct slice postgres_text(struct postgres_row row, int column) {
    if (postgres_is_null(row, column))
        return (struct slice){NULL, 0};
    return (struct slice){PQgetvalue(row.result, row.row, column),
                          (size_t)PQgetlength(row.result, row.row, column)};
}

bool postgres_bytes(struct postgres_row row, int column, void *bytes, size_t size) {
    if (postgres_is_null(row, column) || (size_t)PQgetlength(row.result, row.row, column) != size)
        return false;
    memcpy(bytes, PQgetvalue(row.result, row.row, column), size);
    return true;
}

uint64_t postgres_row_time(struct postgres_row row, int column, const struct uuid *cursor) {
    return postgres_is_null(row, column) ? uuid7_timestamp_ms(cursor)
                                         : postgres_number(row, column);
}

void postgres_read_value(struct postgres_row row, int index, const struct store_column *column,
                         struct store_value *value) {
    char type = store_column_type(column);
    *value = (struct store_value){.is_null = postgres_is_null(row, index)};
    if (type == 'n' || type == 's')
        value->number = (int64_t)postgres_number(row, index);
    else
        value->bytes = postgres_text(row, index);
}

bool postgres_read_columns(struct postgres_row row, int first, const struct store_column *columns,
                           size_t count, void *read) {
    bool is_sound = true;
    for (size_t i = 0; i < count; i++) {
        struct store_value value;
        if (!store_column_is_selected(&columns[i]))
            continue;
        postgres_read_value(row, first++, &columns[i], &value);
        is_sound = store_column_set(&columns[i], read, &value) && is_sound;
    }
    return is_sound;
}

bool postgres_read_row(struct postgres_row row, int first, const struct store_layout *layout,
                       void *read) {
    memset(read, 0, layout->row_bytes);
    return postgres_read_columns(row, first, layout->columns,
                                 layout->column_count + layout->joined_count, read);
}

enum status postgres_query_text(struct postgres_session *session, struct arena *arena,
                                struct slice *value) {
    PGresult *result = NULL;
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK && PQntuples(result) == 0)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK) {
        *value = arena_copy(arena, postgres_text((struct postgres_row){result, 0}, 0));
        status = value->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    PQclear(result);
    return status;
}
