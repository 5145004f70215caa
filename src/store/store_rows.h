/* Rows of the store's tables as plain values, for a move of a whole store between two engines.
 * One thread.
 * Texts and bytes of a page live in its arena until the page is cleared.
 * STATUS_OUT_OF_MEMORY: a row is larger than the memory reserved for it. STATUS_INTERNAL_ERROR: a
 * row is damaged.
 * The table below names all rows that belong to a store; both engines have them under these names.
 */
#ifndef STORE_STORE_ROWS_H
#define STORE_STORE_ROWS_H

#include "store/store.h"

/* A table that moves. */
struct store_table {
    const char *name;
    const char *columns; /* separated by ", "; those of the key come first */
    const char *kinds;   /* of the columns: n number, s small number, t text, b bytes, u uuid */
    size_t key_count;
    const char *filter; /* a condition of the rows that move; NULL: all rows */
    /* A new store has rows up to this first key: 0 none, -1 any. */
    int64_t new_key_max;
    /* A few rows that are written in one transaction, in place of those that a new store has. */
    bool is_replaced;
};

/* In the order in which they move. Ends with a row whose name is NULL. */
extern const struct store_table store_tables[];

struct store_value {
    bool is_null;
    int64_t number;     /* of a number */
    struct slice bytes; /* of any other kind */
};

#define STORE_PAGE_COLUMNS_MAX 20

struct store_page {
    const struct store_table *table;
    size_t column_count;
    size_t row_max;
    size_t row_count;
    size_t bytes; /* of the texts */
    struct arena arena;
    struct store_value *values; /* row by row */
};

MUST_CHECK enum status store_page_init(struct store_page *page);
void store_page_release(struct store_page *page);
/* Makes the page ready for rows of the table. */
void store_page_clear(struct store_page *page, const struct store_table *table);
bool store_page_is_full(const struct store_page *page);
/* Adds a row and copies its texts. */
MUST_CHECK enum status store_page_add(struct store_page *page, const struct store_value *values);
/* A row of the page. */
static inline const struct store_value *store_page_row(const struct store_page *page,
                                                       size_t index) {
    return page->values + index * page->column_count;
}

/* For engines: the query of rows. places: the values of a key, after which the rows follow; NULL:
 * from the first row on. is_last: from the last row back. */
#define STORE_ROWS_SQL_BYTES_MAX 2048
struct store_rows_query {
    const struct store_table *table;
    const char *places;
    size_t limit;
    bool is_last;
};
void store_rows_sql(const struct store_rows_query *query, char sql[STORE_ROWS_SQL_BYTES_MAX]);
const char *store_table_filter(const struct store_table *table);

/* Any session. Adds rows after the key, in the order of the key, until the page is full or there
 * are no more. after NULL: from the first row on. */
MUST_CHECK enum status store_read_rows(struct store_session *session,
                                       const struct store_value *after, struct store_page *page);
/* Any session. Adds the row with the last key. STATUS_NOT_FOUND: there is no row. */
MUST_CHECK enum status store_read_last_row(struct store_session *session, struct store_page *page);
MUST_CHECK enum status store_count_rows(struct store_session *session,
                                        const struct store_table *table, uint64_t *count);
/* The write session: the rows of the page in one transaction. */
MUST_CHECK enum status store_write_rows(struct store_session *session,
                                        const struct store_page *page);
/* The write session: removes the rows that a new store has, together with its generated secrets,
 * and sets the property, in one transaction. */
MUST_CHECK enum status store_clear_rows(struct store_session *session,
                                        const struct store_property *property);

#endif
