#include "store/sqlite/sqlite.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

/* seq or log_id of an entity's last event. Recent positions follow all others. */
#define HEAD_OF(column, entity_ref)                                                                \
    "coalesce((SELECT " column " + event_count - 1 FROM event_positions_recent WHERE entity_ref "  \
    "= " entity_ref " ORDER BY seq DESC LIMIT 1), (SELECT " column                                 \
    " + event_count - 1 FROM event_positions WHERE entity_ref = " entity_ref                       \
    " ORDER BY seq DESC LIMIT 1))"

/* Lists of columns with the alias of their table; the parameters of a list. */
#define OF_D(name, ...)      "d." #name
#define NEXT_OF_D(name, ...) ", d." #name
#define OF_E(name, ...)      "e." #name
#define NEXT_OF_E(name, ...) ", e." #name
#define OF_J(name, ...)      "j." #name
#define NEXT_OF_J(name, ...) ", j." #name
#define OF_N(name, ...)      "n." #name
#define NEXT_OF_N(name, ...) ", n." #name
#define PLACE(...)           "?"
#define NEXT_PLACE(...)      ", ?"
#define VALUES(LIST)         "(" STORE_NAMES(LIST) ") VALUES (" LIST(PLACE, NEXT_PLACE) ") "
/* The first columns of a source. */
#define SOURCE_2  "c1, c2"
#define SOURCE_3  SOURCE_2 ", c3"
#define SOURCE_7  SOURCE_3 ", c4, c5, c6, c7"
#define SOURCE_12 SOURCE_7 ", c8, c9, c10, c11, c12"
#define SOURCE_13 SOURCE_12 ", c13"
#define SOURCE_14 SOURCE_13 ", c14"

#define ENTITY_SELECT                                                                              \
    "SELECT " STORE_ENTITIES(OF_N, NEXT_OF_N) ", h.seq, h.chain_hash FROM entities n LEFT JOIN "   \
                                              "events h ON h.log_id = " HEAD_OF("log_id",          \
                                                                                "n.ref") " "

/* Left joins: a row without its partner is damage, which must be reported and not skipped. */
#define EVENT_COLUMNS STORE_EVENTS(OF_E, NEXT_OF_E)
#define ENTITY_NAME   "n.kind, n.id" STORE_ENTITY_OWNER(NEXT_OF_N, NEXT_OF_N) " "
#define EVENT_SELECT                                                                               \
    "SELECT " EVENT_COLUMNS ", " ENTITY_NAME "FROM events e "                                      \
    "LEFT JOIN entities n ON n.ref = e.entity_ref "

/* The log ids of entity ?1's events after seq ?2, as ranges. The search begins with the range that
 * may hold the next event. SQLite reads the two ordered parts without sorting, because the second
 * follows the first, and a join keeps the order. A LIMIT in here would make SQLite materialise the
 * rows, at half the speed. */
#define RANGES_IN(table)                                                                           \
    "SELECT seq, max(log_id, log_id + ?2 + 1 - seq) AS first, log_id + event_count - 1 AS last, "  \
    "seq + event_count - 1 AS last_seq FROM " table " WHERE entity_ref = ?1 AND seq >= "           \
    "coalesce((SELECT seq FROM " table                                                             \
    " WHERE entity_ref = ?1 AND seq <= ?2 + 1 ORDER BY seq DESC LIMIT 1), 0) "                     \
    "AND seq + event_count > ?2 + 1"
#define RANGES                                                                                     \
    RANGES_IN("event_positions") " UNION ALL " RANGES_IN("event_positions_recent") " ORDER BY seq"
#define EVENTS_OF_RANGES "(" RANGES ") p LEFT JOIN events e ON e.log_id BETWEEN p.first AND p.last "

/* The log id of entity ?1's event ?2. */
#define LOG_ID_IN(table)                                                                           \
    "(SELECT iif(seq + event_count > ?2, log_id + ?2 - seq, NULL) FROM " table                     \
    " WHERE entity_ref = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 1)"

