/* One batch, one transaction. Order inside it does not matter to SQLite, only that all of it or
 * none of it is there afterwards.
 *
 * When COMMIT itself fails (the log file cannot be written or synced) the transaction is rolled
 * back: no session sees it, and the next commit overwrites what reached the file. Only if the
 * process ends before that, the next start may find the transaction whole and keep it, as if its
 * acknowledgement had been lost on the way. The caller therefore answers "not stored, try again";
 * a retry with the same event id or key leads to one event either way. */
#include "store/sqlite/sqlite_source.h"

#include <assert.h>
#include <stdio.h>

static enum status contradicts(struct sqlite_session *session, enum status status, const char *what,
                               uint64_t number) {
    snprintf(session->error, sizeof(session->error), "the batch contradicts the store: %s %llu",
             what, (unsigned long long)number);
    return status;
}

/* An id that another store minted counts as supplied, even where it is the cursor's. */
static bool is_supplied(const struct sqlite_tail *tail, const struct store_event *event) {
    return uuid_compare(&event->event_id, &event->cursor) != 0 ||
           !id_mark_may_be_minted(&tail->id_mark, &event->event_id);
}

static bool has_supplied_id(const struct sqlite_source *source, const void *row) {
    return is_supplied(source->user, row);
}

/* An id is unique among supplied and minted ids together. The supplied ids of the batch are in the
 * store already. Both checks are free in the usual case: a minted id is later than every supplied
 * one, a supplied id that lacks the mark was not minted, and one that is later than the last cursor
 * was not minted yet. */
static enum status check_event_id(struct sqlite_session *session, const struct store_event *event) {
    struct sqlite_tail *tail = &session->tail;
    bool supplied = is_supplied(tail, event);
    uint64_t log_id = 0;
    enum status status = STATUS_NOT_FOUND;
    if (!supplied && uuid_compare(&event->event_id, &tail->client_id_max) <= 0)
        status = sqlite_find_client_id(session, &event->event_id, &log_id);
    else if (supplied && id_mark_may_be_minted(&tail->id_mark, &event->event_id) &&
             tail->log_id > 0 && uuid_compare(&event->event_id, &tail->cursor) <= 0)
        status = sqlite_find_server_id(session, &event->event_id, &log_id);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    return status == STATUS_OK ? contradicts(session, STATUS_ALREADY_EXISTS,
                                             "the id of this event has been given to event", log_id)
                               : status;
}

static enum status add_events(struct sqlite_session *session, const struct store_batch *batch) {
    struct sqlite_tail *tail = &session->tail;
    const struct sqlite_source ids = {
        .rows = batch->events,
        .row_count = batch->event_count,
        .row_bytes = sizeof(*batch->events),
        .columns = store_event_id_layout.columns,
        .has_row = has_supplied_id,
        .user = tail,
    };
    const struct sqlite_source events = {
        .rows = batch->events,
        .row_count = batch->event_count,
        .row_bytes = sizeof(*batch->events),
        .columns = store_event_layout.columns + 1, /* without the number */
    };
    enum status status = STATUS_OK;
    for (size_t i = 0; i < batch->event_count; i++) {
        const struct store_event *event = &batch->events[i];
        uint64_t head_seq = 0;
        if (event->log_id != tail->log_id + 1)
            return contradicts(session, STATUS_SEQUENCE_CONFLICT, "the log ends at event",
                               tail->log_id);
        if (tail->log_id > 0 && uuid_compare(&event->cursor, &tail->cursor) <= 0)
            return contradicts(session, STATUS_SEQUENCE_CONFLICT,
                               "the cursor does not rise at event", event->log_id);
        status = sqlite_positions_add(session, event, &head_seq);
        if (status == STATUS_SEQUENCE_CONFLICT)
            return contradicts(session, status, "the entity's last event is", head_seq);
        if (status != STATUS_OK)
            return status;
        tail->log_id = event->log_id;
        tail->cursor = event->cursor;
    }
    for (size_t i = 0; i < batch->event_count; i++)
        if (is_supplied(tail, &batch->events[i]) &&
            uuid_compare(&batch->events[i].event_id, &tail->client_id_max) > 0)
            tail->client_id_max = batch->events[i].event_id;
    if (status == STATUS_OK)
        status = sqlite_run_source(session, STATEMENT_ADD_EVENT_IDS, &ids);
    for (size_t i = 0; status == STATUS_OK && i < batch->event_count; i++)
        status = check_event_id(session, &batch->events[i]);
    if (status == STATUS_OK)
        status = sqlite_run_source(session, STATEMENT_ADD_EVENTS, &events);
    /* SQLite gives each row the number after the last one, without a search for it, and that is the
     * event's log id as long as the table ends where the log does. */
    uint64_t log_id = (uint64_t)sqlite3_last_insert_rowid(session->database);
    if (status == STATUS_OK && batch->event_count > 0 && log_id != tail->log_id)
        return contradicts(session, STATUS_SEQUENCE_CONFLICT, "the last event would be", log_id);
    return status == STATUS_OK ? sqlite_positions_end(session) : status;
}

