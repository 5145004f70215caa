/* A read transaction over several reads. In the write-ahead log a reader sees what its first
 * statement saw, so one that reads a single row fixes the moment. */
#include "store/sqlite/sqlite.h"

#include <assert.h>

static enum status touch(struct sqlite_session *session) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_READ_TOUCH, &statement);
    if (status != STATUS_OK)
        return status;
    status = sqlite_next(session, statement);
    sqlite3_reset(statement);
    /* Every store has an epoch there. */
    return status == STATUS_NOT_FOUND ? sqlite_damaged(session, "table meta, row", 1) : status;
}

enum status sqlite_read_begin(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *rollback = NULL;
    /* Made now, so that the end needs no memory. */
    enum status status = sqlite_statement(session, STATEMENT_ROLLBACK, &rollback);
    if (status == STATUS_OK)
        status = sqlite_execute(session, STATEMENT_READ_BEGIN);
    if (status != STATUS_OK)
        return status;
    status = touch(session);
    if (status != STATUS_OK)
        sqlite_read_end(base);
    return status;
}

void sqlite_read_end(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    /* Some faults end the transaction by themselves. */
    if (sqlite3_get_autocommit(session->database))
        return;
    /* Nothing was written: there is nothing that could fail to be undone. */
    enum status status = sqlite_execute(session, STATEMENT_ROLLBACK);
    assert(status == STATUS_OK);
    (void)status;
}