#define TOPIC_SELECT                                                                               \
    "SELECT " STORE_NAMES(STORE_TOPIC_KEY) STORE_TOPIC_VALUES(                                     \
        STORE_NEXT_NAME,                                                                           \
        STORE_NEXT_NAME) ", CASE WHEN entity_ref IS NULL THEN head_seq "                           \
                         "ELSE " HEAD_OF("seq",                                                    \
                                         "t.entity_ref") " EN"                                     \
                                                         "D" STORE_TOPIC_REPAIRS(                  \
                                                             STORE_NEXT_NAME,                      \
                                                             STORE_NEXT_NAME) " FROM topics t "

/* The payload of a row. One that was cut gets its metadata back; a version that is missing leaves
 * the cut payload, which has another hash. */
#define WHOLE_PAYLOAD(row, ref)                                                                    \
    "CASE WHEN " row ".metadata_at IS NULL THEN " row ".payload ELSE substr(" row                  \
    ".payload, 1, " row ".metadata_at) || coalesce((SELECT v.metadata FROM summary_metadata v "    \
    "WHERE v.entity_ref = " ref " AND v.metadata_hash = " row                                      \
    ".metadata_hash), '') || substr(" row ".payload, " row ".metadata_at + 1) END"

#define DOCUMENT_PAYLOAD WHOLE_PAYLOAD("d", "d.entity_ref")
#define WALKED_PAYLOAD   WHOLE_PAYLOAD("d", "n.ref")
#define JOURNAL_PAYLOAD  WHOLE_PAYLOAD("j", "j.entity_ref")

/* An update leaves the indexes alone whose columns stay. */
#define DOCUMENT_PUT(kind, name, table, ...)                                                       \
    [STATEMENT_PUT_DOCUMENTS + kind] = "INSERT INTO " table " (" STORE_NAMES(                      \
        STORE_DOCUMENTS) ") SELECT " SOURCE_13                                                     \
                         " FROM source WHERE true ON CONFLICT (entity_ref) DO UPDATE "             \
                         "SET " STORE_UPDATES(STORE_DOCUMENT_VALUES)                               \
                             STORE_DOCUMENT_PAYLOAD(STORE_NEXT_UPDATE, STORE_NEXT_UPDATE)          \
                                 STORE_DOCUMENT_LISTED(STORE_NEXT_UPDATE, STORE_NEXT_UPDATE),
#define DOCUMENT_VALUES                                                                            \
    STORE_DOCUMENT_KEY(OF_D, NEXT_OF_D) STORE_DOCUMENT_VALUES(NEXT_OF_D, NEXT_OF_D) ", "
#define DOCUMENT_SELECT(kind, name, table, ...)                                                    \
    [STATEMENT_DOCUMENT + kind] =                                                                  \
        "SELECT " DOCUMENT_VALUES DOCUMENT_PAYLOAD " FROM " table " d WHERE d.entity_ref = ?",
#define DOCUMENT_WALK(kind, name, table, ...)                                                      \
    [STATEMENT_WALK_DOCUMENTS + kind] =                                                            \
        "SELECT " DOCUMENT_VALUES WALKED_PAYLOAD ", n.ref" STORE_ENTITY_OWNER(                     \
            NEXT_OF_N, NEXT_OF_N) " FROM entities n LEFT JOIN " table                              \
                                  " d ON d.entity_ref = n.ref WHERE n.kind = ? AND n.ref > ? "     \
                                  "ORDER BY n.ref LIMIT ?",
