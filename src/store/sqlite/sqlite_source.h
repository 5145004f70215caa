/* A source: rows of a batch that a statement selects from, as the virtual table "source" with the
 * columns c1, c2 and so on. One statement inserts all rows, with its cursors at the end of the
 * table; a statement for each row would search the table from its root for each.
 * Thread: the session's.
 * Memory: the rows and their texts are the caller's and are not copied.
 * Errors: those of the statement.
 * Invariant: a source exists only while its statement runs. */
#ifndef STORE_SQLITE_SQLITE_SOURCE_H
#define STORE_SQLITE_SQLITE_SOURCE_H

#include "store/sqlite/sqlite.h"

struct sqlite_source {
    const void *rows;
    size_t row_count;
    size_t row_bytes;
    const struct store_column *columns; /* c1 and so on */
    /* Whether the statement sees the row; NULL: it sees all. */
    bool (*has_row)(const struct sqlite_source *source, const void *row);
    const void *user; /* for has_row */
};

/* Runs a statement that reads the source and yields no row. Does nothing where it would see no row.
 */
MUST_CHECK enum status sqlite_run_source(struct sqlite_session *session, enum statement_id id,
                                         const struct sqlite_source *source);
/* The same of a statement that may yield rows: each is handed on. */
MUST_CHECK enum status sqlite_query_source(struct sqlite_session *session, enum statement_id id,
                                           const struct sqlite_source *source,
                                           void (*on_row)(sqlite3_stmt *row));

#endif
