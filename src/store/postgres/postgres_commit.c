/* One batch, one transaction, two round trips: all statements in one pipeline, then COMMIT. After a
 * failure, reading the end of the log is a third.
 *
 * The checks that need no query are made with the tail, which only this session moves. The others
 * are statements of the same pipeline, whose results are checked before COMMIT is sent. A failure
 * before that is no commit. Only an answer to COMMIT that is lost, or that has a warning, leaves
 * the outcome unknown. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "store/postgres/postgres.h"

enum status postgres_contradicts(struct postgres_session *session, enum status status,
                                 const char *subject, uint64_t number) {
    snprintf(session->error, sizeof(session->error), "the batch contradicts the store: %s %llu",
             subject, (unsigned long long)number);
    session->reason = REASON_STORE_FAILED;
    return status;
}

/* ---- the transaction ---- */

enum status postgres_load_tail(struct postgres_session *session) {
    struct store_state state;
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_OLD_READERS);
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK)
        session->has_old_readers = postgres_number((struct postgres_row){result, 0}, 0) != 0;
    PQclear(result);
    if (status == STATUS_OK)
        status = postgres_read_state(&session->base, &state);
    /* Minted ids are above the last cursor, so the largest id of all serves as well as the largest
     * supplied one. */
    if (status == STATUS_OK)
        session->tail = (struct postgres_tail){.known = true,
                                               .log_id = state.log_id,
                                               .cursor = state.cursor,
                                               .client_id_max = state.event_id_max,
                                               .id_mark = state.id_mark};
    postgres_forget_heads(session);
    return status;
}

/* Begins the pipeline, and sends BEGIN and the question for the term. */
static enum status send_begin(struct postgres_session *session) {
    session->reason = REASON_STORE_FAILED;
    enum status status = postgres_pipeline_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_BEGIN);
    status = postgres_pipeline_send(session);
    if (status == STATUS_OK && session->base.mode == STORE_WRITE) {
        postgres_begin(session, STATEMENT_LOCK_TERM);
        status = postgres_pipeline_send(session);
    }
    return status == STATUS_OK ? STATUS_OK : postgres_write_end(session, status);
}

enum status postgres_write_begin(struct postgres_session *session) {
    bool needs_tail = session->base.mode == STORE_WRITE && !session->tail.known;
    enum status status = needs_tail ? postgres_load_tail(session) : STATUS_OK;
    return status == STATUS_OK ? send_begin(session) : status;
}

enum status postgres_write_open(struct postgres_session *session) {
    enum status status = send_begin(session);
    if (status != STATUS_OK)
        return status;
    status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = postgres_write_check(session);
    if (status != STATUS_OK)
        return postgres_write_end(session, status);
    postgres_pipeline_end(session);
    return session->connection ? STATUS_OK : STATUS_WRITER_LOST;
}

enum status postgres_lose_role(struct postgres_session *session) {
    snprintf(session->error, sizeof(session->error),
             "%s: another server has taken the writer role, or the schema was replaced",
             session->store->label);
    postgres_disconnect(session);
    return STATUS_WRITER_LOST;
}

enum status postgres_write_check(struct postgres_session *session) {
    PGresult *result = NULL;
    enum status status = postgres_pipeline_receive(session, &result);
    PQclear(result);
    /* A side session writes rows that need no role. */
    if (status != STATUS_OK || session->base.mode == STORE_SIDE)
        return status;
    status = postgres_pipeline_receive(session, &result);
    if (status != STATUS_OK)
        return status;
    struct postgres_row row = {result, 0};
    bool is_ours = PQntuples(result) == 1 && postgres_number(row, 0) == session->term.number &&
                   postgres_number(row, 1) == session->term.table;
    PQclear(result);
    return is_ours ? STATUS_OK : postgres_lose_role(session);
}

static void note_warning(void *user, const PGresult *result) {
    struct postgres_session *session = user;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && strcmp(severity, "WARNING") == 0)
        session->has_warning = true;
}

