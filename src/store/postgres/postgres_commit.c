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

static enum status find_old_readers(struct postgres_session *session) {
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_OLD_READERS);
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK)
        session->has_old_readers = postgres_number((struct postgres_row){result, 0}, 0) != 0;
    PQclear(result);
    return status;
}

enum status postgres_load_tail(struct postgres_session *session) {
    struct store_state state;
    enum status status = find_old_readers(session);
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

/* Not acknowledged: a commit whose answer is lost, and one that the synchronous standby did not
 * confirm. The session is dropped, so that the next one reads what the log holds. */
static enum status lose_outcome(struct postgres_session *session) {
    snprintf(session->error, sizeof(session->error),
             "%s: the outcome of a commit is unknown: the answer was lost, or a standby did not "
             "confirm it",
             session->store->label);
    session->reason = REASON_STORE_FAILED;
    postgres_disconnect(session);
    return STATUS_APPEND_OUTCOME_UNKNOWN;
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
    if (session->has_warning || is_lost)
        status = lose_outcome(session);
    else if (!is_answered)
        status = postgres_fault(session, result);
    else if (!is_committed)
        status = postgres_contradicts(session, STATUS_INTERNAL_ERROR, "rolled back at event",
                                      session->tail.log_id);
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

static enum status send_entities(struct postgres_session *session,
                                 const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_PUT_ENTITIES);
    for (size_t i = 0; i < batch->entity_count; i++) {
        const struct store_entity *entity = &batch->entities[i];
        postgres_put_number(session, entity->ref);
        postgres_put_number(session, entity->kind);
        postgres_put_text(session, entity->id);
        postgres_put_text(session, entity->owner.user_id);
        postgres_put_text(session, entity->owner.guest_scope);
        postgres_put_text(session, entity->owner.org_id);
        postgres_put_text(session, entity->status);
        postgres_put_text(session, entity->worker_id);
        postgres_put_text(session, entity->thread_id);
        postgres_put_text(session, entity->workspace_ref);
        postgres_put_text(session, entity->codex_home_ref);
        postgres_put_text(session, entity->adapter);
        postgres_put_text(session, entity->metadata);
        postgres_put_number(session, entity->created_at_ms);
        postgres_put_optional(session, entity->started_at_ms);
        postgres_put_optional(session, entity->stopped_at_ms);
        postgres_put_optional(session, entity->last_heartbeat_at_ms);
    }
    return postgres_pipeline_send(session);
}

static enum status send_keys(struct postgres_session *session, const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_ADD_KEYS);
    for (size_t i = 0; i < batch->key_count; i++) {
        postgres_put_number(session, batch->keys[i].entity_ref);
        postgres_put_text(session, batch->keys[i].key);
        postgres_put_number(session, batch->keys[i].log_id);
    }
    return postgres_pipeline_send(session);
}

static enum status send_topics(struct postgres_session *session, const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_PUT_TOPICS);
    for (size_t i = 0; i < batch->topic_count; i++) {
        const struct store_topic *topic = &batch->topics[i];
        postgres_put_number(session, topic->ref);
        postgres_put_text(session, topic->name);
        postgres_put_text(session, topic->stream_id);
        postgres_put_optional(session, topic->entity_ref);
        postgres_put_number(session, topic->oldest_seq);
        if (topic->entity_ref == 0)
            postgres_put_number(session, topic->head_seq);
        else
            postgres_put_optional(session, 0);
    }
    return postgres_pipeline_send(session);
}

/* A release before cut payloads takes them for damage. */
static const struct store_cut *cut_of(const struct postgres_session *session,
                                      const struct store_cut *cut) {
    return session->has_old_readers ? NULL : cut;
}

static void put_payload(struct postgres_session *session, struct slice payload,
                        const struct store_cut *cut) {
    postgres_put_text(session, cut ? cut->text : payload);
}

static void put_cut(struct postgres_session *session, const struct store_cut *cut) {
    postgres_put_optional(session, cut ? cut->metadata_at : 0);
    postgres_put_bytes(session, cut ? cut->metadata_hash : NULL, SHA256_BYTES);
}

static enum status send_documents(struct postgres_session *session, const struct store_batch *batch,
                                  enum document_kind kind) {
    enum statement_id id = STATEMENT_PUT_DOCUMENTS + kind;
    postgres_begin(session, id);
    for (size_t i = 0; i < batch->document_count; i++) {
        const struct store_document *document = &batch->documents[i];
        const struct store_cut *cut = cut_of(session, document->cut);
        if (document->kind != kind)
            continue;
        postgres_put_number(session, document->entity_ref);
        postgres_put_text(session, document->key);
        postgres_put_number(session, document->version);
        postgres_put_bytes(session, document->payload_hash, sizeof(document->payload_hash));
        put_payload(session, document->payload, cut);
        put_cut(session, cut);
    }
    return postgres_pipeline_send(session);
}

