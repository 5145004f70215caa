/* Properties, and rows of whole tables for a move. Rows are read by queries and written by COPY,
 * both in PostgreSQL's binary form. Their statements are made of the table's row in store_rows.c.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/postgres/postgres.h"

/* Rows of one query. A row may be large, and libpq holds all rows of a query in memory. */
#define QUERY_ROWS_MAX 64
/* A page in the form of COPY: texts, and a few bytes for each value. */
#define COPY_BYTES_MAX (512 << 20)
#define LOCK_TIMEOUT   "SET LOCAL lock_timeout = '5s'"
#define NO_APPENDS     "khala_store_was_moved"

/* ---- values ---- */

static const char *type_of(const struct store_column *column) {
    switch (store_column_type(column)) {
    case 'n':
        return "bigint";
    case 's':
        return "smallint";
    case 't':
        return "text";
    case 'b':
        return "bytea";
    default:
        return "uuid";
    }
}

union number {
    uint64_t wide;
    uint16_t narrow;
};

/* The bytes of a value that is not NULL; number holds those of a number. */
static struct slice bytes_of(const struct store_column *column, const struct store_value *value,
                             union number *number) {
    char kind = store_column_type(column);
    if (kind == 'n') {
        number->wide = htobe64((uint64_t)value->number);
        return (struct slice){(const char *)&number->wide, sizeof(number->wide)};
    }
    if (kind == 's') {
        number->narrow = htons((uint16_t)value->number);
        return (struct slice){(const char *)&number->narrow, sizeof(number->narrow)};
    }
    return value->bytes;
}

/* ---- reading ---- */

static enum status take(struct postgres_session *session, PGresult *answered, PGresult **result) {
    ExecStatusType code = PQresultStatus(answered);
    *result = NULL;
    if (code != PGRES_TUPLES_OK && code != PGRES_COMMAND_OK) {
        enum status status = postgres_fault(session, answered);
        PQclear(answered);
        return status;
    }
    *result = answered;
    return STATUS_OK;
}

/* *count: the rows that the query answered. */
static enum status query_rows(struct postgres_session *session,
                              const struct store_rows_query *query, const struct store_value *after,
                              struct store_page *page, size_t *count) {
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    const char *data[STORE_PAGE_COLUMNS_MAX] = {NULL};
    int sizes[STORE_PAGE_COLUMNS_MAX], formats[STORE_PAGE_COLUMNS_MAX];
    union number numbers[STORE_PAGE_COLUMNS_MAX];
    PGresult *result = NULL;
    const struct store_layout *layout = query->table->layout;
    size_t key_count = after ? query->table->key_count : 0;
    store_rows_sql(query, sql);
    for (size_t i = 0; i < key_count; i++) {
        struct slice bytes = bytes_of(&layout->columns[i], &after[i], &numbers[i]);
        data[i] = bytes.data;
        sizes[i] = (int)bytes.size;
        formats[i] = 1;
    }
    enum status status = postgres_ensure(session);
    if (status == STATUS_OK)
        status = take(
            session,
            PQexecParams(session->connection, sql, (int)key_count, NULL, data, sizes, formats, 1),
            &result);
    *count = status == STATUS_OK ? (size_t)PQntuples(result) : 0;
    for (size_t row = 0; status == STATUS_OK && row < *count; row++) {
        struct store_value values[STORE_PAGE_COLUMNS_MAX];
        for (size_t i = 0; i < layout->column_count; i++)
            postgres_read_value((struct postgres_row){result, (int)row}, (int)i,
                                &layout->columns[i], &values[i]);
        status = store_page_add(page, values);
        if (status == STATUS_INTERNAL_ERROR)
            status = postgres_damaged(session, page->table->name, page->row_count);
        else if (status != STATUS_OK)
            snprintf(session->error, sizeof(session->error),
                     "a row is larger than the memory reserved for it");
    }
    PQclear(result);
    return status;
}

static void places(const struct store_table *table, char text[128]) {
    int size = 0;
    for (size_t i = 0; i < table->key_count; i++)
        size += snprintf(text + size, 128 - (size_t)size, "%s$%zu::%s", i > 0 ? ", " : "", i + 1,
                         type_of(&table->layout->columns[i]));
}