/* A drift for each entity with a row that is not as the writer left it. */
#define DOCUMENT_COMPARE(kind, name, table, ...)                                                   \
    [STATEMENT_COMPARE_SUMMARIES + kind] =                                                         \
        "INSERT INTO khala_projection_drifts (projection_name, entity_ref, reason, expected_seq, " \
        "actual_seq, seen_at) SELECT '" name "', s.c1, CASE WHEN c.last_runtime_seq > s.c2 THEN "  \
        "'checkpoint_ahead' WHEN c.last_runtime_seq IS NOT s.c2 THEN 'sequence_gap' ELSE "         \
        "'summary_hash_mismatch' END, s.c2, coalesce(c.last_runtime_seq, 0), s.c6 FROM source s "  \
        "LEFT JOIN checkpoints c ON c.entity_ref = s.c1 AND c.projection_name = '" name            \
        "' LEFT JOIN " table " d ON d.entity_ref = s.c1 WHERE c.last_runtime_seq IS NOT s.c2 OR "  \
        "c.summary_hash IS NOT s.c3 OR d.doc_version IS NOT s.c4 OR d.payload_hash IS NOT "        \
        "s.c5 " STORE_DOCUMENT_LACKS_METADATA "RETURNING " STORE_NAMES(STORE_DRIFTS) ", NULL",

