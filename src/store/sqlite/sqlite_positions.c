/* Positions of the events of a commit. Events of an entity that follow each other in the log too
 * share one position, so a batch for one topic needs one row. */
#include "store/sqlite/sqlite.h"

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

static struct sqlite_head *head_of(struct sqlite_session *session, uint64_t entity_ref) {
    return &session->store->heads[entity_ref % SQLITE_STORE_HEADS];
}

void sqlite_positions_forget(struct sqlite_session *session) {
    memset(session->store->heads, 0, sizeof(session->store->heads));
    session->range = (struct sqlite_range){0};
}

static enum status flush(struct sqlite_session *session) {
    const struct sqlite_range range = session->range;
    sqlite3_stmt *statement = NULL;
    if (range.count == 0)
        return STATUS_OK;
    session->range.count = 0;
    enum status status = sqlite_statement(session, STATEMENT_ADD_POSITION, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, range.entity_ref);
    sqlite_bind_number(statement, 2, range.seq);
    sqlite_bind_number(statement, 3, range.log_id);
    sqlite_bind_number(statement, 4, range.count);
    session->tail.recent_positions++;
    return sqlite_run(session, statement);
}

enum status sqlite_positions_add(struct sqlite_session *session, const struct store_event *event,
                                 uint64_t *head_seq) {
    struct sqlite_head *head = head_of(session, event->entity_ref);
    struct sqlite_range *range = &session->range;
    enum status status = STATUS_OK;
    if (head->entity_ref != event->entity_ref) {
        /* An open range of the entity is in memory only. */
        status = flush(session);
        if (status == STATUS_OK)
            status = find_head(session, event->entity_ref, &head->seq);
        head->entity_ref = status == STATUS_OK ? event->entity_ref : 0;
    }
    *head_seq = head->seq;
    if (status != STATUS_OK || event->seq != head->seq + 1)
        return status == STATUS_OK ? STATUS_SEQUENCE_CONFLICT : status;
    head->seq = event->seq;
    if (range->count > 0 && range->entity_ref == event->entity_ref &&
        range->log_id + range->count == event->log_id) {
        range->count++;
        return STATUS_OK;
    }
    status = flush(session);
    *range = (struct sqlite_range){event->entity_ref, event->seq, event->log_id, 1};
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