enum status postgres_read_rows(struct store_session *base, const struct store_value *after,
                               struct store_page *page) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = STATUS_OK;
    char keys[128] = "";
    bool is_end = false;
    places(page->table, keys);
    while (status == STATUS_OK && !is_end && !store_page_is_full(page)) {
        size_t room = page->row_max - page->row_count;
        size_t count = 0;
        const struct store_rows_query query = {
            .table = page->table,
            .places = after ? keys : NULL,
            .limit = room < QUERY_ROWS_MAX ? room : QUERY_ROWS_MAX,
        };
        status = query_rows(session, &query, after, page, &count);
        is_end = count < query.limit;
        if (page->row_count > 0)
            after = store_page_row(page, page->row_count - 1);
    }
    return status;
}

enum status postgres_read_last_row(struct store_session *base, struct store_page *page) {
    const struct store_rows_query query = {.table = page->table, .limit = 1, .is_last = true};
    size_t count = 0;
    enum status status = query_rows(postgres_session_of(base), &query, NULL, page, &count);
    return status == STATUS_OK && count == 0 ? STATUS_NOT_FOUND : status;
}

enum status postgres_count_rows(struct store_session *base, const struct store_table *table,
                                uint64_t *count) {
    struct postgres_session *session = postgres_session_of(base);
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    PGresult *result = NULL;
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s WHERE %s", table->name,
             store_table_filter(table));
    enum status status = postgres_ensure(session);
    if (status == STATUS_OK)
        status = take(session, PQexec(session->connection, sql), &result);
    if (status == STATUS_OK)
        *count = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return status;
}

/* ---- writing ---- */

/* In an open transaction. */
static enum status execute(struct postgres_session *session, const char *sql) {
    PGresult *result = NULL;
    enum status status = take(session, PQexec(session->connection, sql), &result);
    PQclear(result);
    return status;
}

static enum status delete_rows(struct postgres_session *session, const struct store_table *table) {
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE %s", table->name, store_table_filter(table));
    return execute(session, sql);
}

/* A page in the form of COPY: the signature, no flags, no extension; the rows; the mark of the end.
 */
