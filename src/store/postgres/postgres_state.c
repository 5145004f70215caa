/* Numbers of the log, its state, and snapshots over several reads. */
#include "store/postgres/postgres.h"

/* Runs the statement. STATUS_NOT_FOUND: it has no row. With STATUS_OK the caller clears the result.
 */
static enum status ask(struct postgres_session *session, PGresult **result) {
    enum status status = postgres_query(session, result);
    if (status == STATUS_OK && PQntuples(*result) == 0) {
        PQclear(*result);
        *result = NULL;
        return STATUS_NOT_FOUND;
    }
    return status;
}

/* Stored cursors have the time of their uuid. So a cursor whose time is not that of its uuid lies
 * before or behind all stored cursors of its millisecond. */
static struct uuid bound_of(const struct event_cursor *cursor) {
    uint64_t uuid_ms = uuid7_timestamp_ms(&cursor->uuid);
    uint64_t at_ms = cursor->timestamp_ms;
    struct uuid bound = cursor->uuid;
    if (uuid_ms == at_ms)
        return bound;
    bool is_behind = uuid_ms > at_ms || at_ms >> 48 > 0;
    memset(bound.bytes, is_behind ? 0xff : 0, sizeof(bound.bytes));
    for (int i = 0; i < 6 && at_ms >> 48 == 0; i++)
        bound.bytes[i] = (uint8_t)(at_ms >> (40 - 8 * i));
    return bound;
}

enum status postgres_find_cursor(struct store_session *base, const struct event_cursor *cursor,
                                 uint64_t *log_id) {
    struct postgres_session *session = postgres_session_of(base);
    struct uuid bound = bound_of(cursor);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_FIND_CURSOR);
    postgres_put_uuid(session, &bound);
    enum status status = ask(session, &result);
    if (status == STATUS_OK)
        *log_id = postgres_number((struct postgres_row){result, 0}, 0);
    PQclear(result);
    return status;
}

enum status postgres_measure_replay(struct store_session *base, const struct store_topic *topic,
                                    uint64_t after_seq, uint64_t limit,
                                    struct store_replay *replay) {
    struct postgres_session *session = postgres_session_of(base);
    bool of_entity = topic->entity_ref != 0;
    PGresult *result = NULL;
    postgres_begin(session, of_entity ? STATEMENT_MEASURE_EVENTS : STATEMENT_MEASURE_JOURNAL);
    postgres_put_bound(session, of_entity ? topic->entity_ref : topic->ref);
    postgres_put_bound(session, after_seq);
    postgres_put_bound(session, limit);
    enum status status = ask(session, &result);
    struct postgres_row row = {result, 0};
    if (status == STATUS_OK)
        *replay = (struct store_replay){postgres_number(row, 0), postgres_number(row, 1)};
    PQclear(result);
    return status;
}

static enum status row_state(struct postgres_session *session, struct postgres_row row,
                             struct store_state *state) {
    struct slice epoch = postgres_text(row, 0);
    struct uuid client_id = {{0}};
    uint64_t false_number = 0;
    *state = (struct store_state){
        .log_id = postgres_number(row, 1),
        .entity_ref = postgres_number(row, 2),
        .topic_ref = postgres_number(row, 3),
        .unprojected_from = postgres_number(row, 8),
        .has_fork = !postgres_is_null(row, 9),
        .fork_log_id = postgres_number(row, 9),
    };
    if (epoch.size != STORE_EPOCH_SIZE)
        return postgres_damaged(session, "the epoch, of size", epoch.size);
    const char *false_row = store_false_number(state, &false_number);
    if (false_row)
        return postgres_damaged(session, false_row, false_number);
    memcpy(state->epoch, epoch.data, STORE_EPOCH_SIZE);
    if (state->log_id > 0 &&
        !postgres_bytes(row, 4, state->cursor.bytes, sizeof(state->cursor.bytes)))
        return postgres_damaged(session, "event", state->log_id);
    if (!postgres_is_null(row, 5) &&
        !postgres_bytes(row, 5, client_id.bytes, sizeof(client_id.bytes)))
        return postgres_damaged(session, "an id chosen by a client, before event", state->log_id);
    if (!postgres_bytes(row, 6, state->id_mark.bytes, sizeof(state->id_mark.bytes)) ||
        (!postgres_is_null(row, 7) && !postgres_bytes(row, 7, state->id_mark.unmarked_max.bytes,
                                                      sizeof(state->id_mark.unmarked_max.bytes))))
        return postgres_damaged(session, "table minted_ids, row", 1);
    state->event_id_max = uuid_compare(&client_id, &state->cursor) > 0 ? client_id : state->cursor;
    return STATUS_OK;
}