/* Versions are written while rows are still written whole too: the caller does not know that. */
static enum status send_metadata(struct postgres_session *session,
                                 const struct store_batch *batch) {
    size_t count = 0;
    postgres_begin(session, STATEMENT_PUT_METADATA);
    for (size_t i = 0; i < batch->document_count; i++) {
        const struct store_cut *cut = batch->documents[i].cut;
        if (!cut || !cut->is_new)
            continue;
        postgres_put_number(session, batch->documents[i].entity_ref);
        postgres_put_bytes(session, cut->metadata_hash, sizeof(cut->metadata_hash));
        postgres_put_text(session, cut->metadata);
        count++;
    }
    return count > 0 ? postgres_pipeline_send(session) : STATUS_OK;
}

/* Rows that others altered or removed since the last commit are recorded, and then replaced. */
static enum status send_comparison(struct postgres_session *session,
                                   const struct store_batch *batch, enum document_kind kind) {
    size_t count = 0;
    postgres_begin(session, STATEMENT_COMPARE_SUMMARIES + kind);
    for (size_t i = 0; i < batch->checkpoint_count; i++) {
        const struct store_checkpoint *checkpoint = &batch->checkpoints[i];
        const struct store_summary_rows *rows = checkpoint->replaced;
        if (checkpoint->kind != kind || !rows)
            continue;
        postgres_put_number(session, checkpoint->entity_ref);
        postgres_put_number(session, rows->last_runtime_seq);
        postgres_put_bytes(session, rows->summary_hash, sizeof(rows->summary_hash));
        postgres_put_number(session, rows->document_version);
        postgres_put_bytes(session, rows->document_hash, sizeof(rows->document_hash));
        postgres_put_number(session, checkpoint->last_projected_at_ms);
        count++;
    }
    return count > 0 ? postgres_pipeline_send(session) : STATUS_OK;
}

static void report_altered(const PGresult *result) {
    struct store_drift drift;
    for (int i = 0; i < PQntuples(result); i++)
        if (postgres_row_drift((struct postgres_row){(PGresult *)result, i}, &drift))
            store_report_drift(&drift);
}

static enum status send_checkpoints(struct postgres_session *session,
                                    const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_PUT_CHECKPOINTS);
    for (size_t i = 0; i < batch->checkpoint_count; i++) {
        const struct store_checkpoint *checkpoint = &batch->checkpoints[i];
        postgres_put_number(session, checkpoint->entity_ref);
        postgres_put_text(session, slice_of(document_kind_name(checkpoint->kind)));
        postgres_put_text(session, checkpoint->document_id);
        postgres_put_number(session, checkpoint->last_runtime_seq);
        postgres_put_text(session, checkpoint->projection_version);
        postgres_put_bytes(session, checkpoint->summary_hash, sizeof(checkpoint->summary_hash));
        postgres_put_number(session, checkpoint->last_projected_at_ms);
    }
    return postgres_pipeline_send(session);
}

static enum status send_journal(struct postgres_session *session, const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_ADD_JOURNAL);
    for (size_t i = 0; i < batch->journal_count; i++) {
        const struct store_journal_row *row = &batch->journal[i];
        const struct store_cut *cut = cut_of(session, row->cut);
        postgres_put_number(session, row->topic_ref);
        postgres_put_number(session, row->seq);
        postgres_put_number(session, row->log_id);
        postgres_put_number(session, row->entity_ref);
        postgres_put_number(session, row->document_version);
        postgres_put_number(session, row->published_at_ms);
        postgres_put_bytes(session, row->payload_hash, sizeof(row->payload_hash));
        put_payload(session, row->payload, cut);
        postgres_put_optional(session, row->first_seq);
        put_cut(session, cut);
    }
    return postgres_pipeline_send(session);
}

static enum status send_drifts(struct postgres_session *session, const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_ADD_DRIFTS);
    for (size_t i = 0; i < batch->drift_count; i++) {
        const struct store_drift *drift = &batch->drifts[i];
        postgres_put_text(session, slice_of(document_kind_name(drift->kind)));
        postgres_put_number(session, drift->entity_ref);
        postgres_put_text(session, slice_of(reason_code(drift->reason)));
        postgres_put_number(session, drift->expected_seq);
        postgres_put_number(session, drift->actual_seq);
        postgres_put_number(session, drift->seen_at_ms);
        postgres_put_text(session, (struct slice){0});
    }
    enum status status = postgres_pipeline_send(session);
    postgres_begin(session, STATEMENT_DROP_OLD_DRIFTS);
    postgres_put_number(session, POSTGRES_DRIFTS_MAX);
    return status == STATUS_OK ? postgres_pipeline_send(session) : status;
}

