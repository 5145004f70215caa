/* Revocations, and tokens and nonces that may be used once. Each write removes a bounded number of
 * expired rows, so that the tables stay small and no write takes long. */
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

static enum status put_revocation(struct sqlite_session *session,
                                  const struct store_revocation *revocation) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_PUT_REVOCATION, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, (uint64_t)revocation->kind);
    sqlite_bind_text(statement, 2, revocation->id);
    sqlite_bind_text(statement, 3, revocation->reason);
    sqlite_bind_number(statement, 4, revocation->revoked_at_ms);
    sqlite_bind_number(statement, 5, revocation->expires_at_ms);
    return sqlite_run(session, statement);
}

enum status sqlite_put_revocations(struct store_session *base,
                                   const struct store_revocation *revocations, size_t count,
                                   uint64_t now_ms) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = drop_expired(session, STATEMENT_DROP_REVOCATIONS, now_ms);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = put_revocation(session, &revocations[i]);
    return sqlite_end(session, status);
}

static enum status use(struct sqlite_session *session, struct store_single_use *one) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_ADD_SINGLE_USE, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, (uint64_t)one->kind);
    sqlite_bind_text(statement, 2, one->id);
    sqlite_bind_number(statement, 3, one->expires_at_ms);
    status = sqlite_run(session, statement);
    one->was_used = status == STATUS_OK && sqlite3_changes(session->database) == 0;
    return status;
}

enum status sqlite_use_once(struct store_session *base, struct store_single_use *uses, size_t count,
                            uint64_t now_ms) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = drop_expired(session, STATEMENT_DROP_SINGLE_USES, now_ms);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = use(session, &uses[i]);
    return sqlite_end(session, status);
}
