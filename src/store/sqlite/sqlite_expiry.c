/* Reads the times of frames for the rule of expiry (store/expiry.h). Of rows, those read are the
 * ones that the prune will delete. */
#include "store/expiry.h"
#include "store/sqlite/sqlite.h"

static enum status cursor_time(void *user, uint64_t entity_ref, uint64_t seq, uint64_t *at_ms) {
    struct sqlite_session *session = user;
    sqlite3_stmt *statement = NULL;
    struct uuid cursor;
    enum status status = sqlite_statement(session, STATEMENT_EVENT_TIME, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, entity_ref);
    sqlite_bind_number(statement, 2, seq);
    status = sqlite_next(session, statement);
    if (status == STATUS_NOT_FOUND ||
        (status == STATUS_OK && !sqlite_bytes(statement, 0, cursor.bytes, sizeof(cursor.bytes))))
        status = sqlite_damaged(session, "the entity's event", seq);
    else if (status == STATUS_OK)
        *at_ms = uuid7_timestamp_ms(&cursor);
    sqlite3_reset(statement);
    return status;
}

static enum status walk_events(struct sqlite_session *session, const struct store_topic *topic,
                               struct expiry_walk *walk) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_EVENT_TIMES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, topic->entity_ref);
    sqlite_bind_number(statement, 2, walk->expiry->first_seq - 1);
    while (!walk->is_ended && (status = sqlite_next(session, statement)) == STATUS_OK) {
        struct uuid cursor;
        uint64_t seq = sqlite_number(statement, 0);
        if (!sqlite_bytes(statement, 1, cursor.bytes, sizeof(cursor.bytes))) {
            status = sqlite_damaged(session, "the entity's event", seq);
            break;
        }
        expiry_take(walk, seq, sqlite_row_time(statement, 2, &cursor));
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status walk_rows(struct sqlite_session *session, const struct store_topic *topic,
                             struct expiry_walk *walk) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_ROW_TIMES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, topic->ref);
    sqlite_bind_number(statement, 2, topic->oldest_seq);
    while (!walk->is_ended && (status = sqlite_next(session, statement)) == STATUS_OK)
        expiry_take(walk, sqlite_number(statement, 0), sqlite_number(statement, 1));
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_find_expired(struct store_session *base, const struct store_topic *topic,
                                const struct store_expiry_query *query,
                                struct store_expiry *expiry) {
    struct sqlite_session *session = sqlite_session_of(base);
    struct expiry_walk walk;
    enum status status = expiry_begin(&walk, topic, query, expiry, session, cursor_time);
    if (status != STATUS_OK || walk.is_ended)
        return status;
    return topic->entity_ref > 0 ? walk_events(session, topic, &walk)
                                 : walk_rows(session, topic, &walk);
}
