/* Repair of journals: altered rows, the floor behind damage, and new journals made from the
 * documents and the log. Each function is one transaction, so that a crash leaves the old journal
 * or the new one. */
#include "store/sqlite/sqlite_heal.h"

#define HEAD_LOG_ID                                                                                \
    "coalesce((SELECT log_id + event_count - 1 FROM event_positions_recent WHERE entity_ref = "    \
    "d.entity_ref ORDER BY seq DESC LIMIT 1), (SELECT log_id + event_count - 1 FROM "              \
    "event_positions WHERE entity_ref = d.entity_ref ORDER BY seq DESC LIMIT 1))"
#define INSERT_ROWS                                                                                \
    "INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, "                       \
    "published_at, payload_hash, payload, first_entity_seq, metadata_at, metadata_hash, "          \
    "fields_before) "
/* The record (topic/where.h) of the first frame of a document in the new epoch. */
#define FIRST_FRAME "'{\"was\":null}'"

/* The transaction around one repair. */
static enum status run(struct store_session *base, struct heal *heal,
                       int (*work)(struct heal *heal, void *user), void *user) {
    struct sqlite_session *session = sqlite_session_of(base);
    heal->database = session->database;
    enum status status = sqlite_begin(session);
    if (status == STATUS_OK) {
        int code = work(heal, user);
        if (code != SQLITE_OK)
            status =
                sqlite_connect_fault(session->store->path, session->database, code, session->error);
    }
    return sqlite_end(session, status);
}

/* ---- the floor ------------------------------------------------------------------------------- */

/* The topic, and the last seq that is missing between its floor and its head. */
#define LAST_HOLE                                                                                  \
    "SELECT ref, topic, head_seq, (SELECT max(seq - 1) FROM (SELECT seq, lag(seq, 1, "             \
    "t.oldest_seq - 1) OVER (ORDER BY seq) AS before FROM journal WHERE topic_ref = "              \
    "t.ref AND seq BETWEEN t.oldest_seq AND t.head_seq) WHERE seq <> before + 1), (SELECT "        \
    "max(seq) FROM journal WHERE topic_ref = t.ref AND seq <= t.head_seq), oldest_seq "            \
    "FROM topics t WHERE entity_ref IS NULL AND topic = ?"

int sqlite_journal_raise_floor(struct heal *heal, struct slice topic, uint64_t lost_seq) {
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(heal->database, LAST_HOLE, -1, &row, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite_bind_text(row, 1, topic);
    code = sqlite3_step(row);
    if (code != SQLITE_ROW) {
        sqlite3_finalize(row);
        return code == SQLITE_DONE ? SQLITE_OK : code;
    }
    code = SQLITE_OK;
    sqlite3_int64 ref = sqlite3_column_int64(row, 0);
    sqlite3_int64 head = sqlite3_column_int64(row, 2);
    sqlite3_int64 last = sqlite3_column_int64(row, 3);
    sqlite3_int64 oldest = sqlite3_column_int64(row, 5);
    sqlite3_int64 lost = lost_seq < INT64_MAX ? (sqlite3_int64)lost_seq : INT64_MAX;
    /* Rows at the end are missing. */
    if (oldest <= head && sqlite3_column_int64(row, 4) < head)
        last = head;
    if (lost >= oldest && lost <= head && lost > last)
        last = lost;
    if (last >= oldest) {
        const struct heal_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                       .subject = topic,
                                       .expected_seq = oldest,
                                       .actual_seq = last};
        code = sqlite_heal_note(heal, &note);
        if (code == SQLITE_OK)
            code = sqlite_heal_run(
                heal, "DELETE FROM journal WHERE topic_ref = %lld AND seq <= %lld", ref, last);
        if (code == SQLITE_OK)
            code = sqlite_heal_run(
                heal, "UPDATE topics SET oldest_seq = %lld, damaged_seq = %lld WHERE ref = %lld",
                last + 1, last, ref);
    }
    sqlite3_finalize(row);
    return code;
}