static const char *const texts[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN] = "BEGIN IMMEDIATE",
    [STATEMENT_COMMIT] = "COMMIT",
    [STATEMENT_ROLLBACK] = "ROLLBACK",
    [STATEMENT_READ_BEGIN] = "BEGIN",
    [STATEMENT_READ_TOUCH] = "SELECT 1 FROM meta LIMIT 1",
    /* The names of an entity and of a topic never change, so an update leaves their indexes alone.
     */
    [STATEMENT_PUT_ENTITY] = "INSERT INTO entities " VALUES(
        STORE_ENTITIES) "ON CONFLICT (ref) DO UPDATE "
                        "SET " STORE_UPDATES(STORE_ENTITY_VALUES) ", metadata = "
                                                                  "coalesce(excluded."
                                                                  "metadata, "
                                                                  "metadata) "
                                                                  "WHERE kind = "
                                                                  "excluded.kind AND "
                                                                  "id = excluded.id",
    /* The transaction is rolled back after every failure. OR FAIL says that the statement need not
     * undo its own rows first, so that SQLite keeps no copy of the pages that it changes. */
    [STATEMENT_ADD_EVENTS] = "INSERT OR FAIL INTO events (" STORE_NAMES(
        STORE_EVENT_VALUES) ") SELECT " SOURCE_14 " FROM source",
    [STATEMENT_ADD_POSITIONS] =
        "INSERT OR FAIL INTO event_positions_recent (entity_ref, seq, log_id, event_count) "
        "SELECT c1, c2, c3, c4 FROM source",
    [STATEMENT_MOVE_POSITIONS] =
        "INSERT INTO event_positions (entity_ref, seq, log_id, event_count) SELECT entity_ref, "
        "seq, log_id, event_count FROM event_positions_recent",
    [STATEMENT_CLEAR_POSITIONS] = "DELETE FROM event_positions_recent",
    [STATEMENT_ADD_EVENT_IDS] = "INSERT OR FAIL INTO event_ids (" STORE_NAMES(
        STORE_EVENT_IDS) ") SELECT " SOURCE_2 " FROM source",
    [STATEMENT_ADD_KEY] = "INSERT INTO idempotency_keys " VALUES(STORE_IDEMPOTENCY_KEYS),
    /* oldest_seq never falls, even if the caller does not know of a prune yet. */
    [STATEMENT_PUT_TOPIC] = "INSERT INTO topics " VALUES(
        STORE_TOPICS_WRITTEN) "ON CONFLICT (ref) DO UPDATE SET "
                              "entity_ref = excluded.entity_ref, oldest_seq = max(oldest_seq, "
                              "excluded.oldest_seq), "
                              "head_seq = excluded.head_seq "
                              "WHERE topic = excluded.topic AND stream_id = excluded.stream_id",
    DOCUMENT_KINDS(DOCUMENT_COMPARE) DOCUMENT_KINDS(DOCUMENT_PUT)[STATEMENT_PUT_CHECKPOINTS] =
        "INSERT OR REPLACE INTO checkpoints (" STORE_NAMES(STORE_CHECKPOINTS) ") SELECT " SOURCE_7
                                                                              " FROM source",
    [STATEMENT_ADD_JOURNAL] = "INSERT OR FAIL INTO journal (" STORE_NAMES(
        STORE_JOURNAL) ") SELECT " SOURCE_12 " FROM source",
    [STATEMENT_PUT_METADATA] = "INSERT INTO summary_metadata (" STORE_NAMES(
        STORE_SUMMARY_METADATA) ") SELECT " SOURCE_3
                                " FROM source WHERE true ON CONFLICT (entity_ref, metadata_hash) "
                                "DO UPDATE SET metadata = "
                                "excluded.metadata WHERE metadata <> excluded.metadata",
    [STATEMENT_ADD_DRIFT] = "INSERT INTO khala_projection_drifts " VALUES(STORE_DRIFT_VALUES),
    [STATEMENT_DROP_OLD_DRIFTS] = "DELETE FROM khala_projection_drifts WHERE id <= "
                                  "(SELECT max(id) FROM khala_projection_drifts) - ?",
    [STATEMENT_SET_UNPROJECTED] =
        "INSERT INTO meta (name, value) VALUES ('unprojected_from', ?) ON CONFLICT (name) DO "
        "UPDATE SET value = min(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
    [STATEMENT_CLEAR_UNPROJECTED] = "DELETE FROM meta WHERE name = 'unprojected_from'",
    [STATEMENT_PUT_USAGE] = "UPDATE owner_usage SET (" STORE_NAMES(
        STORE_USAGE_VALUES) ") = (?2, ?3, ?4, ?5, ?6, ?7) WHERE owner = ?1",
    [STATEMENT_ADD_USAGE] = "INSERT INTO owner_usage " VALUES(STORE_USAGES),
    [STATEMENT_LOAD_USAGE] =
        "SELECT " STORE_NAMES(STORE_USAGES) " FROM owner_usage WHERE owner = ?",
    [STATEMENT_WALK_USAGES] = "SELECT " STORE_NAMES(
        STORE_USAGES) " FROM owner_usage WHERE owner > ? ORDER BY owner LIMIT ?",
    [STATEMENT_CHECK_USAGES] = STORE_CHECK_USAGES "?",
    /* Only the write session makes serials. */
    [STATEMENT_PUT_QUOTA] = "INSERT INTO owner_quotas (" STORE_NAMES(
        STORE_QUOTAS) ") SELECT ?, ?, ?, "
                      "coalesce(max(serial), 0) + 1 FROM owner_quotas WHERE true ON CONFLICT "
                      "(owner, quota) DO "
                      "UPDATE SET value = excluded.value, serial = excluded.serial",
    [STATEMENT_WALK_QUOTAS] =
        "SELECT " STORE_NAMES(STORE_QUOTAS) " FROM owner_quotas WHERE serial > ? ORDER BY serial",
    [STATEMENT_PUT_OPERATOR_KEY] =
        "INSERT OR REPLACE INTO operator_keys " VALUES(STORE_OPERATOR_KEYS),
    [STATEMENT_DROP_OPERATOR_KEY] = "DELETE FROM operator_keys WHERE name = ?",
    [STATEMENT_WALK_OPERATOR_KEYS] =
        "SELECT " STORE_NAMES(STORE_OPERATOR_KEYS) " FROM operator_keys ORDER BY name",
    [STATEMENT_PUT_REVOCATION] = "INSERT INTO sync_revocations " VALUES(
        STORE_REVOCATIONS) "ON CONFLICT (kind, id) DO UPDATE SET "
                           "expires_at = max(expires_at, excluded.expires_at)",
    [STATEMENT_DROP_REVOCATIONS] =
        "DELETE FROM sync_revocations WHERE (kind, id) IN (SELECT kind, id FROM sync_revocations "
        "WHERE expires_at <= ? LIMIT 1000)",
    [STATEMENT_ADD_SINGLE_USE] =
        "INSERT INTO sync_single_uses " VALUES(STORE_SINGLE_USES) "ON CONFLICT DO NOTHING",
    [STATEMENT_DROP_SINGLE_USES] =
        "DELETE FROM sync_single_uses WHERE (kind, id) IN (SELECT kind, id FROM sync_single_uses "
        "WHERE expires_at <= ? LIMIT 1000)",
    [STATEMENT_PRUNE_JOURNAL] = "DELETE FROM journal WHERE topic_ref = ? AND seq < ?",
    /* Before the rows below a seq are removed: versions that only they have, of their entities. */
    [STATEMENT_PRUNE_METADATA] =
        "DELETE FROM summary_metadata AS v WHERE v.entity_ref IN (SELECT j.entity_ref FROM journal "
        "j WHERE j.topic_ref = ?1 AND j.seq < ?2 AND EXISTS (SELECT 1 FROM summary_metadata)) AND "
        "NOT EXISTS (SELECT 1 FROM journal j WHERE j.entity_ref = v.entity_ref AND j.metadata_hash "
        "= v.metadata_hash AND NOT (j.topic_ref = ?1 AND j.seq < ?2))" STORE_NO_DOCUMENT_HAS,
    [STATEMENT_RAISE_OLDEST] = "UPDATE topics SET oldest_seq = ? WHERE ref = ?",
    [STATEMENT_STATE] = "SELECT (SELECT value FROM meta WHERE name = 'epoch'), "
                        "(SELECT max(log_id) FROM events), (SELECT max(ref) FROM entities), "
                        "(SELECT max(ref) FROM topics), "
                        "(SELECT cursor FROM events ORDER BY log_id DESC LIMIT 1), "
                        "(SELECT max(event_id) FROM event_ids), mark, unmarked_max, "
                        "(SELECT CAST(value AS INTEGER) FROM meta WHERE name = "
                        "'unprojected_from'), (SELECT min(CAST(value AS INTEGER)) FROM meta WHERE "
                        "name IN ('fork_log_id', 'import_log_id')) FROM minted_ids",
    [STATEMENT_TAIL] = "SELECT log_id, cursor FROM events ORDER BY log_id DESC LIMIT 1",
    [STATEMENT_CURSOR_AT] = "SELECT cursor, event_id IS NULL FROM events WHERE log_id = ?",
    [STATEMENT_HEAD_SEQ] = "SELECT " HEAD_OF("seq", "?1"),
    [STATEMENT_PAGES] =
        "SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count",
    [STATEMENT_COUNTS] = "SELECT (SELECT max(event_id) FROM event_ids), "
                         "(SELECT count(*) FROM event_positions_recent)",
    [STATEMENT_LOG_END] = "SELECT (SELECT max(log_id) FROM events), "
                          "(SELECT max(log_id + event_count - 1) FROM event_positions_recent)",
    [STATEMENT_EVENT_ID] = "SELECT log_id FROM event_ids WHERE event_id = ?",
    [STATEMENT_KEY] = "SELECT log_id FROM idempotency_keys WHERE entity_ref = ? AND key = ?",
    [STATEMENT_FIRST_EVENT] =
        "SELECT coalesce("
        "(SELECT log_id FROM event_positions WHERE entity_ref = ?1 AND seq = 1), "
        "(SELECT log_id FROM event_positions_recent WHERE entity_ref = ?1 AND seq = 1))",
    [STATEMENT_STREAM_TAKEN] = "SELECT 1 FROM topics WHERE stream_id = ?",
    [STATEMENT_ENTITY_BY_ID] = ENTITY_SELECT "WHERE n.kind = ? AND n.id = ?",
    [STATEMENT_ENTITY_BY_REF] = ENTITY_SELECT "WHERE n.ref = ?",
    [STATEMENT_EVENT] = EVENT_SELECT "WHERE e.log_id = ?",
    [STATEMENT_TOPIC_BY_REF] = TOPIC_SELECT "WHERE ref = ?",
    [STATEMENT_TOPIC_BY_NAME] = TOPIC_SELECT "WHERE topic = ?",
    [STATEMENT_TOPIC_BY_STREAM] = TOPIC_SELECT "WHERE stream_id = ?",
    /* length() of a text counts characters, and of a blob bytes. */
    [STATEMENT_MEASURE_EVENTS] =
        "SELECT count(*), sum(bytes) FROM (SELECT length(CAST(e.payload AS BLOB)) AS bytes "
        "FROM " EVENTS_OF_RANGES "LIMIT ?3)",
    [STATEMENT_MEASURE_JOURNAL] =
        "SELECT count(*), sum(length(CAST(coalesce(j.payload, (SELECT e.payload FROM events e "
        "WHERE e.log_id = j.log_id)) AS BLOB)) + CASE WHEN j.metadata_hash IS NULL THEN 0 ELSE "
        "coalesce((SELECT length(CAST(v.metadata AS BLOB)) FROM summary_metadata v WHERE "
        "v.entity_ref = j.entity_ref AND v.metadata_hash = j.metadata_hash), 0) END) FROM (SELECT "
        "log_id, entity_ref, payload, metadata_hash FROM journal WHERE topic_ref = ?1 AND seq > ?2 "
        "ORDER BY seq LIMIT ?3) j",
    [STATEMENT_EVENT_TIME] = "SELECT cursor FROM events WHERE log_id = coalesce(" LOG_ID_IN(
        "event_positions") ", " LOG_ID_IN("event_positions_recent") ")",
    [STATEMENT_EVENT_TIMES] = "SELECT e.seq, e.cursor, e.recorded_at FROM " EVENTS_OF_RANGES,
    [STATEMENT_ROW_TIMES] = "SELECT seq, published_at FROM journal "
                            "WHERE topic_ref = ? AND seq >= ? ORDER BY seq",
    DOCUMENT_KINDS(DOCUMENT_SELECT)[STATEMENT_CHECKPOINT] = "SELECT " STORE_NAMES(
        STORE_CHECKPOINTS) " FROM checkpoints WHERE entity_ref = ? AND projection_name = ?",
    [STATEMENT_WALK_ENTITY_EVENTS] =
        "SELECT " EVENT_COLUMNS ", p.last_seq FROM " EVENTS_OF_RANGES "LIMIT ?3",
    /* Each column that is not read saves a part of the walk. */
    [STATEMENT_WALK_ENTITY_FRAMES] =
        "SELECT 1 FROM " EVENTS_OF_RANGES "WHERE take_row(e.log_id, e.seq, e.cursor, "
        "e.event_id, e.type, e.owner_user_id, e.owner_guest_scope, e.org_id, e.payload_hash, "
        "e.payload, e.recorded_at, p.last_seq)",
    [STATEMENT_ENTITY_NAME] = "SELECT " ENTITY_NAME "FROM entities n WHERE n.ref = ?",
    [STATEMENT_WALK_LOG] = EVENT_SELECT "WHERE e.log_id > ? ORDER BY e.log_id LIMIT ?",
    [STATEMENT_WALK_ENTITIES] = ENTITY_SELECT "WHERE n.kind = ? AND n.ref > ? ORDER BY n.ref "
                                              "LIMIT ?",
    [STATEMENT_WALK_TOPICS] = TOPIC_SELECT "WHERE ref > ? ORDER BY ref LIMIT ?",
    [STATEMENT_LIST_ENTITIES] = ENTITY_SELECT "WHERE n.kind = ? AND n.id > ? ORDER BY n.id LIMIT ?",
    [STATEMENT_LIST_TOPICS] =
        TOPIC_SELECT "WHERE topic >= ?1 AND topic > ?2 ORDER BY topic LIMIT ?3",
    DOCUMENT_KINDS(DOCUMENT_WALK)[STATEMENT_WALK_JOURNAL] = "SELECT " STORE_JOURNAL_VALUES(
        OF_J, NEXT_OF_J) ", " JOURNAL_PAYLOAD ", j.fields_before, " EVENT_COLUMNS ", " ENTITY_NAME
                         "FROM journal j "
                         "LEFT JOIN events e ON e.log_id = j.log_id LEFT JOIN entities n ON n.ref "
                         "= e.entity_ref "
                         "WHERE j.topic_ref = ? AND j.seq > ? ORDER BY j.seq LIMIT ?",
    [STATEMENT_WALK_OWNERS] = "SELECT j.seq, n.ref" STORE_ENTITY_OWNER(
        NEXT_OF_N, NEXT_OF_N) " FROM journal j LEFT JOIN entities n ON n.ref = j.entity_ref "
                              "WHERE j.topic_ref = ? AND j.seq > ? ORDER BY j.seq LIMIT ?",
    [STATEMENT_WALK_DRIFTS] = "SELECT " STORE_DRIFTS(
        OF_D, NEXT_OF_D) ", n.id FROM khala_projection_drifts d LEFT JOIN "
                         "entities n ON n.ref = d.entity_ref ORDER BY d.id DESC LIMIT ?",
    [STATEMENT_WALK_REVOCATIONS] = "SELECT " STORE_NAMES(
        STORE_REVOCATIONS) " FROM sync_revocations WHERE expires_at > ? ORDER BY "
                           "kind, id",
    [STATEMENT_PROPERTY] = "SELECT value FROM meta WHERE name = ?",
    [STATEMENT_DROP_FORKS] = "DELETE FROM meta WHERE name LIKE '" STORE_FORK_PREFIX "%'",
    [STATEMENT_PUT_PROPERTY] = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO "
                               "UPDATE SET value = excluded.value",
    [STATEMENT_REMOVE_PROPERTY] = "DELETE FROM meta WHERE name = ?",
};

