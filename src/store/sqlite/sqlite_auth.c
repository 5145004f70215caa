/* Revocations, tokens and nonces that may be used once, operator keys, usage and quotas. Writes of
 * the first two remove a bounded number of expired rows, so that the tables stay small and no write
 * takes long.
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

/* ---- what owners have stored, and their quotas ---- */

/* Most commits have few owners, which have a row already: an update in its place costs least. */
enum status sqlite_put_usages(struct sqlite_session *session, const struct store_batch *batch) {
    const struct store_layout *layout = &store_usage_layout;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < batch->usage_count; i++) {
        status = sqlite_run_row(session, STATEMENT_PUT_USAGE, layout->columns, layout->column_count,
                                &batch->usages[i]);
        if (status == STATUS_OK && sqlite3_changes(session->database) == 0)
            status = sqlite_run_row(session, STATEMENT_ADD_USAGE, layout->columns,
                                    layout->column_count, &batch->usages[i]);
    }
    return status;
}

enum status sqlite_load_usages(struct store_session *base, struct store_usage *usages,
                               size_t count) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_LOAD_USAGE, &statement);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        struct slice owner = usages[i].owner;
        usages[i] = (struct store_usage){.owner = owner};
        sqlite_bind_text(statement, 1, owner);
        status = sqlite_next(session, statement);
        if (status == STATUS_OK && !sqlite_read_row(statement, 0, &store_usage_layout, &usages[i]))
            status = sqlite_damaged(session, "the usage of an owner, bytes", usages[i].bytes);
        else if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
        usages[i].owner = owner;
        sqlite3_reset(statement);
    }
    return status;
}

enum status sqlite_check_usages(struct store_session *base, uint64_t limit, void *user,
                                store_usage_difference_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    const struct store_column *columns = store_usage_layout.columns;
    size_t counted_count = STORE_COUNT(STORE_USAGE_COUNTED);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_CHECK_USAGES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, limit);
    while ((status = sqlite_next(session, statement)) == STATUS_OK) {
        struct store_usage stored = {.owner = sqlite_text(statement, 0)};
        struct store_usage counted = stored;
        bool is_sound = sqlite_read_columns(statement, 1, columns + 1, counted_count, &stored) &&
                        sqlite_read_columns(statement, 1 + (int)counted_count, columns + 1,
                                            counted_count, &counted);
        status = is_sound ? callback(user, &stored, &counted) : STATUS_INTERNAL_ERROR;
        if (status != STATUS_OK)
            break;
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_put_quotas(struct store_session *base, const struct store_quota *quotas,
                              size_t count) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = sqlite_run_row(session, STATEMENT_PUT_QUOTA, store_quota_layout.columns,
                                STORE_COUNT(STORE_QUOTAS_WRITTEN), &quotas[i]);
    return sqlite_end(session, status);
}