static enum status send_commit(struct postgres_session *session) {
    session->has_warning = false;
    PQnoticeReceiver before = PQsetNoticeReceiver(session->connection, note_warning, session);
    PGresult *result = postgres_exec(session->store, session->connection, "COMMIT");
    PQsetNoticeReceiver(session->connection, before, NULL);
    bool is_answered = PQresultStatus(result) == PGRES_COMMAND_OK;
    bool is_committed = is_answered && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    enum status status = STATUS_OK;
    bool is_lost = code ? strncmp(code, "57", 2) == 0 || strncmp(code, "08", 2) == 0 : !is_answered;
    if (session->has_warning || is_lost) {
        /* Not acknowledged: a commit whose answer is lost, and one that the synchronous standby did
         * not confirm. The session is dropped, so that the next one reads what the log holds. */
        snprintf(session->error, sizeof(session->error),
                 "%s: the outcome of a commit is unknown: the answer was lost, or a standby did "
                 "not confirm it",
                 session->store->label);
        session->reason = REASON_STORE_FAILED;
        postgres_disconnect(session);
        status = STATUS_APPEND_OUTCOME_UNKNOWN;
    } else if (!is_answered) {
        status = postgres_fault(session, result);
    } else if (!is_committed) {
        status = postgres_contradicts(session, STATUS_INTERNAL_ERROR, "rolled back at event",
                                      session->tail.log_id);
    }
    PQclear(result);
    return status;
}

enum status postgres_write_end(struct postgres_session *session, enum status status) {
    char error[STORE_MESSAGE_MAX];
    memcpy(error, session->error, sizeof(error));
    postgres_pipeline_end(session);
    if (!session->connection && status == STATUS_OK)
        status = STATUS_WRITER_LOST;
    if (status == STATUS_OK)
        status = send_commit(session);
    else
        memcpy(session->error, error, sizeof(error));
    if (status == STATUS_OK)
        return status;
    session->tail.known = false;
    if (session->connection && PQtransactionStatus(session->connection) != PQTRANS_IDLE) {
        PGresult *result = postgres_exec(session->store, session->connection, "ROLLBACK");
        bool is_undone = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
        if (!is_undone)
            postgres_disconnect(session);
    }
    return status;
}

/* ---- the other rows ---- */

/* Sends a statement of rows, if there is one. */
static enum status send_rows(struct postgres_session *session, enum statement_id id,
                             const void *rows, size_t row_bytes, size_t count) {
    postgres_begin(session, id);
    for (size_t i = 0; i < count; i++)
        postgres_put_row(session, (const char *)rows + i * row_bytes);
    return count > 0 ? postgres_pipeline_send(session) : STATUS_OK;
}

static enum status send_authority(struct postgres_session *session, const struct store_batch *batch,
                                  uint64_t *expected, struct uuid *max) {
    enum status status = STATUS_OK;
    *max = session->tail.client_id_max;
    if (batch->event_count > 0)
        status = postgres_send_positions(session, batch, expected);
    if (status == STATUS_OK)
        status = send_rows(session, STATEMENT_PUT_ENTITIES, batch->entities,
                           sizeof(*batch->entities), batch->entity_count);
    if (status == STATUS_OK && batch->event_count > 0)
        status = postgres_send_events(session, batch, max);
    if (status == STATUS_OK)
        status = send_rows(session, STATEMENT_ADD_KEYS, batch->keys, sizeof(*batch->keys),
                           batch->key_count);
    if (status == STATUS_OK)
        status = send_rows(session, STATEMENT_PUT_USAGES, batch->usages, sizeof(*batch->usages),
                           batch->usage_count);
    if (status != STATUS_OK || batch->imported_log_id == 0)
        return status;
    /* The journals of the log that is imported have other sequences. */
    postgres_begin(session, STATEMENT_DROP_FORKS);
    status = postgres_pipeline_send(session);
    if (status != STATUS_OK)
        return status;
    char text[DECIMAL_U64_SIZE_MAX];
    size_t size = (size_t)(decimal_write_u64(text, batch->imported_log_id) - text);
    postgres_begin(session, STATEMENT_PUT_PROPERTY);
    postgres_put_text(session, SLICE("import_log_id"));
    postgres_put_text(session, (struct slice){text, size});
    return postgres_pipeline_send(session);
}

