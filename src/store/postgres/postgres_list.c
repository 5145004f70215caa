/* Lists of runs and workers. Their statements follow from what is asked for, and are planned for
 * each call. */
#include <endian.h>

#include "store/postgres/postgres.h"
#include "store/store_list.h"

static enum status ask_once(struct postgres_session *session, const struct store_list_sql *sql,
                            PGresult **result) {
    const char *data[STORE_LIST_VALUES_MAX];
    int sizes[STORE_LIST_VALUES_MAX], formats[STORE_LIST_VALUES_MAX];
    uint64_t numbers[STORE_LIST_VALUES_MAX];
    for (size_t i = 0; i < sql->value_count; i++) {
        bool is_number = store_column_type(sql->columns[i]) == 'n';
        numbers[i] = htobe64((uint64_t)sql->values[i].number);
        data[i] = is_number ? (const char *)&numbers[i] : sql->values[i].bytes.data;
        sizes[i] = is_number ? (int)sizeof(numbers[i]) : (int)sql->values[i].bytes.size;
        formats[i] = 1;
    }
    enum status status = postgres_ensure(session);
    if (status != STATUS_OK)
        return status;
    *result = PQsendQueryParams(session->connection, sql->text, (int)sql->value_count, NULL, data,
                                sizes, formats, 1)
                  ? postgres_results(session->store, session->connection)
                  : NULL;
    if (PQresultStatus(*result) == PGRES_TUPLES_OK)
        return STATUS_OK;
    status = postgres_fault(session, *result);
    PQclear(*result);
    *result = NULL;
    return status;
}

/* The server may have ended an idle connection long ago. */
static enum status ask(struct postgres_session *session, const struct store_list_sql *sql,
                       PGresult **result) {
    bool was_connected = session->connection != NULL;
    *result = NULL;
    enum status status = ask_once(session, sql, result);
    if (status == STATUS_STORE_UNAVAILABLE && was_connected && !session->connection &&
        session->base.mode == STORE_READ && !session->in_transaction)
        status = ask_once(session, sql, result);
    return status;
}

enum status postgres_list_rows(struct store_session *base, const struct store_list *list,
                               void *user, store_list_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    struct store_list_sql sql;
    PGresult *result = NULL;
    store_list_rows_sql(list, '$', &sql);
    enum status status = ask(session, &sql, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct store_list_row row;
        store_session_count_row(base);
        status = postgres_read_row((struct postgres_row){result, i}, 0, &store_list_layout, &row)
                     ? callback(user, &row)
                     : postgres_damaged(session, store_list_layout.row_name, row.ref);
    }
    PQclear(result);
    return status;
}

enum status postgres_count_listed(struct store_session *base, const struct store_list *list,
                                  uint64_t *count) {
    struct store_list_sql sql;
    PGresult *result = NULL;
    store_count_listed_sql(list, '$', &sql);
    enum status status = ask(postgres_session_of(base), &sql, &result);
    if (status == STATUS_OK)
        *count = postgres_number((struct postgres_row){result, 0}, 0);
    PQclear(result);
    return status;
}
