/* Positions. Cursors rise with log_id, and log_id has no gaps. So a cursor is found by an
 * interpolation search over its timestamp, and needs no index. */
#include "store/sqlite/sqlite.h"

/* An event of the log that the search has read. */
struct probe {
    uint64_t log_id;
    struct event_cursor cursor;
    bool server_id; /* the event's id is the cursor's uuid */
};

static enum status probe_at(struct sqlite_session *session, uint64_t log_id, struct probe *probe) {
    sqlite3_stmt *statement = NULL;
    struct uuid uuid;
    enum status status = sqlite_statement(session, STATEMENT_CURSOR_AT, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, log_id);
    status = sqlite_next(session, statement);
    if (status == STATUS_NOT_FOUND ||
        (status == STATUS_OK && !sqlite_bytes(statement, 0, uuid.bytes, sizeof(uuid.bytes)))) {
        status = sqlite_damaged(session, "event", log_id);
    } else if (status == STATUS_OK) {
        *probe = (struct probe){.log_id = log_id,
                                .cursor = event_cursor_of(&uuid),
                                .server_id = sqlite_number(statement, 1) != 0};
    }
    sqlite3_reset(statement);
    return status;
}

/* Between low and high, exclusive: where the timestamp says, or the middle every other time, so
 * that bursts cannot make the search longer than twice a bisection. */
static uint64_t guess(const struct probe *low, const struct probe *high,
                      const struct event_cursor *wanted, bool middle) {
    uint64_t span = high->log_id - low->log_id;
    uint64_t span_ms = high->cursor.timestamp_ms - low->cursor.timestamp_ms;
    uint64_t offset = span / 2;
    if (!middle && span_ms > 0) {
        double part = (double)(wanted->timestamp_ms - low->cursor.timestamp_ms) / (double)span_ms;
        offset = (uint64_t)(part * (double)span);
    }
    if (offset < 1)
        offset = 1;
    return low->log_id + (offset < span ? offset : span - 1);
}

static enum status search(struct sqlite_session *session, uint64_t last,
                          const struct event_cursor *wanted, struct probe *found) {
    struct probe low = {0}, high = {0}, at = {0};
    *found = (struct probe){0};
    enum status status = probe_at(session, last, &high);
    if (status != STATUS_OK)
        return status;
    if (event_cursor_compare(&high.cursor, wanted) <= 0) {
        *found = high;
        return STATUS_OK;
    }
    status = probe_at(session, 1, &low);
    if (status != STATUS_OK || event_cursor_compare(&low.cursor, wanted) > 0)
        return status;
    for (bool middle = false; high.log_id - low.log_id > 1; middle = !middle) {
        status = probe_at(session, guess(&low, &high, wanted, middle), &at);
        if (status != STATUS_OK)
            return status;
        if (event_cursor_compare(&at.cursor, wanted) <= 0)
            low = at;
        else
            high = at;
    }
    *found = low;
    return STATUS_OK;
}

/* The last event at or before wanted; log_id 0 when there is none. */
static enum status find_position(struct sqlite_session *session, const struct event_cursor *wanted,
                                 struct probe *found) {
    sqlite3_stmt *tail = NULL;
    *found = (struct probe){0};
    enum status status = sqlite_statement(session, STATEMENT_TAIL, &tail);
    if (status != STATUS_OK)
        return status;
    /* While this statement has not been reset, all probes share its read transaction: opening one
     * costs more than a probe. */
    status = sqlite_next(session, tail);
    if (status == STATUS_OK)
        status = search(session, sqlite_number(tail, 0), wanted, found);
    else if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    sqlite3_reset(tail);
    return status;
}

enum status sqlite_find_cursor(struct store_session *base, const struct event_cursor *cursor,
                               uint64_t *log_id) {
    struct probe found;
    enum status status = find_position(sqlite_session_of(base), cursor, &found);
    if (status == STATUS_OK)
        *log_id = found.log_id;
    return status;
}

