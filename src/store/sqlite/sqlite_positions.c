/* Positions of the events of a commit. Events of an entity that follow each other in the log too
 * share one position, so a batch for one topic needs one row. */
#include "store/sqlite/sqlite_source.h"

static enum status find_head(struct sqlite_session *session, uint64_t entity_ref, uint64_t *seq) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_HEAD_SEQ, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, entity_ref);
    status = sqlite_next(session, statement);
    *seq = status == STATUS_OK ? sqlite_number(statement, 0) : 0;
    sqlite3_reset(statement);
    return status;
}

enum status sqlite_positions_check(struct sqlite_session *session) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_LOG_END, &statement);
    if (status != STATUS_OK)
        return status;
    status = sqlite_next(session, statement);
    if (status == STATUS_OK && sqlite_number(statement, 1) > sqlite_number(statement, 0))
        status = sqlite_damaged(session, "the end of the log before event",
                                sqlite_number(statement, 1) + 1);
    sqlite3_reset(statement);
    return status;
}

void sqlite_positions_forget(struct sqlite_session *session) {
    memset(session->store->heads, 0, sizeof(session->store->heads));
    session->range_count = 0;
}

static const struct store_column range_columns[] = {
    {"entity_ref", COLUMN_NUMBER, offsetof(struct sqlite_range, entity_ref)},
    {"seq", COLUMN_NUMBER, offsetof(struct sqlite_range, seq)},
    {"log_id", COLUMN_NUMBER, offsetof(struct sqlite_range, log_id)},
    {"event_count", COLUMN_NUMBER, offsetof(struct sqlite_range, count)},
};

static enum status flush(struct sqlite_session *session) {
    const struct sqlite_source source = {
        .rows = session->ranges,
        .row_count = session->range_count,
        .row_bytes = sizeof(*session->ranges),
        .columns = range_columns,
    };
    session->tail.recent_positions += session->range_count;
    session->range_count = 0;
    return sqlite_run_source(session, STATEMENT_ADD_POSITIONS, &source);
}

enum status sqlite_positions_add(struct sqlite_session *session, const struct store_event *event,
                                 uint64_t *head_seq) {
    struct sqlite_head *head = &session->store->heads[event->entity_ref % SQLITE_STORE_HEADS];
    enum status status = STATUS_OK;
    if (head->entity_ref != event->entity_ref) {
        /* The store lacks the ranges of this commit that are in memory only. */
        status = flush(session);
        if (status == STATUS_OK)
            status = find_head(session, event->entity_ref, &head->seq);
        head->entity_ref = status == STATUS_OK ? event->entity_ref : 0;
    }
    *head_seq = head->seq;
    if (status != STATUS_OK || event->seq != head->seq + 1)
        return status == STATUS_OK ? STATUS_SEQUENCE_CONFLICT : status;
    head->seq = event->seq;
    if (session->range_count > 0) {
        struct sqlite_range *last = &session->ranges[session->range_count - 1];
        if (last->entity_ref == event->entity_ref && last->log_id + last->count == event->log_id) {
            last->count++;
            return STATUS_OK;
        }
    }
    if (session->range_count == SQLITE_STORE_RANGES_MAX)
        status = flush(session);
    session->ranges[session->range_count++] =
        (struct sqlite_range){event->entity_ref, event->seq, event->log_id, 1};
    return status;
}

enum status sqlite_positions_end(struct sqlite_session *session) {
    enum status status = flush(session);
    if (status != STATUS_OK || session->tail.recent_positions < SQLITE_STORE_RECENT_POSITIONS_MAX)
        return status;
    status = sqlite_execute(session, STATEMENT_MOVE_POSITIONS);
    if (status == STATUS_OK)
        status = sqlite_execute(session, STATEMENT_CLEAR_POSITIONS);
    session->tail.recent_positions = 0;
    return status;
}