/* errno of SQLite's last access to its write-ahead log, which commits write; 0: none. SQLite does
 * not report it in the usual way when a commit fails. */
static int system_error(sqlite3 *database, int code) {
    sqlite3_file *log = NULL;
    int error = sqlite3_system_errno(database);
    if (error != 0 || (code & 0xff) != SQLITE_IOERR)
        return error;
    sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (log != NULL && log->pMethods != NULL)
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
    return error;
}

/* SQLite has one code for a full disk, the system has several. */
static enum reason reason_of(int code, int error) {
    if ((code & 0xff) == SQLITE_FULL || error == ENOSPC || error == EDQUOT || error == EFBIG)
        return REASON_STORE_FULL;
    if ((code & 0xff) == SQLITE_READONLY || error == EROFS)
        return REASON_STORE_READ_ONLY;
    return REASON_STORE_FAILED;
}

bool sqlite_lacks_space(sqlite3 *database, int code) {
    return code != SQLITE_OK && reason_of(code, system_error(database, code)) == REASON_STORE_FULL;
}

static enum status sqlite_fault(struct sqlite_session *session) {
    int code = sqlite3_extended_errcode(session->database);
    int error = system_error(session->database, code);
    enum status status = sqlite_status(code);
    const char *advice =
        status == STATUS_INTERNAL_ERROR ? "; the store is damaged: restore a backup" : "";
    snprintf(session->error, sizeof(session->error), "%s: %s%s%s (SQLite %d)%s",
             session->store->path, sqlite3_errmsg(session->database), error ? ": " : "",
             error ? strerror(error) : "", code, advice);
    session->reason = reason_of(code, error);
    session->tail.known = false;
    return status;
}