static void put_page(const struct store_page *page, struct buffer *text) {
    static const char head[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0";
    static const char end[2] = "\377\377";
    _Static_assert(sizeof(head) - 1 == 19, "the size of the head");
    const struct store_layout *layout = page->table->layout;
    uint16_t column_count = htons((uint16_t)layout->column_count);
    buffer_append(text, head, sizeof(head) - 1);
    for (size_t i = 0; i < page->row_count; i++) {
        const struct store_value *row = store_page_row(page, i);
        buffer_append(text, &column_count, sizeof(column_count));
        for (size_t column = 0; column < layout->column_count; column++) {
            union number number;
            struct slice bytes = {0};
            uint32_t size = UINT32_MAX;
            if (!row[column].is_null) {
                bytes = bytes_of(&layout->columns[column], &row[column], &number);
                size = htonl((uint32_t)bytes.size);
            }
            buffer_append(text, &size, sizeof(size));
            buffer_append_slice(text, bytes);
        }
    }
    buffer_append(text, end, sizeof(end));
}

static enum status copy_in(struct postgres_session *session, const struct store_page *page,
                           struct slice text) {
    char sql[STORE_ROWS_SQL_BYTES_MAX];
    PGresult *result = NULL;
    struct buffer command = buffer_over(sql, sizeof(sql));
    buffer_printf(&command, "COPY %s (", page->table->name);
    store_table_names(page->table, page->table->layout->column_count, "", &command);
    buffer_printf(&command, ") FROM STDIN (FORMAT binary)%c", '\0');
    assert(buffer_status(&command) == STATUS_OK);
    result = PQexec(session->connection, sql);
    bool is_begun = PQresultStatus(result) == PGRES_COPY_IN;
    enum status status = is_begun ? STATUS_OK : postgres_fault(session, result);
    PQclear(result);
    if (!is_begun)
        return status;
    if (PQputCopyData(session->connection, text.data, (int)text.size) != 1 ||
        PQputCopyEnd(session->connection, NULL) != 1)
        return postgres_fault(session, NULL);
    result = PQgetResult(session->connection);
    status = take(session, result, &result);
    PQclear(result);
    while (session->connection && (result = PQgetResult(session->connection)))
        PQclear(result);
    return status;
}

enum status postgres_write_rows(struct store_session *base, const struct store_page *page) {
    struct postgres_session *session = postgres_session_of(base);
    struct buffer text;
    buffer_init(&text, COPY_BYTES_MAX);
    put_page(page, &text);
    if (buffer_status(&text) != STATUS_OK) {
        buffer_release(&text);
        return STATUS_OUT_OF_MEMORY;
    }
    enum status status = postgres_write_open(session);
    if (status == STATUS_OK) {
        if (page->table->is_replaced)
            status = delete_rows(session, page->table);
        if (status == STATUS_OK)
            status = copy_in(session, page, buffer_slice(&text));
        bool is_numbered = strcmp(page->table->name, "khala_projection_drifts") == 0;
        if (status == STATUS_OK && is_numbered && page->row_count > 0) {
            char sql[STORE_ROWS_SQL_BYTES_MAX];
            /* The next drift gets the number after the last one. */
            snprintf(sql, sizeof(sql),
                     "SELECT setval(pg_get_serial_sequence('runtime.khala_projection_drifts', "
                     "'id'), %lld)",
                     (long long)store_page_row(page, page->row_count - 1)->number);
            status = execute(session, sql);
        }
        status = postgres_write_end(session, status);
    }
    session->tail.known = false;
    buffer_release(&text);
    return status;
}

/* ---- properties ---- */

static enum status put_property(struct postgres_session *session,
                                const struct store_property *property) {
    if (!property->value.data) {
        postgres_begin(session, STATEMENT_REMOVE_PROPERTY);
        postgres_put_text(session, property->name);
    } else {
        postgres_begin(session, STATEMENT_PUT_PROPERTY);
        postgres_put_text(session, property->name);
        postgres_put_text(session, property->value);
    }
    return postgres_run(session);
}

/* A constraint refuses rows at once, whatever snapshot a user's transaction has. It waits for the
 * transactions that added a row and are still open. */
static enum status close_outbox(struct postgres_session *session) {
    PGresult *result = NULL;
    enum status status = execute(session, LOCK_TIMEOUT);
    if (status == STATUS_OK)
        status = execute(session, "ALTER TABLE outbox DROP CONSTRAINT IF EXISTS " NO_APPENDS
                                  ", ADD CONSTRAINT " NO_APPENDS " CHECK (false) NOT VALID");
    if (status == STATUS_OK)
        status = take(session, PQexec(session->connection, "SELECT EXISTS (SELECT FROM outbox)"),
                      &result);
    if (status == STATUS_OK && strcmp(PQgetvalue(result, 0, 0), "t") == 0) {
        snprintf(
            session->error, sizeof(session->error),
            "rows of runtime.outbox wait for a server: run 'khala serve' until they are taken");
        status = STATUS_ALREADY_EXISTS;
    }
    PQclear(result);
    return status;
}

enum status postgres_put_properties(struct store_session *base,
                                    const struct store_property *properties, size_t count,
                                    enum store_appending appending) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_open(session);
    if (status != STATUS_OK)
        return status;
    if (appending == STORE_APPENDING_CLOSED)
        status = close_outbox(session);
    else if (appending == STORE_APPENDING_OPENED)
        status = execute(session, "ALTER TABLE outbox DROP CONSTRAINT IF EXISTS " NO_APPENDS);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = put_property(session, &properties[i]);
    return postgres_write_end(session, status);
}

enum status postgres_note_fork(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_open(session);
    if (status != STATUS_OK)
        return status;
    return postgres_write_end(session, execute(session, POSTGRES_NOTE_FORK));
}

enum status postgres_lower_fork(struct store_session *base, uint64_t log_id) {
    struct postgres_session *session = postgres_session_of(base);
    char sql[300];
    snprintf(sql, sizeof(sql),
             "DELETE FROM meta WHERE " POSTGRES_FORKS "; INSERT INTO meta (name, value) VALUES "
             "('fork_log_id', '%llu') ON CONFLICT (name) DO UPDATE SET value = "
             "least(meta.value::bigint, excluded.value::bigint)::text",
             (unsigned long long)log_id);
    enum status status = postgres_write_open(session);
    if (status != STATUS_OK)
        return status;
    return postgres_write_end(session, execute(session, sql));
}

enum status postgres_clear_rows(struct store_session *base, const struct store_property *property) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_open(session);
    if (status != STATUS_OK)
        return status;
    for (const struct store_table *table = store_tables; status == STATUS_OK && table->name;
         table++)
        if (!table->is_replaced)
            status = delete_rows(session, table);
    if (status == STATUS_OK)
        status = execute(session, "DELETE FROM secrets");
    if (status == STATUS_OK)
        status = put_property(session, property);
    status = postgres_write_end(session, status);
    session->tail.known = false;
    return status;
}

enum status postgres_load_property(struct store_session *base, struct slice name,
                                   struct arena *arena, struct slice *value) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_PROPERTY);
    postgres_put_text(session, name);
    return postgres_query_text(session, arena, value);
}