static enum status send_unprojected(struct postgres_session *session,
                                    const struct store_batch *batch) {
    postgres_begin(session,
                   batch->is_projected ? STATEMENT_CLEAR_UNPROJECTED : STATEMENT_SET_UNPROJECTED);
    if (!batch->is_projected)
        postgres_put_number(session, batch->unprojected_from);
    return postgres_pipeline_send(session);
}

/* ---- the batch ---- */

static bool has_documents(const struct store_batch *batch, int kind) {
    for (size_t i = 0; i < batch->document_count; i++)
        if ((int)batch->documents[i].kind == kind)
            return true;
    return false;
}

static enum status send_authority(struct postgres_session *session, const struct store_batch *batch,
                                  uint64_t *expected, struct uuid *max) {
    enum status status = STATUS_OK;
    *max = session->tail.client_id_max;
    if (batch->event_count > 0)
        status = postgres_send_positions(session, batch, expected);
    if (status == STATUS_OK && batch->entity_count > 0)
        status = send_entities(session, batch);
    if (status == STATUS_OK && batch->event_count > 0)
        status = postgres_send_events(session, batch, max);
    if (status == STATUS_OK && batch->key_count > 0)
        status = send_keys(session, batch);
    if (status == STATUS_OK && batch->usage_count > 0)
        status = postgres_send_usages(session, batch);
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

static enum status send_derived(struct postgres_session *session, const struct store_batch *batch) {
    enum status status = batch->topic_count > 0 ? send_topics(session, batch) : STATUS_OK;
    if (status == STATUS_OK)
        status = send_metadata(session, batch);
    for (int kind = 0; status == STATUS_OK && kind < DOCUMENT_KIND_COUNT; kind++) {
        status = send_comparison(session, batch, (enum document_kind)kind);
        if (status == STATUS_OK && has_documents(batch, kind))
            status = send_documents(session, batch, (enum document_kind)kind);
    }
    if (status == STATUS_OK && batch->checkpoint_count > 0)
        status = send_checkpoints(session, batch);
    if (status == STATUS_OK && batch->journal_count > 0)
        status = send_journal(session, batch);
    if (status == STATUS_OK && batch->drift_count > 0)
        status = send_drifts(session, batch);
    if (status == STATUS_OK && (batch->is_projected || batch->unprojected_from > 0))
        status = send_unprojected(session, batch);
    return status == STATUS_OK && batch->topic_count > 0 ? postgres_send_commit_row(session, batch)
                                                         : status;
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
        report_altered(result);
    if ((id == STATEMENT_FIND_SUPPLIED || id == STATEMENT_FIND_MINTED) && PQntuples(result) > 0)
        return postgres_contradicts(session, STATUS_ALREADY_EXISTS,
                                    "the id of an event has been given to event",
                                    postgres_number(row, 0));
    return STATUS_OK;
}

static enum status receive_all(struct postgres_session *session, const struct store_batch *batch,
                               uint64_t expected) {
    enum status status = postgres_write_check(session);
    while (status == STATUS_OK && session->received_count < session->sent_count) {
        size_t next = session->received_count;
        enum statement_id id = session->sent[next].id;
        PGresult *result = NULL;
        status = postgres_pipeline_receive(session, &result);
        if (status == STATUS_OK)
            status = check_result(session, id, result, batch, expected);
        PQclear(result);
    }
    return status;
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
    if (status == STATUS_OK && batch->outbox_count > 0)
        status = postgres_send_outbox(session, batch);
    if (status == STATUS_OK)
        status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = receive_all(session, batch, expected);
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

static enum status take_prunes(struct postgres_session *session, struct store_prune *prunes,
                               size_t count) {
    PGresult *result = NULL;
    enum status status = postgres_pipeline_receive(session, &result);
    if (status == STATUS_OK && (size_t)PQntuples(result) != count)
        status = STATUS_NOT_FOUND;
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        struct store_prune *prune = &prunes[i];
        prune->pruned = postgres_number(row, 1);
        prune->oldest_seq = postgres_number(row, 2);
        prune->head_seq = postgres_number(row, 3);
    }
    PQclear(result);
    return status;
}

enum status postgres_prune(struct store_session *base, struct store_prune *prunes, size_t count) {
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
    if (status == STATUS_OK)
        status = take_prunes(session, prunes, count);
    PGresult *result = NULL;
    if (status == STATUS_OK)
        status = postgres_pipeline_receive(session, &result);
    PQclear(result);
    return postgres_write_end(session, status);
}
