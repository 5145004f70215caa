/* Finds the first frame of a topic that has not expired.
 *
 * Frames carry the wall clock's time, which may step in both directions, so they are read in order
 * from the oldest. The first frame that is young enough keeps all frames after it. A frame dated in
 * the future does not: it goes with the first later frame that goes.
 *
 * Events need not all be read. The time of an event's cursor never falls and is never before its
 * recorded_at. So a binary search by cursors finds events that have all expired, and the walk
 * continues behind them. Of rows, those read are the ones that the prune will delete. */
#include "store/sqlite/sqlite.h"

/* The state of a walk over the times of frames. */
struct expiry_walk {
    const struct store_expiry_query *query;
    struct store_expiry *expiry;
    uint64_t counted;
};

/* False: the walk ends with this frame. */
static bool take_time(struct expiry_walk *walk, uint64_t seq, uint64_t at_ms) {
    if (at_ms < walk->query->before_ms) {
        walk->expiry->first_seq = seq + 1;
        return ++walk->counted < walk->query->limit;
    }
    if (at_ms > walk->query->now_ms)
        return true;
    walk->expiry->first_at_ms = at_ms;
    return false;
}

/* ---- events ---- */

static enum status cursor_time(struct sqlite_session *session, uint64_t entity_ref, uint64_t seq,
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
        *at_ms = uuid7_timestamp_ms(&cursor);
    sqlite3_reset(statement);
    return status;
}

/* The first event whose cursor is young enough; one after the head when there is none. */
static enum status search_cursors(struct sqlite_session *session, const struct store_topic *topic,
                                  uint64_t before_ms, uint64_t *first_seq) {
    uint64_t low = topic->oldest_seq;
    uint64_t high = topic->head_seq + 1;
    uint64_t probe = low;
    while (low < high) {
        uint64_t at_ms = 0;
        enum status status = cursor_time(session, topic->entity_ref, probe, &at_ms);
        if (status != STATUS_OK)
            return status;
        if (at_ms < before_ms)
            low = probe + 1;
        else
            high = probe;
        probe = low + (high - low) / 2;
    }
    *first_seq = low;
    return STATUS_OK;
}

static enum status walk_events(struct sqlite_session *session, const struct store_topic *topic,
                               struct expiry_walk *walk) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_EVENT_TIMES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, topic->entity_ref);
    sqlite_bind_number(statement, 2, walk->expiry->first_seq - 1);
    bool goes_on = true;
    while (goes_on && (status = sqlite_next(session, statement)) == STATUS_OK) {
        struct uuid cursor;
        uint64_t seq = sqlite_number(statement, 0);
        if (!sqlite_bytes(statement, 1, cursor.bytes, sizeof(cursor.bytes))) {
            status = sqlite_damaged(session, "the entity's event", seq);
            break;
        }
        goes_on = take_time(walk, seq, sqlite_row_time(statement, 2, &cursor));
    }
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status find_event(struct sqlite_session *session, const struct store_topic *topic,
                              struct expiry_walk *walk) {
    enum status status =
        search_cursors(session, topic, walk->query->before_ms, &walk->expiry->first_seq);
    if (status != STATUS_OK || walk->expiry->first_seq > topic->head_seq)
        return status;
    return walk_events(session, topic, walk);
}

/* ---- rows ---- */

static enum status find_row(struct sqlite_session *session, const struct store_topic *topic,
                            struct expiry_walk *walk) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_ROW_TIMES, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, topic->ref);
    sqlite_bind_number(statement, 2, topic->oldest_seq);
    bool goes_on = true;
    while (goes_on && (status = sqlite_next(session, statement)) == STATUS_OK)
        goes_on = take_time(walk, sqlite_number(statement, 0), sqlite_number(statement, 1));
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_find_expired(struct store_session *base, const struct store_topic *topic,
                                const struct store_expiry_query *query,
                                struct store_expiry *expiry) {
    struct sqlite_session *session = sqlite_session_of(base);
    *expiry = (struct store_expiry){.first_seq = topic->oldest_seq};
    if (topic->oldest_seq > topic->head_seq)
        return STATUS_OK;
    /* Pruning events costs the same for any number of them. */
    struct store_expiry_query events = *query;
    events.limit = UINT64_MAX;
    struct expiry_walk walk = {topic->entity_ref > 0 ? &events : query, expiry, 0};
    return topic->entity_ref > 0 ? find_event(session, topic, &walk)
                                 : find_row(session, topic, &walk);
}