static bool is_of_kind(const struct sqlite_source *source, const void *row) {
    return ((const struct store_document *)row)->kind == *(const enum document_kind *)source->user;
}

static bool has_new_metadata(const struct sqlite_source *source, const void *row) {
    const struct store_document *document = row;
    (void)source;
    return document->cut && document->cut->is_new;
}

static bool is_compared(const struct sqlite_source *source, const void *row) {
    const struct store_checkpoint *checkpoint = row;
    return checkpoint->replaced && checkpoint->kind == *(const enum document_kind *)source->user;
}

static void report_altered(sqlite3_stmt *row) {
    struct store_drift drift;
    if (sqlite_read_row(row, 0, &store_drift_layout, &drift))
        store_report_drift(&drift);
}

/* ---- the transaction around it --------------------------------------------------------------- */

enum status sqlite_load_tail(struct sqlite_session *session) {
    struct sqlite_tail tail = {.known = true};
    struct store_state state;
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_read_state(&session->base, &state);
    if (status == STATUS_OK)
        status = sqlite_statement(session, STATEMENT_COUNTS, &statement);
    if (status != STATUS_OK)
        return status;
    tail.log_id = state.log_id;
    tail.cursor = state.cursor;
    tail.id_mark = state.id_mark;
    status = sqlite_next(session, statement);
    if (status == STATUS_OK && sqlite3_column_type(statement, 0) != SQLITE_NULL &&
        !sqlite_bytes(statement, 0, tail.client_id_max.bytes, sizeof(tail.client_id_max.bytes)))
        status = sqlite_damaged(session, "an id chosen by a client, of size",
                                (uint64_t)sqlite3_column_bytes(statement, 0));
    tail.recent_positions = status == STATUS_OK ? sqlite_number(statement, 1) : 0;
    sqlite3_reset(statement);
    if (status != STATUS_OK)
        return status;
    session->tail = tail;
    sqlite_positions_forget(session);
    return STATUS_OK;
}

enum status sqlite_begin(struct sqlite_session *session) {
    assert(sqlite3_get_autocommit(session->database));
    sqlite3_stmt *rollback = NULL;
    session->reason = REASON_STORE_FAILED;
    /* The rollback is prepared before there is anything to undo. */
    enum status status = sqlite_statement(session, STATEMENT_ROLLBACK, &rollback);
    if (status == STATUS_OK)
        status = sqlite_execute(session, STATEMENT_BEGIN);
    if (status == STATUS_OK)
        status = sqlite_session_check_location(session);
    if (status == STATUS_OK && !session->tail.known)
        status = sqlite_load_tail(session);
    return status;
}

