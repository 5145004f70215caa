/* Finds the first frame of a topic that has not expired.
 *
 * The times of an entity's events never fall, so a binary search finds the first young event. Rows
 * of a journal carry the wall clock's time, which may step back. The first young row keeps all rows
 * after it, so the rows are read in order. The rows read are the ones that the prune will delete.
 */
#include "store/sqlite/sqlite.h"

static enum status event_time(struct sqlite_session *session, uint64_t entity_ref, uint64_t seq,
                              uint64_t *at_ms) {
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
        *at_ms = event_cursor_of(&cursor).timestamp_ms;
    sqlite3_reset(statement);
    return status;
}

static enum status find_event(struct sqlite_session *session, const struct store_topic *topic,
                              uint64_t before_ms, struct store_expiry *expiry) {
    /* All events below low have expired. The event at high, if there is one, has not. */
    uint64_t low = topic->oldest_seq;
    uint64_t high = topic->head_seq + 1;
    uint64_t probe = low;
    while (low < high) {
        uint64_t at_ms = 0;
        enum status status = event_time(session, topic->entity_ref, probe, &at_ms);
        if (status != STATUS_OK)
            return status;
        if (at_ms < before_ms) {
            low = probe + 1;
        } else {
            high = probe;
            expiry->first_at_ms = at_ms;
        }
        probe = low + (high - low) / 2;
    }
    expiry->first_seq = low;
    return STATUS_OK;
}

static enum status find_row(struct sqlite_session *session, const struct store_topic *topic,
                            uint64_t before_ms, uint64_t limit, struct store_expiry *expiry) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_ROW_TIMES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, topic->ref);
    sqlite_bind_number(statement, 2, topic->oldest_seq);
    sqlite_bind_bound(statement, 3, limit);
    while (expiry->first_at_ms == 0 && (status = sqlite_next(session, statement)) == STATUS_OK) {
        uint64_t seq = sqlite_number(statement, 0);
        uint64_t at_ms = sqlite_number(statement, 1);
        expiry->first_seq = at_ms < before_ms ? seq + 1 : seq;
        if (at_ms >= before_ms)
            expiry->first_at_ms = at_ms;
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_find_expired(struct store_session *base, const struct store_topic *topic,
                                uint64_t before_ms, uint64_t limit, struct store_expiry *expiry) {
    struct sqlite_session *session = sqlite_session_of(base);
    *expiry = (struct store_expiry){.first_seq = topic->oldest_seq};
    if (topic->oldest_seq > topic->head_seq)
        return STATUS_OK;
    return topic->entity_ref > 0 ? find_event(session, topic, before_ms, expiry)
                                 : find_row(session, topic, before_ms, limit, expiry);
}