enum status sqlite_damaged(struct sqlite_session *session, const char *row_name, uint64_t number) {
    snprintf(session->error, sizeof(session->error),
             "%s: %s %llu is damaged; the store is damaged: restore a backup", session->store->path,
             row_name, (unsigned long long)number);
    session->reason = REASON_STORE_FAILED;
    return STATUS_INTERNAL_ERROR;
}

enum status sqlite_statement(struct sqlite_session *session, enum statement_id id,
                             sqlite3_stmt **statement) {
    sqlite3_stmt **kept = &session->statements[id];
    if (*kept == NULL && sqlite3_prepare_v3(session->database, texts[id], -1,
                                            SQLITE_PREPARE_PERSISTENT, kept, NULL) != SQLITE_OK)
        return sqlite_fault(session);
    assert(!sqlite3_stmt_busy(*kept));
    *statement = *kept;
    return STATUS_OK;
}

enum status sqlite_run(struct sqlite_session *session, sqlite3_stmt *statement) {
    int code = sqlite3_step(statement);
    enum status status = code == SQLITE_DONE ? STATUS_OK : sqlite_fault(session);
    assert(code != SQLITE_ROW);
    sqlite3_reset(statement);
    return status;
}

enum status sqlite_execute(struct sqlite_session *session, enum statement_id id) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, id, &statement);
    return status == STATUS_OK ? sqlite_run(session, statement) : status;
}

