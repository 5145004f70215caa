/* Finds the first frame of a topic that has not expired.
 *
 * Frames carry the wall clock's time, which may step in both directions, so they are read in order
 * from the oldest. The first frame that is young enough keeps all frames after it. A frame dated in
 * the future does not: it goes with the first later frame that goes.
 *
 * Events need not all be read. The time of an event's cursor never falls and is never before its
 * recorded_at. So a binary search by cursors finds events that have all expired, and the walk
 * continues behind them. */
#include "store/postgres/postgres.h"

/* The walk often ends at its first frame. */
#define PAGE_ROWS_FIRST 8

/* The state of a walk over the times of frames. */
struct expiry_walk {
    struct postgres_session *session;
    const struct store_expiry_query *query;
    struct store_expiry *expiry;
    uint64_t counted;
    bool is_ended;
};

static void take_time(struct expiry_walk *walk, uint64_t seq, uint64_t at_ms) {
    if (at_ms < walk->query->before_ms) {
        walk->expiry->first_seq = seq + 1;
        walk->is_ended = ++walk->counted >= walk->query->limit;
    } else if (at_ms <= walk->query->now_ms) {
        walk->expiry->first_at_ms = at_ms;
        walk->is_ended = true;
    }
}

static enum status cursor_time(struct postgres_session *session, uint64_t entity_ref, uint64_t seq,
                               uint64_t *at_ms) {
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

/* The first event whose cursor is young enough; one after the head when there is none. */
static enum status search_cursors(struct postgres_session *session, const struct store_topic *topic,
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

/* The row is (seq, cursor, recorded_at) of an event, or (seq, published_at). */
static enum status take_row(struct expiry_walk *walk, struct postgres_row row, bool is_event) {
    struct uuid cursor;
    uint64_t seq = postgres_number(row, 0);
    if (!is_event)
        take_time(walk, seq, postgres_number(row, 1));
    else if (postgres_bytes(row, 1, cursor.bytes, sizeof(cursor.bytes)))
        take_time(walk, seq, postgres_row_time(row, 2, &cursor));
    else
        return postgres_damaged(walk->session, "the entity's event", seq);
    return STATUS_OK;
}

static enum status walk_times(struct expiry_walk *walk, const struct store_topic *topic) {
    bool is_event = topic->entity_ref > 0;
    uint64_t after_seq = walk->expiry->first_seq - 1;
    uint64_t row_count = PAGE_ROWS_FIRST;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !walk->is_ended) {
        PGresult *result = NULL;
        postgres_begin(walk->session, is_event ? STATEMENT_EVENT_TIMES : STATEMENT_ROW_TIMES);
        postgres_put_bound(walk->session, is_event ? topic->entity_ref : topic->ref);
        postgres_put_bound(walk->session, after_seq);
        postgres_put_number(walk->session, row_count);
        status = postgres_query(walk->session, &result);
        if (status != STATUS_OK)
            return status;
        int count = PQntuples(result);
        for (int i = 0; status == STATUS_OK && !walk->is_ended && i < count; i++)
            status = take_row(walk, (struct postgres_row){result, i}, is_event);
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
    enum status status = STATUS_OK;
    *expiry = (struct store_expiry){.first_seq = topic->oldest_seq};
    if (topic->oldest_seq > topic->head_seq)
        return STATUS_OK;
    /* Pruning events costs the same for any number of them. */
    struct store_expiry_query events = *query;
    events.limit = UINT64_MAX;
    struct expiry_walk walk = {session, topic->entity_ref > 0 ? &events : query, expiry, 0, false};
    if (topic->entity_ref > 0)
        status = search_cursors(session, topic, query->before_ms, &expiry->first_seq);
    if (status != STATUS_OK || expiry->first_seq > topic->head_seq)
        return status;
    return walk_times(&walk, topic);
}