enum status sqlite_find_server_id(struct sqlite_session *session, const struct uuid *event_id,
                                  uint64_t *log_id) {
    struct probe found;
    struct event_cursor wanted = event_cursor_of(event_id);
    enum status status = find_position(session, &wanted, &found);
    if (status != STATUS_OK)
        return status;
    if (found.log_id == 0 || !found.server_id || event_cursor_compare(&found.cursor, &wanted) != 0)
        return STATUS_NOT_FOUND;
    *log_id = found.log_id;
    return STATUS_OK;
}

enum status sqlite_measure_replay(struct store_session *base, const struct store_topic *topic,
                                  uint64_t after_seq, uint64_t limit, struct store_replay *replay) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    bool of_entity = topic->entity_ref != 0;
    enum status status = sqlite_statement(
        session, of_entity ? STATEMENT_MEASURE_EVENTS : STATEMENT_MEASURE_JOURNAL, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, of_entity ? topic->entity_ref : topic->ref);
    sqlite_bind_bound(statement, 2, after_seq);
    sqlite_bind_bound(statement, 3, limit);
    status = sqlite_next(session, statement);
    if (status == STATUS_OK)
        *replay = (struct store_replay){sqlite_number(statement, 0), sqlite_number(statement, 1)};
    sqlite3_reset(statement);
    return status;
}

static enum status row_state(struct sqlite_session *session, sqlite3_stmt *statement,
                             struct store_state *state) {
    struct slice epoch = sqlite_text(statement, 0);
    struct uuid client_id = {{0}};
    uint64_t false_number = 0;
    *state = (struct store_state){
        .log_id = sqlite_number(statement, 1),
        .entity_ref = sqlite_number(statement, 2),
        .topic_ref = sqlite_number(statement, 3),
        .unprojected_from = sqlite_number(statement, 8),
        .has_fork = sqlite3_column_type(statement, 9) != SQLITE_NULL,
        .fork_log_id = sqlite_number(statement, 9),
    };
    if (epoch.size != STORE_EPOCH_SIZE)
        return sqlite_damaged(session, "the epoch, of size", epoch.size);
    const char *false_row = store_false_number(state, &false_number);
    if (false_row)
        return sqlite_damaged(session, false_row, false_number);
    memcpy(state->epoch, epoch.data, STORE_EPOCH_SIZE);
    if (state->log_id > 0 &&
        !sqlite_bytes(statement, 4, state->cursor.bytes, sizeof(state->cursor.bytes)))
        return sqlite_damaged(session, "event", state->log_id);
    if (sqlite3_column_type(statement, 5) != SQLITE_NULL &&
        !sqlite_bytes(statement, 5, client_id.bytes, sizeof(client_id.bytes)))
        return sqlite_damaged(session, "event id, after event", state->log_id);
    /* An id is a cursor's, or it is in the narrow table. */
    state->event_id_max = uuid_compare(&client_id, &state->cursor) > 0 ? client_id : state->cursor;
    struct id_mark *mark = &state->id_mark;
    if (!sqlite_bytes(statement, 6, mark->bytes, sizeof(mark->bytes)) ||
        (sqlite3_column_type(statement, 7) != SQLITE_NULL &&
         !sqlite_bytes(statement, 7, mark->unmarked_max.bytes, sizeof(mark->unmarked_max.bytes))))
        return sqlite_damaged(session, "table minted_ids, row", 1);
    return STATUS_OK;
}

enum status sqlite_read_state(struct store_session *base, struct store_state *state) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_STATE, &statement);
    if (status != STATUS_OK)
        return status;
    status = sqlite_next(session, statement);
    if (status == STATUS_OK)
        status = row_state(session, statement, state);
    else if (status == STATUS_NOT_FOUND)
        status = sqlite_damaged(session, "table minted_ids, row", 1);
    sqlite3_reset(statement);
    /* At its start and after a failure the writer has yet to learn where the log ends. New events
     * would take the numbers of those that are lost. */
    if (status == STATUS_OK && base->mode == STORE_WRITE && !session->tail.known)
        status = sqlite_positions_check(session);
    return status;
}

/* ---- expiry: the times of frames for the rule in store_engine.h. Of rows, those read are the ones
 * that the prune will delete. ---- */

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
