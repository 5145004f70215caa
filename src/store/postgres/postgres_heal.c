/* Repair of the derived tables. All of them follow from the log, so a table that is missing or has
 * other columns is rebuilt, empty. The migrations of derived tables may be repeated for that. */
#include "store/postgres/postgres_heal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/metrics.h"
#include "store/postgres/postgres_migrations.h"

#define SQL_BYTES  8192
#define NUMBER_MAX 24

/* The derived tables and views with their columns, in order. */
#define SHAPE(table, LIST)                     "('" table "', '" STORE_NAMES(LIST) "'), "
#define DOCUMENT_SHAPE(kind, name, table, ...) SHAPE(table, STORE_DOCUMENTS)
#define VIEW_SHAPE(kind, name, table, view, ...)                                                   \
    "('" view "', '" STORE_NAMES(STORE_DOCUMENT_KEY)                                               \
        STORE_DOCUMENT_VALUES(STORE_NEXT_NAME, STORE_NEXT_NAME) ", payload'), "
#define SHAPES                                                                                     \
    SHAPE("khala_projection_drifts", STORE_DRIFTS)                                                 \
    SHAPE("topics", STORE_TOPICS)                                                                  \
    SHAPE("journal", STORE_JOURNAL)                                                                \
    SHAPE("summary_metadata", STORE_SUMMARY_METADATA)                                              \
    DOCUMENT_KINDS(DOCUMENT_SHAPE)                                                                 \
    SHAPE("checkpoints", STORE_CHECKPOINTS)                                                        \
    DOCUMENT_KINDS(VIEW_SHAPE)                                                                     \
    "('sync_topic_sequences', 'topic, next_watermark'), ('sync_stream_events', 'topic, "           \
    "watermark, doc_key, doc_version, payload, payload_hash, inserted_at'), "                      \
    "('khala_projection_checkpoints', 'projection_name, entity_id, document_id, "                  \
    "last_runtime_seq, projection_version, summary_hash, last_projected_at')"
/* Names of damaged ones, with their kind where there is one of that name. */
#define DAMAGED                                                                                    \
    "SELECT w.name, coalesce(c.relkind::text, '') FROM (VALUES " SHAPES ") w(name, columns) LEFT " \
    "JOIN pg_class c ON c.oid = to_regclass('runtime.' || w.name) WHERE w.columns IS DISTINCT "    \
    "FROM (SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE "        \
    "a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)"

/* ---- tools ---- */

static enum status take(struct postgres_repair *repair, PGresult *answered, PGresult **result) {
    ExecStatusType code = PQresultStatus(answered);
    if (code == PGRES_COMMAND_OK || code == PGRES_TUPLES_OK) {
        if (result)
            *result = answered;
        else
            PQclear(answered);
        return STATUS_OK;
    }
    enum status status =
        postgres_result_fault(repair->store, repair->connection, answered, repair->error);
    PQclear(answered);
    return status;
}