enum status postgres_read_state(struct store_session *base, struct store_state *state) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_STATE);
    enum status status = ask(session, &result);
    if (status == STATUS_OK) {
        status = row_state(session, (struct postgres_row){result, 0}, state);
        if (status == STATUS_OK)
            postgres_note_read(session->store, state->log_id, &state->cursor);
    } else if (status == STATUS_NOT_FOUND) {
        status = postgres_damaged(session, "table minted_ids, row", 1);
    }
    PQclear(result);
    return status;
}

/* ---- a snapshot over several reads ---- */

enum status postgres_read_begin(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    struct store_state state;
    postgres_begin(session, STATEMENT_READ_BEGIN);
    enum status status = postgres_run(session);
    if (status != STATUS_OK)
        return status;
    session->in_transaction = true;
    /* The first query fixes the moment. */
    status = postgres_read_state(base, &state);
    if (status != STATUS_OK)
        postgres_read_end(base);
    return status;
}

void postgres_read_end(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    session->in_transaction = false;
    session->is_read_lost = false;
    if (!session->connection)
        return;
    postgres_begin(session, STATEMENT_ROLLBACK);
    /* Nothing was written. A connection that cannot end its transaction is of no use. */
    if (postgres_run(session) != STATUS_OK && session->connection)
        postgres_disconnect(session);
}

/* ---- expiry: the times of frames for the rule in store_engine.h. Of rows, those read are the ones
 * that the prune will delete. ---- */

/* The walk often ends at its first frame. */
#define PAGE_ROWS_FIRST 8

static enum status cursor_time(void *user, uint64_t entity_ref, uint64_t seq, uint64_t *at_ms) {
    struct postgres_session *session = user;
    struct uuid cursor;
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_EVENT_TIME);
    postgres_put_bound(session, entity_ref);
    postgres_put_bound(session, seq);
    enum status status = postgres_query(session, &result);
    struct postgres_row row = {result, 0};
    if (status == STATUS_OK &&
        (PQntuples(result) == 0 || !postgres_bytes(row, 0, cursor.bytes, sizeof(cursor.bytes))))
        status = postgres_damaged(session, "the entity's event", seq);
    if (status == STATUS_OK)
        *at_ms = uuid7_timestamp_ms(&cursor);
    PQclear(result);
    return status;
}

static enum status walk_times(struct postgres_session *session, const struct store_topic *topic,
                              struct expiry_walk *walk) {
    bool is_event = topic->entity_ref > 0;
    uint64_t after_seq = walk->expiry->first_seq - 1;
    uint64_t row_count = PAGE_ROWS_FIRST;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !walk->is_ended) {
        PGresult *result = NULL;
        postgres_begin(session, is_event ? STATEMENT_EVENT_TIMES : STATEMENT_ROW_TIMES);
        postgres_put_bound(session, is_event ? topic->entity_ref : topic->ref);
        postgres_put_bound(session, after_seq);
        postgres_put_number(session, row_count);
        status = postgres_query(session, &result);
        if (status != STATUS_OK)
            return status;
        int count = PQntuples(result);
        /* A row is (seq, cursor, recorded_at) of an event, or (seq, published_at). */
        for (int i = 0; status == STATUS_OK && !walk->is_ended && i < count; i++) {
            struct postgres_row row = {result, i};
            struct uuid cursor;
            uint64_t seq = postgres_number(row, 0);
            if (!is_event)
                expiry_take(walk, seq, postgres_number(row, 1));
            else if (postgres_bytes(row, 1, cursor.bytes, sizeof(cursor.bytes)))
                expiry_take(walk, seq, postgres_row_time(row, 2, &cursor));
            else
                status = postgres_damaged(session, "the entity's event", seq);
        }
        if (count > 0)
            after_seq = postgres_number((struct postgres_row){result, count - 1}, 0);
        PQclear(result);
        if ((uint64_t)count < row_count)
            break;
        row_count = POSTGRES_TIMES_PAGE_ROWS_MAX;
    }
    return status;
}

enum status postgres_find_expired(struct store_session *base, const struct store_topic *topic,
                                  const struct store_expiry_query *query,
                                  struct store_expiry *expiry) {
    struct postgres_session *session = postgres_session_of(base);
    struct expiry_walk walk;
    enum status status = expiry_begin(&walk, topic, query, expiry, session, cursor_time);
    return status == STATUS_OK && !walk.is_ended ? walk_times(session, topic, &walk) : status;
}