static int put_metadata(struct heal *heal, uint64_t entity_ref, const struct store_cut *cut) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(
        heal->database,
        "INSERT OR REPLACE INTO summary_metadata (entity_ref, metadata_hash, metadata) VALUES "
        "(?, ?, ?)",
        -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite_bind_number(statement, 1, entity_ref);
    sqlite_bind_bytes(statement, 2, cut->metadata_hash, sizeof(cut->metadata_hash));
    sqlite_bind_text(statement, 3, cut->metadata);
    code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int put_row(struct heal *heal, struct slice topic, const struct store_journal_row *row) {
    const struct store_cut *cut = row->cut;
    sqlite3_stmt *statement = NULL;
    const struct heal_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                   .subject = topic,
                                   .expected_seq = (int64_t)row->seq,
                                   .actual_seq = (int64_t)row->seq};
    int code = cut ? put_metadata(heal, row->entity_ref, cut) : SQLITE_OK;
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(heal->database,
                                  "UPDATE journal SET payload = ?, payload_hash = ?, metadata_at = "
                                  "?, metadata_hash = ? WHERE topic_ref = ? AND seq = ?",
                                  -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite_bind_text(statement, 1, cut ? cut->text : row->payload);
    sqlite_bind_bytes(statement, 2, row->payload_hash, sizeof(row->payload_hash));
    sqlite_bind_optional(statement, 3, cut ? cut->metadata_at : 0);
    sqlite_bind_bytes(statement, 4, cut ? cut->metadata_hash : NULL, SHA256_BYTES);
    sqlite_bind_number(statement, 5, row->topic_ref);
    sqlite_bind_number(statement, 6, row->seq);
    code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? sqlite_heal_note(heal, &note) : code;
}

static int repair_rows(struct heal *heal, void *user) {
    const struct store_journal_repair *asked = user;
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < asked->row_count; i++)
        code = put_row(heal, asked->topic, &asked->rows[i]);
    if (code == SQLITE_OK && asked->lost_seq > 0)
        code = sqlite_journal_raise_floor(heal, asked->topic, asked->lost_seq);
    return code;
}

enum status sqlite_repair_journal(struct store_session *base,
                                  const struct store_journal_repair *asked) {
    struct heal heal = {.now_ms = asked->now_ms};
    return run(base, &heal, repair_rows, (void *)asked);
}

/* ---- new journals ---------------------------------------------------------------------------- */

/* One frame for each document, in the order of their last events. */
static int add_documents(struct heal *heal, enum document_kind kind, const char *table) {
    return sqlite_heal_run(
        heal,
        INSERT_ROWS
        "SELECT b.ref, b.base + row_number() OVER (ORDER BY " HEAD_LOG_ID "), " HEAD_LOG_ID
        ", d.entity_ref, d.doc_version, %llu, d.payload_hash, d.payload, 1, d.metadata_at, "
        "d.metadata_hash, " FIRST_FRAME " FROM %s d, bases b WHERE b.topic = %Q",
        heal->now_ms, table, topic_row(document_row(kind)->topic)->pattern);
}

/* The same for the topic of each owner. The name of such a topic has the owner in place of '*'. */
static int add_owned(struct heal *heal, enum topic_kind topic, const char *table,
                     const char *owner) {
    if (topic == TOPIC_NONE)
        return SQLITE_OK;
    return sqlite_heal_run(
        heal,
        INSERT_ROWS
        "SELECT b.ref, b.base + row_number() OVER (PARTITION BY b.ref ORDER BY " HEAD_LOG_ID
        "), " HEAD_LOG_ID ", d.entity_ref, d.doc_version, %llu, d.payload_hash, d.payload, 1, "
        "d.metadata_at, d.metadata_hash, " FIRST_FRAME
        " FROM %s d JOIN entities n ON n.ref = d.entity_ref JOIN "
        "bases b ON b.topic = replace(%Q, '*', "
        "%s)",
        heal->now_ms, table, topic_row(topic)->pattern, owner);
}