enum status sqlite_next(struct sqlite_session *session, sqlite3_stmt *statement) {
    if (store_session_is_cancelled(&session->base))
        return STATUS_STORE_UNAVAILABLE;
    switch (sqlite3_step(statement)) {
    case SQLITE_ROW:
        store_session_count_row(&session->base);
        return STATUS_OK;
    case SQLITE_DONE:
        return STATUS_NOT_FOUND;
    default:
        return sqlite_fault(session);
    }
}

/* ---- binding and reading: a failure here is a bug -------------------------------------------- */

static void check_bound(int code) {
    assert(code == SQLITE_OK);
    (void)code;
}

void sqlite_bind_number(sqlite3_stmt *statement, int index, uint64_t number) {
    assert(number <= INT64_MAX);
    check_bound(sqlite3_bind_int64(statement, index, (sqlite3_int64)number));
}

void sqlite_bind_bound(sqlite3_stmt *statement, int index, uint64_t number) {
    sqlite_bind_number(statement, index, number < INT64_MAX ? number : INT64_MAX);
}

void sqlite_bind_optional(sqlite3_stmt *statement, int index, uint64_t number) {
    if (number == 0)
        check_bound(sqlite3_bind_null(statement, index));
    else
        sqlite_bind_number(statement, index, number);
}

