/* What owners have stored, and their quotas. */
#include "store/sqlite/sqlite.h"

static enum status run_usage(struct sqlite_session *session, enum statement_id id,
                             const struct store_usage *usage) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, id, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_text(statement, 1, usage->owner);
    sqlite_bind_number(statement, 2, usage->events);
    sqlite_bind_number(statement, 3, usage->bytes);
    sqlite_bind_number(statement, 4, usage->metadata_bytes);
    sqlite_bind_number(statement, 5, usage->open_runs);
    sqlite_bind_number(statement, 6, usage->open_workers);
    sqlite_bind_number(statement, 7, usage->unowned_bytes);
    return sqlite_run(session, statement);
}

/* Most commits have few owners, which have a row already: an update in its place costs least. */
enum status sqlite_put_usages(struct sqlite_session *session, const struct store_batch *batch) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < batch->usage_count; i++) {
        status = run_usage(session, STATEMENT_PUT_USAGE, &batch->usages[i]);
        if (status == STATUS_OK && sqlite3_changes(session->database) == 0)
            status = run_usage(session, STATEMENT_ADD_USAGE, &batch->usages[i]);
    }
    return status;
}

/* What a count finds too, in columns that begin at first. */
static void read_numbers(sqlite3_stmt *statement, int first, struct store_usage *usage) {
    usage->events = sqlite_number(statement, first);
    usage->bytes = sqlite_number(statement, first + 1);
    usage->metadata_bytes = sqlite_number(statement, first + 2);
    usage->open_runs = sqlite_number(statement, first + 3);
    usage->open_workers = sqlite_number(statement, first + 4);
}

static void read_usage(sqlite3_stmt *statement, struct store_usage *usage) {
    read_numbers(statement, 1, usage);
    usage->unowned_bytes = sqlite_number(statement, 6);
}

enum status sqlite_load_usages(struct store_session *base, struct store_usage *usages,
                               size_t count) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_LOAD_USAGE, &statement);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        usages[i] = (struct store_usage){.owner = usages[i].owner};
        sqlite_bind_text(statement, 1, usages[i].owner);
        status = sqlite_next(session, statement);
        if (status == STATUS_OK)
            read_usage(statement, &usages[i]);
        else if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
        sqlite3_reset(statement);
    }
    return status;
}

enum status sqlite_walk_usages(struct store_session *base, struct slice after_owner, uint64_t limit,
                               void *user, store_usage_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_WALK_USAGES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_text(statement, 1, after_owner.data ? after_owner : SLICE(""));
    sqlite_bind_bound(statement, 2, limit);
    while ((status = sqlite_next(session, statement)) == STATUS_OK) {
        struct store_usage usage = {.owner = sqlite_text(statement, 0)};
        read_usage(statement, &usage);
        status = callback(user, &usage);
        if (status != STATUS_OK)
            break;
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_check_usages(struct store_session *base, uint64_t limit, void *user,
                                store_usage_difference_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_CHECK_USAGES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, limit);
    while ((status = sqlite_next(session, statement)) == STATUS_OK) {
        struct store_usage stored = {.owner = sqlite_text(statement, 0)};
        struct store_usage counted = stored;
        read_numbers(statement, 1, &stored);
        read_numbers(statement, 6, &counted);
        status = callback(user, &stored, &counted);
        if (status != STATUS_OK)
            break;
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_put_quotas(struct store_session *base, const struct store_quota *quotas,
                              size_t count) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK)
        status = sqlite_statement(session, STATEMENT_PUT_QUOTA, &statement);
    for (size_t i = 0; status == STATUS_OK && i < count; i++) {
        sqlite_bind_text(statement, 1, quotas[i].owner);
        sqlite_bind_text(statement, 2, quotas[i].name);
        if (quotas[i].is_set)
            sqlite_bind_number(statement, 3, quotas[i].value);
        else
            sqlite_bind_optional(statement, 3, 0);
        status = sqlite_run(session, statement);
    }
    return sqlite_end(session, status);
}

enum status sqlite_walk_quotas(struct store_session *base, uint64_t after_serial, void *user,
                               store_quota_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_WALK_QUOTAS, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, after_serial);
    while ((status = sqlite_next(session, statement)) == STATUS_OK) {
        const struct store_quota quota = {
            .owner = sqlite_text(statement, 0),
            .name = sqlite_text(statement, 1),
            .is_set = sqlite3_column_type(statement, 2) != SQLITE_NULL,
            .value = sqlite_number(statement, 2),
            .serial = sqlite_number(statement, 3),
        };
        status = callback(user, &quota);
        if (status != STATUS_OK)
            break;
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}