/* The latest events of all entities of a kind. */
static int add_shared_events(struct heal *heal, enum entity_kind kind, uint64_t limit) {
    const struct entity_row *row = entity_row(kind);
    if (row->shared_topic == TOPIC_NONE)
        return SQLITE_OK;
    return sqlite_heal_run(
        heal,
        INSERT_ROWS
        "SELECT b.ref, b.base + row_number() OVER (ORDER BY p.log_id), p.log_id, e.entity_ref, 0, "
        "%llu, e.payload_hash, NULL, NULL, NULL, NULL, NULL FROM bases b, (SELECT v.log_id FROM "
        "(SELECT "
        "q.log_id, "
        "q.event_count FROM entities n JOIN event_positions q ON q.entity_ref = n.ref WHERE n.kind "
        "= %d UNION ALL SELECT q.log_id, q.event_count FROM entities n JOIN event_positions_recent "
        "q ON q.entity_ref = n.ref WHERE n.kind = %d) r JOIN events v ON v.log_id BETWEEN r.log_id "
        "AND r.log_id + r.event_count - 1 ORDER BY v.log_id DESC LIMIT %llu) p JOIN events e ON "
        "e.log_id = p.log_id WHERE b.topic = %Q",
        heal->now_ms, (int)kind, (int)kind, limit, topic_row(row->shared_topic)->pattern);
}

#define ADD_DOCUMENTS(kind, name, table, ...)                                                      \
    if (code == SQLITE_OK)                                                                         \
        code = add_documents(heal, kind, table);                                                   \
    if (code == SQLITE_OK)                                                                         \
        code = add_owned(heal, document_row(kind)->user_topic, table, "n.owner_user_id");          \
    if (code == SQLITE_OK)                                                                         \
        code = add_owned(heal, document_row(kind)->guest_topic, table,                             \
                         "iif(n.owner_user_id IS NULL, n.owner_guest_scope, NULL)");

static int rebuild(struct heal *heal, void *user) {
    const uint64_t *events_max = user;
    sqlite3_int64 epoch = 0;
    /* The seqs go on behind the old ones, with one left out. So a cursor without an epoch is stale
     * too, instead of going on in another history. */
    int code = sqlite_heal_run(
        heal, "CREATE TEMP TABLE bases (ref INTEGER PRIMARY KEY, topic TEXT UNIQUE, base INTEGER); "
              "INSERT INTO bases SELECT ref, topic, max(head_seq, coalesce((SELECT max(seq) FROM "
              "journal WHERE topic_ref = ref AND seq < 4503599627370496), 0)) + 1 FROM "
              "topics WHERE entity_ref IS NULL; DELETE FROM journal; DELETE FROM summary_metadata "
              "AS v WHERE true" STORE_NO_DOCUMENT_HAS);
    DOCUMENT_KINDS(ADD_DOCUMENTS)
    for (int kind = 0; code == SQLITE_OK && kind < ENTITY_KIND_COUNT; kind++)
        code = add_shared_events(heal, (enum entity_kind)kind, *events_max);
    if (code == SQLITE_OK)
        code = sqlite_take_journal_epoch(heal, &epoch);
    if (code == SQLITE_OK)
        code = sqlite_heal_run(
            heal,
            "UPDATE topics SET journal_epoch = %lld, damaged_seq = 0, oldest_seq = "
            "(SELECT base + 1 FROM bases b WHERE b.ref = topics.ref), head_seq = "
            "(SELECT base + (SELECT count(*) FROM journal WHERE topic_ref = b.ref) FROM "
            "bases b WHERE b.ref = topics.ref) WHERE entity_ref IS NULL; DROP TABLE "
            "bases",
            epoch);
    return code;
}

enum status sqlite_rebuild_journal(struct store_session *base, uint64_t events_max,
                                   uint64_t now_ms) {
    struct heal heal = {.now_ms = now_ms};
    return run(base, &heal, rebuild, &events_max);
}

/* ---- finding --------------------------------------------------------------------------------- */

enum status sqlite_find_stray_row(struct store_session *base, uint64_t *topic_ref, uint64_t *seq) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(
        session->database,
        SQLITE_JOURNAL_REFS
        "SELECT r, (SELECT min(seq) FROM journal WHERE topic_ref = r) FROM refs WHERE r "
        "IS NOT NULL AND r NOT IN (SELECT ref FROM topics WHERE entity_ref IS NULL) "
        "LIMIT 1",
        -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    enum status status = code == SQLITE_DONE ? STATUS_NOT_FOUND : STATUS_OK;
    if (code == SQLITE_ROW) {
        *topic_ref = sqlite_number(statement, 0);
        *seq = sqlite_number(statement, 1);
    } else if (code != SQLITE_DONE) {
        status =
            sqlite_connect_fault(session->store->path, session->database, code, session->error);
    }
    sqlite3_finalize(statement);
    return status;
}
