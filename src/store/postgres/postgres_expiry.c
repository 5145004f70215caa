/* Reads the times of frames for the rule of expiry (store/expiry.h), by the page. */
#include "store/expiry.h"
#include "store/postgres/postgres.h"

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

/* The row is (seq, cursor, recorded_at) of an event, or (seq, published_at). */
static enum status take_row(struct postgres_session *session, struct expiry_walk *walk,
                            struct postgres_row row, bool is_event) {
    struct uuid cursor;
    uint64_t seq = postgres_number(row, 0);
    if (!is_event)
        expiry_take(walk, seq, postgres_number(row, 1));
    else if (postgres_bytes(row, 1, cursor.bytes, sizeof(cursor.bytes)))
        expiry_take(walk, seq, postgres_row_time(row, 2, &cursor));
    else
        return postgres_damaged(session, "the entity's event", seq);
    return STATUS_OK;
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
        for (int i = 0; status == STATUS_OK && !walk->is_ended && i < count; i++)
            status = take_row(session, walk, (struct postgres_row){result, i}, is_event);
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