/* The status of the work decides; a failure's own sentence is kept over that of the rollback. */
enum status sqlite_end(struct sqlite_session *session, enum status status) {
    if (status == STATUS_OK)
        status = sqlite_execute(session, STATEMENT_COMMIT);
    if (status == STATUS_OK)
        return status;
    session->tail.known = false;
    if (!sqlite3_get_autocommit(session->database)) {
        char error[STORE_MESSAGE_MAX];
        memcpy(error, session->error, sizeof(error));
        enum status undone = sqlite_execute(session, STATEMENT_ROLLBACK);
        /* A rollback forgets; it has nothing to write that could fail. */
        assert(undone == STATUS_OK || sqlite3_get_autocommit(session->database));
        memcpy(session->error, error, sizeof(error));
    }
    return status;
}

/* A statement with one number. */
static enum status run_number(struct sqlite_session *session, enum statement_id id,
                              uint64_t number) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, id, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, number);
    return sqlite_run(session, statement);
}

static enum status write_derived(struct sqlite_session *session, const struct store_batch *batch) {
    struct sqlite_source documents = {.rows = batch->documents,
                                      .row_count = batch->document_count,
                                      .row_bytes = sizeof(*batch->documents),
                                      .columns = store_metadata_layout.columns,
                                      .has_row = has_new_metadata};
    struct sqlite_source checkpoints = {.rows = batch->checkpoints,
                                        .row_count = batch->checkpoint_count,
                                        .row_bytes = sizeof(*batch->checkpoints),
                                        .columns = store_replaced_layout.columns,
                                        .has_row = is_compared};
    const struct sqlite_source journal = {.rows = batch->journal,
                                          .row_count = batch->journal_count,
                                          .row_bytes = sizeof(*batch->journal),
                                          .columns = store_journal_layout.columns};
    enum status status = STATUS_OK;
    enum document_kind kind;
    for (size_t i = 0; status == STATUS_OK && i < batch->topic_count; i++) {
        status = sqlite_run_row(session, STATEMENT_PUT_TOPIC, store_topic_layout.columns,
                                STORE_COUNT(STORE_TOPICS_WRITTEN), &batch->topics[i]);
        if (status == STATUS_OK && sqlite3_changes(session->database) != 1)
            return contradicts(session, STATUS_ALREADY_EXISTS, "another topic has ref",
                               batch->topics[i].ref);
    }
    /* Rows that others altered or removed since the last commit are recorded, and then replaced. */
    int changes = sqlite3_total_changes(session->database);
    documents.user = checkpoints.user = &kind;
    for (kind = 0; status == STATUS_OK && kind < DOCUMENT_KIND_COUNT; kind++)
        status = sqlite_query_source(session, STATEMENT_COMPARE_SUMMARIES + kind, &checkpoints,
                                     report_altered);
    bool has_drifts = batch->drift_count > 0 || sqlite3_total_changes(session->database) != changes;
    if (status == STATUS_OK)
        status = sqlite_run_source(session, STATEMENT_PUT_METADATA, &documents);
    documents.columns = store_document_layout.columns;
    documents.has_row = is_of_kind;
    for (kind = 0; status == STATUS_OK && kind < DOCUMENT_KIND_COUNT; kind++)
        status = sqlite_run_source(session, STATEMENT_PUT_DOCUMENTS + kind, &documents);
    checkpoints.columns = store_checkpoint_layout.columns;
    checkpoints.has_row = NULL;
    if (status == STATUS_OK)
        status = sqlite_run_source(session, STATEMENT_PUT_CHECKPOINTS, &checkpoints);
    if (status == STATUS_OK)
        status = sqlite_run_source(session, STATEMENT_ADD_JOURNAL, &journal);
    for (size_t i = 0; status == STATUS_OK && i < batch->drift_count; i++)
        status = sqlite_run_row(session, STATEMENT_ADD_DRIFT, store_drift_layout.columns + 1,
                                store_drift_layout.column_count - 1, &batch->drifts[i]);
    if (status == STATUS_OK && has_drifts)
        status = run_number(session, STATEMENT_DROP_OLD_DRIFTS, SQLITE_STORE_DRIFTS_MAX);
    if (status == STATUS_OK && batch->is_projected)
        return sqlite_execute(session, STATEMENT_CLEAR_UNPROJECTED);
    return status == STATUS_OK && batch->unprojected_from > 0
               ? run_number(session, STATEMENT_SET_UNPROJECTED, batch->unprojected_from)
               : status;
}