enum status postgres_repair_run(struct postgres_repair *repair, PGresult **result,
                                const char *format, ...) {
    char sql[SQL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(sql, sizeof(sql), format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof(sql))
        return STATUS_INTERNAL_ERROR;
    return take(repair, postgres_exec(repair->store, repair->connection, sql), result);
}

enum status postgres_repair_ask(struct postgres_repair *repair, PGresult **result, const char *sql,
                                const char *const *values, size_t count) {
    PGresult *answered = NULL;
    if (PQsendQueryParams(repair->connection, sql, (int)count, NULL, values, NULL, NULL, 0))
        answered = postgres_results(repair->store, repair->connection);
    return take(repair, answered, result);
}

uint64_t postgres_repair_number(const PGresult *result, int row, int column) {
    int64_t number = strtoll(PQgetvalue(result, row, column), NULL, 10);
    return number > 0 ? (uint64_t)number : 0;
}

enum status postgres_repair_note(struct postgres_repair *repair, const struct postgres_note *note) {
    char expected[NUMBER_MAX], actual[NUMBER_MAX], seen[NUMBER_MAX];
    char *subject = strndup(note->subject.data, note->subject.size);
    const char *const values[] = {reason_code(note->reason), expected, actual, seen, subject};
    if (!subject)
        return STATUS_OUT_OF_MEMORY;
    snprintf(expected, sizeof(expected), "%" PRIu64, note->expected_seq);
    snprintf(actual, sizeof(actual), "%" PRIu64, note->actual_seq);
    snprintf(seen, sizeof(seen), "%" PRIu64, repair->now_ms);
    repair->is_changed = true;
    log_event(LOG_WARN, "store.derived_healed", log_str("reason", reason_code(note->reason)),
              log_slice("subject", note->subject),
              log_int("expected_seq", (int64_t)note->expected_seq),
              log_int("actual_seq", (int64_t)note->actual_seq));
    metrics_add(METRIC_KHALA_PROJECTION_DRIFT, METRIC_LABELS(note->reason), 1);
    enum status status = postgres_repair_ask(
        repair, NULL,
        "INSERT INTO khala_projection_drifts (projection_name, entity_ref, reason, expected_seq, "
        "actual_seq, seen_at, subject) VALUES ('', 0, $1, $2::bigint, $3::bigint, $4::bigint, $5)",
        values, 5);
    free(subject);
    return status;
}

enum status postgres_repair_take_epoch(struct postgres_repair *repair, uint64_t *epoch) {
    PGresult *result = NULL;
    enum status status = postgres_repair_run(
        repair, &result,
        "INSERT INTO meta (name, value) VALUES ('journal_epoch', '1') ON CONFLICT (name) DO UPDATE "
        "SET value = (meta.value::bigint + 1)::text RETURNING value");
    if (status == STATUS_OK)
        *epoch = postgres_repair_number(result, 0, 0);
    PQclear(result);
    return status;
}

/* ---- tables ---- */

static enum status heal_tables(struct postgres_repair *repair) {
    PGresult *damaged = NULL;
    enum status status = postgres_repair_run(repair, &damaged, DAMAGED);
    int damaged_count = status == STATUS_OK ? PQntuples(damaged) : 0;
    for (int i = 0; status == STATUS_OK && i < damaged_count; i++) {
        const char *name = PQgetvalue(damaged, i, 0);
        const char *kind = PQgetvalue(damaged, i, 1);
        if (*kind)
            status = postgres_repair_run(repair, NULL, "DROP %s IF EXISTS %s CASCADE",
                                         *kind == 'v' ? "VIEW" : "TABLE", name);
        if (strcmp(name, "topics") == 0)
            repair->are_topics_made = true;
    }
    for (int i = 0; status == STATUS_OK && damaged_count > 0 && i < POSTGRES_SCHEMA_VERSION; i++)
        if (postgres_migrations[i].is_derived)
            status = take(
                repair,
                postgres_exec(repair->store, repair->connection, postgres_migrations[i].sql), NULL);
    for (int i = 0; status == STATUS_OK && i < damaged_count; i++)
        status = postgres_repair_note(
            repair, &(struct postgres_note){.reason = REASON_TABLE_REBUILT,
                                            .subject = slice_of(PQgetvalue(damaged, i, 0))});
    PQclear(damaged);
    return status;
}

/* ---- the journal ---- */

/* Rows beyond the head. Either they are strays, or the counter was set back. The counter jumps over
 * them, so that no seq is used twice, and the topic's frames before it are given up. */
static enum status skip_strays(struct postgres_repair *repair, const PGresult *rows, int row) {
    uint64_t ref = postgres_repair_number(rows, row, 0);
    uint64_t head = postgres_repair_number(rows, row, 2);
    uint64_t last = postgres_repair_number(rows, row, 3);
    const struct postgres_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                       .subject = slice_of(PQgetvalue(rows, row, 1)),
                                       .expected_seq = head,
                                       .actual_seq = last};
    enum status status = postgres_repair_note(repair, &note);
    if (last > STORE_SEQ_MAX)
        last = head;
    if (status != STATUS_OK)
        return status;
    return postgres_repair_run(repair, NULL,
                               "DELETE FROM journal WHERE topic_ref = %" PRIu64
                               "; UPDATE topics SET head_seq = %" PRIu64 ", oldest_seq = %" PRIu64
                               ", damaged_seq = %" PRIu64 " WHERE ref = %" PRIu64,
                               ref, last, last + 1, last, ref);
}

static enum status drop_unknown(struct postgres_repair *repair, const PGresult *rows, int row) {
    char subject[64];
    const char *ref = PQgetvalue(rows, row, 0);
    snprintf(subject, sizeof(subject), "topic_ref %.30s", ref);
    const struct postgres_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                       .subject = slice_of(subject),
                                       .actual_seq = postgres_repair_number(rows, row, 1)};
    enum status status = postgres_repair_note(repair, &note);
    return status == STATUS_OK ? postgres_repair_ask(repair, NULL,
                                                     "DELETE FROM journal WHERE topic_ref = "
                                                     "$1::bigint",
                                                     &ref, 1)
                               : status;
}

static enum status each(struct postgres_repair *repair, const char *query,
                        enum status (*visit)(struct postgres_repair *repair, const PGresult *rows,
                                             int row)) {
    PGresult *rows = NULL;
    enum status status = postgres_repair_ask(repair, &rows, query, NULL, 0);
    for (int i = 0; status == STATUS_OK && i < PQntuples(rows); i++)
        status = visit(repair, rows, i);
    PQclear(rows);
    return status;
}