static enum status send_if(struct postgres_session *session, size_t row_count) {
    return row_count > 0 ? postgres_pipeline_send(session) : STATUS_OK;
}

/* A release before cut payloads takes them for damage: while one runs, rows are written whole.
 * Versions of metadata are written all the same, because the caller does not know that. */
static enum status send_derived(struct postgres_session *session, const struct store_batch *batch) {
    enum status status = send_rows(session, STATEMENT_PUT_TOPICS, batch->topics,
                                   sizeof(*batch->topics), batch->topic_count);
    size_t count = 0;
    postgres_begin(session, STATEMENT_PUT_METADATA);
    for (size_t i = 0; i < batch->document_count; i++)
        if (batch->documents[i].cut && batch->documents[i].cut->is_new) {
            postgres_put_row(session, &batch->documents[i]);
            count++;
        }
    if (status == STATUS_OK)
        status = send_if(session, count);
    for (enum document_kind kind = 0; status == STATUS_OK && kind < DOCUMENT_KIND_COUNT; kind++) {
        /* Rows that others altered or removed since the last commit are recorded, and replaced. */
        postgres_begin(session, STATEMENT_COMPARE_SUMMARIES + kind);
        count = 0;
        for (size_t i = 0; i < batch->checkpoint_count; i++)
            if (batch->checkpoints[i].kind == kind && batch->checkpoints[i].replaced) {
                postgres_put_row(session, &batch->checkpoints[i]);
                count++;
            }
        status = send_if(session, count);
        postgres_begin(session, STATEMENT_PUT_DOCUMENTS + kind);
        count = 0;
        for (size_t i = 0; i < batch->document_count; i++) {
            struct store_document document = batch->documents[i];
            if (session->has_old_readers)
                document.cut = NULL;
            if (document.kind != kind)
                continue;
            postgres_put_row(session, &document);
            count++;
        }
        if (status == STATUS_OK)
            status = send_if(session, count);
    }
    if (status == STATUS_OK)
        status = send_rows(session, STATEMENT_PUT_CHECKPOINTS, batch->checkpoints,
                           sizeof(*batch->checkpoints), batch->checkpoint_count);
    postgres_begin(session, STATEMENT_ADD_JOURNAL);
    for (size_t i = 0; i < batch->journal_count; i++) {
        struct store_journal_row row = batch->journal[i];
        if (session->has_old_readers)
            row.cut = NULL;
        postgres_put_row(session, &row);
    }
    if (status == STATUS_OK)
        status = send_if(session, batch->journal_count);
    if (status == STATUS_OK)
        status = send_rows(session, STATEMENT_ADD_DRIFTS, batch->drifts, sizeof(*batch->drifts),
                           batch->drift_count);
    return status;
}

/* A result that contradicts the batch. */
static enum status check_result(struct postgres_session *session, enum statement_id id,
                                PGresult *result, const struct store_batch *batch,
                                uint64_t expected) {
    struct postgres_row row = {result, 0};
    uint64_t changed = strtoull(PQcmdTuples(result), NULL, 10);
    if (id == STATEMENT_COUNT_POSITIONS && postgres_number(row, 0) != expected)
        return postgres_contradicts(session, STATUS_SEQUENCE_CONFLICT,
                                    "an event does not follow the last of its entity, from event",
                                    batch->events[0].log_id);
    if (id == STATEMENT_PUT_ENTITIES && changed != batch->entity_count)
        return postgres_contradicts(session, STATUS_ALREADY_EXISTS,
                                    "another entity has the ref of one of", batch->entity_count);
    if (id == STATEMENT_PUT_TOPICS && changed != batch->topic_count)
        return postgres_contradicts(session, STATUS_ALREADY_EXISTS,
                                    "another topic has the ref of one of", batch->topic_count);
    if (id == STATEMENT_DELETE_OUTBOX && changed != batch->outbox_count)
        return postgres_contradicts(session, STATUS_STORE_UNAVAILABLE,
                                    "another session removed or locked one of the outbox rows, of",
                                    batch->outbox_count);
    if (id >= STATEMENT_COMPARE_SUMMARIES && id <= STATEMENT_COMPARE_SUMMARIES_LAST)
        for (int i = 0; i < PQntuples(result); i++) {
            struct store_drift drift;
            if (postgres_read_row((struct postgres_row){result, i}, 0, &store_drift_layout, &drift))
                store_report_drift(&drift);
        }
    if ((id == STATEMENT_FIND_SUPPLIED || id == STATEMENT_FIND_MINTED) && PQntuples(result) > 0)
        return postgres_contradicts(session, STATUS_ALREADY_EXISTS,
                                    "the id of an event has been given to event",
                                    postgres_number(row, 0));
    return STATUS_OK;
}