enum status sqlite_commit(struct store_session *base, const struct store_batch *batch) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    bool has_events = status == STATUS_OK && batch->event_count > 0;
    if (has_events)
        sqlite_reserve_begin(session, batch->room_least);
    for (size_t i = 0; status == STATUS_OK && i < batch->entity_count; i++) {
        status = sqlite_run_row(session, STATEMENT_PUT_ENTITY, store_entity_layout.columns,
                                store_entity_layout.column_count, &batch->entities[i]);
        if (status == STATUS_OK && sqlite3_changes(session->database) != 1)
            status = contradicts(session, STATUS_ALREADY_EXISTS, "another entity has ref",
                                 batch->entities[i].ref);
    }
    if (status == STATUS_OK)
        status = add_events(session, batch);
    for (size_t i = 0; status == STATUS_OK && i < batch->key_count; i++)
        status = sqlite_run_row(session, STATEMENT_ADD_KEY, store_key_layout.columns,
                                store_key_layout.column_count, &batch->keys[i]);
    if (status == STATUS_OK && batch->imported_log_id > 0) {
        sqlite3_stmt *statement = NULL;
        /* The journals of the log that is imported have other sequences. */
        status = sqlite_execute(session, STATEMENT_DROP_FORKS);
        if (status == STATUS_OK)
            status = sqlite_statement(session, STATEMENT_PUT_PROPERTY, &statement);
        if (status == STATUS_OK) {
            sqlite_bind_text(statement, 1, SLICE("import_log_id"));
            sqlite_bind_number(statement, 2, batch->imported_log_id);
            status = sqlite_run(session, statement);
        }
    }
    if (status == STATUS_OK)
        status = sqlite_put_usages(session, batch);
    if (status == STATUS_OK)
        status = write_derived(session, batch);
    session->is_shared = batch->is_shared;
    status = sqlite_end(session, status);
    if (has_events)
        sqlite_reserve_end(session, batch->room_least);
    return status;
}

/* ---- pruning --------------------------------------------------------------------------------- */

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Frames have no gaps, so how many go follows from the numbers. */
static enum status prune_topic(struct sqlite_session *session, struct store_prune *prune) {
    static const enum statement_id removals[] = {STATEMENT_PRUNE_METADATA, STATEMENT_PRUNE_JOURNAL};
    struct store_topic topic = {0};
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_TOPIC_BY_REF, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, prune->topic_ref);
    status = sqlite_next(session, statement);
    if (status == STATUS_OK && !sqlite_read_row(statement, 0, &store_topic_layout, &topic))
        status = sqlite_damaged(session, "topic", prune->topic_ref);
    sqlite3_reset(statement);
    if (status != STATUS_OK)
        return status;
    uint64_t end_seq = smaller(prune->below_seq, topic.head_seq + 1);
    uint64_t count = 0;
    if (end_seq > topic.oldest_seq)
        count = smaller(prune->limit, end_seq - topic.oldest_seq);
    prune->pruned = count;
    prune->oldest_seq = topic.oldest_seq + count;
    prune->head_seq = topic.head_seq;
    if (count == 0)
        return STATUS_OK;
    for (size_t i = 0; topic.entity_ref == 0 && i < 2; i++) {
        status = sqlite_statement(session, removals[i], &statement);
        if (status != STATUS_OK)
            return status;
        sqlite_bind_number(statement, 1, topic.ref);
        sqlite_bind_number(statement, 2, prune->oldest_seq);
        status = sqlite_run(session, statement);
        if (status != STATUS_OK)
            return status;
    }
    status = sqlite_statement(session, STATEMENT_RAISE_OLDEST, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, prune->oldest_seq);
    sqlite_bind_number(statement, 2, topic.ref);
    return sqlite_run(session, statement);
}

enum status sqlite_prune_topics(struct store_session *base, struct store_prune *prunes,
                                size_t count) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = sqlite_begin(session);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = prune_topic(session, &prunes[i]);
    return sqlite_end(session, status);
}
