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

enum status sqlite_put_operator_key(struct store_session *base,
                                    const struct store_operator_key *key) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = sqlite_statement(session, STATEMENT_PUT_OPERATOR_KEY, &statement);
    if (status == STATUS_OK) {
        sqlite_bind_text(statement, 1, key->name);
        sqlite_bind_text(statement, 2, key->role);
        sqlite_bind_text(statement, 3, key->id);
        sqlite_bind_bytes(statement, 4, key->digest, SHA256_BYTES);
        sqlite_bind_number(statement, 5, key->created_at_ms);
        sqlite_bind_number(statement, 6, key->rotated_at_ms);
        sqlite_bind_text(statement, 7, key->previous_id);
        sqlite_bind_bytes(statement, 8, key->previous_digest, SHA256_BYTES);
        sqlite_bind_number(statement, 9, key->previous_until_ms);
        status = sqlite_run(session, statement);
    }
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

enum status sqlite_walk_operator_keys(struct store_session *base, void *user,
                                      store_operator_key_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_WALK_OPERATOR_KEYS, &statement);
    if (status != STATUS_OK)
        return status;
    while ((status = sqlite_next(session, statement)) == STATUS_OK) {
        struct store_operator_key key = {
            .name = sqlite_text(statement, 0),
            .role = sqlite_text(statement, 1),
            .id = sqlite_text(statement, 2),
            .created_at_ms = sqlite_number(statement, 4),
            .rotated_at_ms = sqlite_number(statement, 5),
            .previous_id = sqlite_text(statement, 6),
            .previous_until_ms = sqlite_number(statement, 8),
        };
        status = sqlite_bytes(statement, 3, key.digest, SHA256_BYTES) &&
                         sqlite_bytes(statement, 7, key.previous_digest, SHA256_BYTES)
                     ? callback(user, &key)
                     : sqlite_damaged(session, "operator key", key.created_at_ms);
        if (status != STATUS_OK)
            break;
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}