/* ---- all of it ---- */

static enum status heal_all(struct postgres_repair *repair) {
    enum status status = heal_tables(repair);
    if (status == STATUS_OK)
        status = postgres_heal_topics(repair);
    if (status == STATUS_OK)
        status = each(
            repair,
            "SELECT ref, topic, head_seq, last FROM (SELECT t.ref, t.topic, t.head_seq, (SELECT "
            "max(j.seq) FROM journal j WHERE j.topic_ref = t.ref) AS last FROM topics t WHERE "
            "t.entity_ref IS NULL) ends WHERE last > head_seq ORDER BY ref",
            skip_strays);
    if (status == STATUS_OK)
        status = each(
            repair,
            "WITH RECURSIVE refs(r) AS (SELECT min(topic_ref) FROM journal UNION ALL SELECT "
            "(SELECT min(topic_ref) FROM journal WHERE topic_ref > r) FROM refs WHERE r IS NOT "
            "NULL) SELECT r, (SELECT max(seq) FROM journal WHERE topic_ref = r) FROM refs WHERE r "
            "IS NOT NULL AND NOT EXISTS (SELECT 1 FROM topics t WHERE t.ref = r AND t.entity_ref "
            "IS NULL) ORDER BY r",
            drop_unknown);
    /* A journal that lost its rows with its table. */
    if (status == STATUS_OK)
        status = postgres_repair_run(
            repair, NULL,
            "UPDATE topics t SET oldest_seq = head_seq + 1, damaged_seq = head_seq WHERE "
            "entity_ref IS NULL AND oldest_seq <= head_seq AND NOT EXISTS (SELECT 1 FROM "
            "journal j WHERE j.topic_ref = t.ref)");
    /* Nodes that follow look at all topics then. */
    if (status == STATUS_OK && repair->is_changed)
        status = postgres_repair_run(repair, NULL, POSTGRES_UNLISTED_COMMIT);
    /* Documents are compared with the log from now on. All events so far had their frames, unless
     * an earlier mark says otherwise. */
    if (status == STATUS_OK && repair->is_changed)
        status = postgres_repair_run(repair, NULL,
                                     "INSERT INTO meta (name, value) SELECT 'unprojected_from', "
                                     "(coalesce(max(log_id), 0) + 1)::text FROM events ON CONFLICT "
                                     "(name) DO NOTHING");
    return status;
}

static enum status find_damaged(struct postgres_repair *repair, char name[64]) {
    PGresult *damaged = NULL;
    enum status status = postgres_repair_run(repair, &damaged, DAMAGED);
    snprintf(name, 64, "%s",
             status == STATUS_OK && PQntuples(damaged) > 0 ? PQgetvalue(damaged, 0, 0) : "");
    PQclear(damaged);
    return status;
}

enum status postgres_heal_damaged_tables(const struct postgres_store *store, PGconn *connection,
                                         uint64_t now_ms, struct store_message *message) {
    struct postgres_repair repair = {
        .store = store, .connection = connection, .now_ms = now_ms, .error = message->text};
    char name[64];
    enum status status = find_damaged(&repair, name);
    if (status != STATUS_OK || !*name)
        return status;
    status = postgres_begin_in_term(store, connection, &store->term, message->text);
    if (status != STATUS_OK)
        return status;
    status = heal_all(&repair);
    if (status == STATUS_OK)
        return postgres_repair_run(&repair, NULL, "COMMIT");
    PQclear(postgres_exec(store, connection, "ROLLBACK"));
    return status;
}

enum status postgres_check_derived(struct store_session *base, struct store_message *message) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_ensure(session);
    if (status != STATUS_OK) {
        snprintf(message->text, sizeof(message->text), "%s", session->error);
        return status;
    }
    struct postgres_repair repair = {
        .store = session->store, .connection = session->connection, .error = message->text};
    char name[64];
    status = find_damaged(&repair, name);
    if (status != STATUS_OK || !*name)
        return status;
    snprintf(message->text, sizeof(message->text),
             "the derived table %s is missing or has other columns", name);
    return STATUS_INTERNAL_ERROR;
}

enum status postgres_heal(struct store_session *base, uint64_t now_ms) {
    struct postgres_session *session = postgres_session_of(base);
    session->tail.known = false;
    enum status status = postgres_write_open(session);
    if (status != STATUS_OK)
        return status;
    struct postgres_repair repair = {.store = session->store,
                                     .connection = session->connection,
                                     .now_ms = now_ms,
                                     .error = session->error};
    return postgres_write_end(session, heal_all(&repair));
}
