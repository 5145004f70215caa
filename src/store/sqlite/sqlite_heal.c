/* Repair of the derived tables. All of them follow from the log, so a table that is missing or has
 * other columns is rebuilt, empty. A view that is missing or different is rebuilt too. The
 * schema they should have is read from a database in memory, to which the same migrations were
 * applied. */
#include "store/sqlite/sqlite_heal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "store/sqlite/sqlite_migrations.h"

#define DOCUMENT_TABLE(kind, name, table, ...)      table,
#define DOCUMENT_VIEW(kind, name, table, view, ...) view,
/* Drifts come first, because the repair of the others is recorded there. The views come last. */
static const char *const derived_tables[] = {
    "khala_projection_drifts",
    SQLITE_TABLE_TOPICS,
    SQLITE_TABLE_JOURNAL,
    "checkpoints",
    "summary_metadata",
    DOCUMENT_KINDS(DOCUMENT_TABLE) DOCUMENT_KINDS(DOCUMENT_VIEW) "sync_topic_sequences",
    "sync_stream_events",
    "khala_projection_checkpoints"};
#define TABLE_COUNT (sizeof(derived_tables) / sizeof(derived_tables[0]))

/* ---- tools ---------------------------------------------------------------------------------- */

int sqlite_heal_run(const struct heal *heal, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = sqlite3_vmprintf(format, arguments);
    va_end(arguments);
    int code = text ? sqlite3_exec(heal->database, text, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(text);
    return code;
}

int sqlite_heal_note(struct heal *heal, const struct heal_note *note) {
    heal->is_changed = true;
    log_event(LOG_WARN, "store.derived_healed", log_str("reason", reason_code(note->reason)),
              log_slice("subject", note->subject), log_int("expected_seq", note->expected_seq),
              log_int("actual_seq", note->actual_seq));
    metrics_add(METRIC_KHALA_PROJECTION_DRIFT, METRIC_LABELS(note->reason), 1);
    return sqlite_heal_run(
        heal,
        "INSERT INTO khala_projection_drifts (projection_name, entity_ref, reason, expected_seq, "
        "actual_seq, seen_at, subject) VALUES ('', 0, %Q, %lld, %lld, %llu, '%.*q')",
        reason_code(note->reason), note->expected_seq, note->actual_seq, heal->now_ms,
        (int)note->subject.size, note->subject.data);
}

int sqlite_heal_each(struct heal *heal, const char *query,
                     int (*visit)(struct heal *heal, sqlite3_stmt *row)) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(heal->database, query, -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    while (code == SQLITE_ROW) {
        code = visit(heal, statement);
        if (code == SQLITE_OK)
            code = sqlite3_step(statement);
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int sqlite_take_journal_epoch(struct heal *heal, sqlite3_int64 *epoch) {
    sqlite3_stmt *statement = NULL;
    int code =
        sqlite_heal_run(heal, "INSERT INTO meta (name, value) VALUES ('journal_epoch', '1') ON "
                              "CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1");
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(heal->database,
                                  "SELECT CAST(value AS INTEGER) FROM meta WHERE name = "
                                  "'journal_epoch'",
                                  -1, &statement, NULL);
    if (code == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        *epoch = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return code;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int open_reference(struct heal *heal) {
    int code = sqlite3_open(":memory:", &heal->reference);
    for (size_t i = 0; code == SQLITE_OK && i < heal->version; i++)
        code = sqlite3_exec(heal->reference, sqlite_migrations[i].sql, NULL, NULL, NULL);
    return code;
}

/* One text that a query with one parameter answers; NULL is an empty text. */
static int ask(sqlite3 *database, const char *query, const char *parameter, struct buffer *answer) {
    sqlite3_stmt *statement = NULL;
    buffer_clear(answer);
    int code = sqlite3_prepare_v2(database, query, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_bind_text(statement, 1, parameter, -1, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        buffer_append_slice(answer, slice_of(text ? text : ""));
        buffer_append_byte(answer, '\0');
        code = buffer_status(answer) == STATUS_OK ? SQLITE_OK : SQLITE_NOMEM;
    }
    sqlite3_finalize(statement);
    return code;
}

/* The columns and the indexes of a table, or the text of a view: its columns cannot be read while a
 * column of its tables has another name. */
#define SHAPE                                                                                      \
    "SELECT (SELECT iif(type = 'view', sql, (SELECT group_concat(name) FROM (SELECT name FROM "    \
    "pragma_table_info(?1) ORDER BY cid)) || ';' || coalesce((SELECT group_concat(name) FROM "     \
    "(SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?1 AND sql IS NOT NULL "  \
    "ORDER BY name)), '')) FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN "         \
    "('table', 'view'))"
#define DEFINITION                                                                                 \
    "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE tbl_name = ?1 AND "   \
    "sql IS NOT NULL AND type IN ('table', 'index', 'view') ORDER BY type DESC)"
/* Removes what has the name, be it a table or a view. */
#define REMOVAL                                                                                    \
    "SELECT (SELECT 'DROP ' || type || ' ' || name FROM sqlite_schema WHERE name = ?1 "            \
    "COLLATE NOCASE AND type IN ('table', 'view'))"

static int is_table_sound(const struct heal *heal, const char *table, bool *is_sound) {
    struct buffer found, wanted;
    buffer_init(&found, SQLITE_HEAL_TEXT_BYTES_MAX);
    buffer_init(&wanted, SQLITE_HEAL_TEXT_BYTES_MAX);
    int code = ask(heal->database, SHAPE, table, &found);
    if (code == SQLITE_OK)
        code = ask(heal->reference, SHAPE, table, &wanted);
    *is_sound = code == SQLITE_OK && slice_equal(buffer_slice(&found), buffer_slice(&wanted));
    buffer_release(&found);
    buffer_release(&wanted);
    return code;
}

static int rebuild_table(struct heal *heal, const char *table) {
    struct buffer removal, definition;
    buffer_init(&removal, SQLITE_HEAL_TEXT_BYTES_MAX);
    buffer_init(&definition, SQLITE_HEAL_TEXT_BYTES_MAX);
    int code = ask(heal->database, REMOVAL, table, &removal);
    if (code == SQLITE_OK)
        code = ask(heal->reference, DEFINITION, table, &definition);
    if (code == SQLITE_OK)
        code = sqlite_heal_run(heal, "%s; %s", removal.data, definition.data);
    buffer_release(&removal);
    buffer_release(&definition);
    if (code != SQLITE_OK)
        return code;
    return sqlite_heal_note(
        heal, &(struct heal_note){.reason = REASON_TABLE_REBUILT, .subject = slice_of(table)});
}

static int heal_tables(struct heal *heal) {
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < TABLE_COUNT; i++) {
        bool is_sound = true;
        code = is_table_sound(heal, derived_tables[i], &is_sound);
        if (code == SQLITE_OK && !is_sound)
            code = rebuild_table(heal, derived_tables[i]);
        if (!is_sound && strcmp(derived_tables[i], SQLITE_TABLE_TOPICS) == 0)
            heal->are_topics_made = true;
    }
    return code;
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* Rows beyond the head. Either they are strays, or the counter was set back. The counter jumps over
 * them, so that no seq is used twice, and the topic's frames before it are given up. */
static int skip_strays(struct heal *heal, sqlite3_stmt *row) {
    sqlite3_int64 ref = sqlite3_column_int64(row, 0);
    sqlite3_int64 head = sqlite3_column_int64(row, 2);
    sqlite3_int64 last = sqlite3_column_int64(row, 3);
    const struct heal_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                   .subject = sqlite_text(row, 1),
                                   .expected_seq = head,
                                   .actual_seq = last};
    int code = sqlite_heal_note(heal, &note);
    if (last > (sqlite3_int64)STORE_SEQ_MAX)
        last = head;
    if (code == SQLITE_OK)
        code = sqlite_heal_run(heal, "DELETE FROM journal WHERE topic_ref = %lld", ref);
    if (code != SQLITE_OK)
        return code;
    return sqlite_heal_run(heal,
                           "UPDATE topics SET head_seq = %lld, oldest_seq = %lld, "
                           "damaged_seq = %lld WHERE ref = %lld",
                           last, last + 1, last, ref);
}

static int drop_unknown(struct heal *heal, sqlite3_stmt *row) {
    char subject[64];
    sqlite3_int64 ref = sqlite3_column_int64(row, 0);
    snprintf(subject, sizeof(subject), "topic_ref %lld", (long long)ref);
    const struct heal_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                   .subject = slice_of(subject),
                                   .actual_seq = sqlite3_column_int64(row, 1)};
    int code = sqlite_heal_note(heal, &note);
    return code == SQLITE_OK
               ? sqlite_heal_run(heal, "DELETE FROM journal WHERE topic_ref = %lld", ref)
               : code;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int heal_all(struct heal *heal) {
    int code = open_reference(heal);
    if (code == SQLITE_OK)
        code = heal_tables(heal);
    if (code == SQLITE_OK)
        code = sqlite_heal_topics(heal);
    /* Materialised, because the visits change the tables that are read. */
    if (code == SQLITE_OK)
        code = sqlite_heal_each(
            heal,
            "WITH ends AS MATERIALIZED (SELECT ref, topic, head_seq, (SELECT max(seq) FROM "
            "journal WHERE topic_ref = ref) AS last FROM topics WHERE "
            "entity_ref IS NULL) SELECT ref, topic, head_seq, last FROM ends WHERE last > head_seq "
            "ORDER BY ref",
            skip_strays);
    if (code == SQLITE_OK)
        code = sqlite_heal_each(
            heal,
            SQLITE_JOURNAL_REFS
            "SELECT r, (SELECT max(seq) FROM journal WHERE topic_ref = r) FROM refs "
            "WHERE r IS NOT NULL AND r NOT IN (SELECT ref FROM topics WHERE "
            "entity_ref IS NULL) ORDER BY r",
            drop_unknown);
    /* A journal that lost its rows with its table. */
    if (code == SQLITE_OK)
        code = sqlite_heal_run(
            heal,
            "UPDATE topics SET oldest_seq = head_seq + 1, damaged_seq = head_seq "
            "WHERE entity_ref IS NULL AND oldest_seq <= head_seq AND NOT EXISTS (SELECT 1 FROM "
            "journal WHERE topic_ref = ref)");
    /* Documents are compared with the log from now on. All events so far had their frames, unless
     * an earlier mark says otherwise. */
    if (code == SQLITE_OK && heal->is_changed)
        code =
            sqlite_heal_run(heal, "INSERT OR IGNORE INTO meta (name, value) SELECT "
                                  "'unprojected_from', coalesce(max(log_id), 0) + 1 FROM events");
    sqlite3_close(heal->reference);
    return code;
}

/* Not sqlite_begin: that reads the end of the log together with a derived table. */
static int heal_in_transaction(struct heal *heal) {
    int code = sqlite3_exec(heal->database, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        code = heal_all(heal);
    if (code == SQLITE_OK)
        code = sqlite3_exec(heal->database, "COMMIT", NULL, NULL, NULL);
    if (!sqlite3_get_autocommit(heal->database))
        sqlite3_exec(heal->database, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

/* *table: the first damaged one; NULL: none. */
static int find_damaged(sqlite3 *database, const char **table) {
    struct heal heal = {.database = database, .version = STORE_SCHEMA_VERSION};
    bool is_sound = true;
    *table = NULL;
    int code = open_reference(&heal);
    for (size_t i = 0; code == SQLITE_OK && is_sound && i < TABLE_COUNT; i++) {
        code = is_table_sound(&heal, derived_tables[i], &is_sound);
        if (!is_sound)
            *table = derived_tables[i];
    }
    sqlite3_close(heal.reference);
    return code;
}

int sqlite_heal_before(sqlite3 *database, size_t version, uint64_t now_ms) {
    struct heal heal = {.database = database, .version = version, .now_ms = now_ms};
    return version < SQLITE_HEAL_VERSION_MIN ? SQLITE_OK : heal_all(&heal);
}

int sqlite_heal_damaged_tables(sqlite3 *database, uint64_t now_ms) {
    struct heal heal = {.database = database, .version = STORE_SCHEMA_VERSION, .now_ms = now_ms};
    const char *table = NULL;
    int code = find_damaged(database, &table);
    return code == SQLITE_OK && table ? heal_in_transaction(&heal) : code;
}

enum status sqlite_check_derived(struct store_session *base, struct store_message *message) {
    struct sqlite_session *session = sqlite_session_of(base);
    const char *table = NULL;
    int code = find_damaged(session->database, &table);
    if (code != SQLITE_OK)
        return sqlite_connect_fault(session->store->path, session->database, code, message->text);
    if (!table)
        return STATUS_OK;
    snprintf(message->text, sizeof(message->text),
             "the derived table %s is missing or has other columns", table);
    return STATUS_INTERNAL_ERROR;
}

enum status sqlite_heal(struct store_session *base, uint64_t now_ms) {
    struct sqlite_session *session = sqlite_session_of(base);
    struct heal heal = {
        .database = session->database, .version = STORE_SCHEMA_VERSION, .now_ms = now_ms};
    enum status status = sqlite_session_check_location(session);
    if (status != STATUS_OK)
        return status;
    session->tail.known = false;
    session->reason = REASON_STORE_FAILED;
    int code = heal_in_transaction(&heal);
    return code == SQLITE_OK ? STATUS_OK
                             : sqlite_connect_fault(session->store->path, session->database, code,
                                                    session->error);
}
