/* The queries of lists, for the engines. Both ask the same: first the keys of the rows, by the
 * index of the order, then the rows. The index has a part for each owner and state, and the first
 * keys of each are merged. So a query reads few keys, and no more rows than it answers.
 * Thread: any.
 * Memory: the values borrow the texts of the list.
 * Invariant: the first rows of a list cost the same however many rows the store has. The rows of a
 * filter are sorted, and are at most STORE_LIST_FEW_MAX. */
#ifndef STORE_STORE_LIST_H
#define STORE_STORE_LIST_H

#include "store/store_rows.h"

#define STORE_LIST_SQL_BYTES_MAX 8192
#define STORE_LIST_VALUES_MAX    24

struct store_list_sql {
    char text[STORE_LIST_SQL_BYTES_MAX];
    size_t value_count;
    struct store_value values[STORE_LIST_VALUES_MAX];
    const struct store_column *columns[STORE_LIST_VALUES_MAX]; /* the type of each value */
};

/* mark: '?' of SQLite or '$' of PostgreSQL. */
void store_list_rows_sql(const struct store_list *list, char mark, struct store_list_sql *sql);
void store_count_listed_sql(const struct store_list *list, char mark, struct store_list_sql *sql);

#endif