void sqlite_bind_text(sqlite3_stmt *statement, int index, struct slice text) {
    /* A NULL pointer binds NULL. */
    check_bound(
        sqlite3_bind_text64(statement, index, text.data, text.size, SQLITE_STATIC, SQLITE_UTF8));
}

void sqlite_bind_bytes(sqlite3_stmt *statement, int index, const void *bytes, size_t size) {
    check_bound(sqlite3_bind_blob64(statement, index, bytes, size, SQLITE_STATIC));
}

/* One call for the value, because each call per column costs time. Reading an unprotected value is
 * safe, because the connections have no mutex. As a blob, because SQLite copies a text in order to
 * terminate it with NUL. */
struct slice sqlite_value_text(sqlite3_value *value) {
    if (sqlite3_value_type(value) == SQLITE_NULL)
        return (struct slice){NULL, 0};
    const char *data = sqlite3_value_blob(value);
    return (struct slice){data ? data : "", data ? (size_t)sqlite3_value_bytes(value) : 0};
}

struct slice sqlite_text(sqlite3_stmt *statement, int column) {
    return sqlite_value_text(sqlite3_column_value(statement, column));
}

bool sqlite_value_bytes(sqlite3_value *value, void *bytes, size_t size) {
    const void *data = sqlite3_value_blob(value);
    if (data == NULL || (size_t)sqlite3_value_bytes(value) != size)
        return false;
    memcpy(bytes, data, size);
    return true;
}

bool sqlite_bytes(sqlite3_stmt *statement, int column, void *bytes, size_t size) {
    return sqlite_value_bytes(sqlite3_column_value(statement, column), bytes, size);
}