enum status postgres_commit(struct store_session *base, const struct store_batch *batch) {
    struct postgres_session *session = postgres_session_of(base);
    uint64_t expected = 0;
    struct uuid max;
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    struct postgres_tail tail = session->tail;
    status = postgres_check_order(session, batch);
    if (status == STATUS_OK)
        status = send_authority(session, batch, &expected, &max);
    if (status == STATUS_OK)
        status = send_derived(session, batch);
    /* What a batch leaves behind its rows. */
    postgres_begin(session, STATEMENT_DROP_OLD_DRIFTS);
    postgres_put_number(session, POSTGRES_DRIFTS_MAX);
    if (status == STATUS_OK)
        status = send_if(session, batch->drift_count);
    postgres_begin(session,
                   batch->is_projected ? STATEMENT_CLEAR_UNPROJECTED : STATEMENT_SET_UNPROJECTED);
    if (!batch->is_projected)
        postgres_put_number(session, batch->unprojected_from);
    if (status == STATUS_OK && (batch->is_projected || batch->unprojected_from > 0))
        status = postgres_pipeline_send(session);
    if (status == STATUS_OK && batch->topic_count > 0)
        status = postgres_send_commit_row(session, batch);
    if (status == STATUS_OK && batch->outbox_count > 0)
        status = postgres_send_outbox(session, batch);
    if (status == STATUS_OK)
        status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = postgres_write_check(session);
    while (status == STATUS_OK && session->received_count < session->sent_count) {
        enum statement_id id = session->sent[session->received_count].id;
        PGresult *result = NULL;
        status = postgres_pipeline_receive(session, &result);
        if (status == STATUS_OK)
            status = check_result(session, id, result, batch, expected);
        PQclear(result);
    }
    status = postgres_write_end(session, status);
    if (status != STATUS_OK || batch->event_count == 0)
        return status;
    tail.client_id_max = max;
    tail.log_id = batch->events[batch->event_count - 1].log_id;
    tail.cursor = batch->events[batch->event_count - 1].cursor;
    session->tail = tail;
    postgres_note_heads(session, batch);
    postgres_note_read(session->store, tail.log_id, &tail.cursor);
    return STATUS_OK;
}

/* ---- pruning ---- */

enum status postgres_prune_topics(struct store_session *base, struct store_prune *prunes,
                                  size_t count) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_PRUNE_TOPICS);
    for (size_t i = 0; i < count; i++) {
        postgres_put_bound(session, prunes[i].topic_ref);
        postgres_put_bound(session, prunes[i].below_seq);
        postgres_put_bound(session, prunes[i].limit);
    }
    status = postgres_pipeline_send(session);
    if (status == STATUS_OK) {
        postgres_begin(session, STATEMENT_ADD_COMMIT);
        for (size_t i = 0; i < count; i++)
            postgres_put_bound(session, prunes[i].topic_ref);
        status = postgres_pipeline_send(session);
    }
    if (status == STATUS_OK)
        status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = postgres_write_check(session);
    PGresult *result = NULL;
    if (status == STATUS_OK)
        status = postgres_pipeline_receive(session, &result);
    if (status == STATUS_OK && (size_t)PQntuples(result) != count)
        status = STATUS_NOT_FOUND;
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        prunes[i].pruned = postgres_number(row, 1);
        prunes[i].oldest_seq = postgres_number(row, 2);
        prunes[i].head_seq = postgres_number(row, 3);
    }
    PQclear(result);
    result = NULL;
    if (status == STATUS_OK)
        status = postgres_pipeline_receive(session, &result);
    PQclear(result);
    return postgres_write_end(session, status);
}
