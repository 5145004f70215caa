/* Revocations, tokens and nonces that may be used once, and operator keys. Writes of the first two
 * remove a bounded number of expired rows, so that the tables stay small and no write takes long.
 */
#include "store/sqlite/sqlite.h"

static enum status drop_expired(struct sqlite_session *session, enum statement_id id,
                                uint64_t now_ms) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, id, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, now_ms);
    return sqlite_run(session, statement);
}

enum status sqlite_put_revocations(struct store_session *base,
                                   const struct store_revocation *revocations, size_t count,
                                   uint64_t now_ms) {
    struct sqlite_session *session = sqlite_session_of(base);
    const struct store_layout *layout = &store_revocation_layout;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = drop_expired(session, STATEMENT_DROP_REVOCATIONS, now_ms);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = sqlite_run_row(session, STATEMENT_PUT_REVOCATION, layout->columns,
                                layout->column_count, &revocations[i]);
    return sqlite_end(session, status);
}

enum status sqlite_use_once(struct store_session *base, struct store_single_use *uses, size_t count,
                            uint64_t now_ms) {
    struct sqlite_session *session = sqlite_session_of(base);
    const struct store_layout *layout = &store_single_use_layout;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = drop_expired(session, STATEMENT_DROP_SINGLE_USES, now_ms);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        status = sqlite_run_row(session, STATEMENT_ADD_SINGLE_USE, layout->columns,
                                layout->column_count, &uses[i]);
        uses[i].was_used = status == STATUS_OK && sqlite3_changes(session->database) == 0;
    }
    return sqlite_end(session, status);
}

enum status sqlite_put_operator_key(struct store_session *base,
                                    const struct store_operator_key *key) {
    struct sqlite_session *session = sqlite_session_of(base);
    const struct store_layout *layout = &store_operator_key_layout;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = sqlite_run_row(session, STATEMENT_PUT_OPERATOR_KEY, layout->columns,
                                layout->column_count, key);
    return sqlite_end(session, status);
}

enum status sqlite_drop_operator_key(struct store_session *base, struct slice name) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = sqlite_statement(session, STATEMENT_DROP_OPERATOR_KEY, &statement);
    if (status == STATUS_OK) {
        sqlite_bind_text(statement, 1, name);
        status = sqlite_run(session, statement);
    }
    return sqlite_end(session, status);
}
