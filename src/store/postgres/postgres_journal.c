/* Repair of journals: altered rows, the floor behind damage, and new journals made from the
 * documents and the log. Each function is one transaction, so that a crash leaves the old journal
 * or the new one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hex.h"
#include "store/postgres/postgres_heal.h"

#define HEAD_LOG_ID                                                                                \
    "(SELECT x.log_id FROM events x WHERE x.entity_ref = d.entity_ref ORDER BY x.seq DESC LIMIT "  \
    "1)"
#define INSERT_ROWS                                                                                \
    "INSERT INTO journal (topic_ref, seq, log_id, entity_ref, doc_version, published_at, "         \
    "payload_hash, payload, first_entity_seq, metadata_at, metadata_hash, fields_before) "
/* The record (topic/where.h) of the first frame of a document in the new epoch. */
#define FIRST_FRAME "'{\"was\":null}'"

/* Work on whole tables needs the plans that sessions have switched off. */
#define BULK_PLANS                                                                                 \
    "SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = " \
    "on; SET LOCAL enable_bitmapscan = on"

/* The transaction around one repair. */
static enum status run(struct store_session *base, uint64_t now_ms,
                       enum status (*work)(struct postgres_repair *repair, void *user),
                       void *user) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_open(session);
    if (status != STATUS_OK)
        return status;
    struct postgres_repair repair = {.store = session->store,
                                     .connection = session->connection,
                                     .now_ms = now_ms,
                                     .error = session->error,
                                     .has_old_readers = session->has_old_readers};
    enum status done = work(&repair, user);
    /* Nodes that follow look at all topics then. */
    if (done == STATUS_OK)
        done = postgres_repair_run(&repair, NULL, POSTGRES_UNLISTED_COMMIT);
    return postgres_write_end(session, done);
}

/* ---- the floor ---- */

/* The topic, the last seq that is missing between its floor and its head, and its last row. */
#define LAST_HOLE                                                                                  \
    "SELECT t.ref, t.head_seq, t.oldest_seq, (SELECT max(seq - 1) FROM (SELECT seq, lag(seq, 1, "  \
    "t.oldest_seq - 1) OVER (ORDER BY seq) AS before FROM journal WHERE topic_ref = t.ref AND "    \
    "seq BETWEEN t.oldest_seq AND t.head_seq) s WHERE seq <> before + 1), (SELECT max(seq) FROM "  \
    "journal WHERE topic_ref = t.ref AND seq <= t.head_seq) FROM topics t WHERE t.entity_ref IS "  \
    "NULL AND t.topic = $1"

enum status postgres_journal_raise_floor(struct postgres_repair *repair, const char *topic,
                                         uint64_t lost_seq) {
    PGresult *found = NULL;
    enum status status = postgres_repair_ask(repair, &found, LAST_HOLE, &topic, 1);
    if (status != STATUS_OK || PQntuples(found) == 0) {
        PQclear(found);
        return status;
    }
    uint64_t ref = postgres_repair_number(found, 0, 0);
    uint64_t head = postgres_repair_number(found, 0, 1);
    uint64_t oldest = postgres_repair_number(found, 0, 2);
    uint64_t last = postgres_repair_number(found, 0, 3);
    /* Rows at the end are missing. */
    if (oldest <= head && postgres_repair_number(found, 0, 4) < head)
        last = head;
    PQclear(found);
    if (lost_seq >= oldest && lost_seq <= head && lost_seq > last)
        last = lost_seq;
    if (last < oldest)
        return STATUS_OK;
    const struct postgres_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                       .subject = slice_of(topic),
                                       .expected_seq = oldest,
                                       .actual_seq = last};
    status = postgres_repair_note(repair, &note);
    if (status != STATUS_OK)
        return status;
    return postgres_repair_run(repair, NULL,
                               "DELETE FROM journal WHERE topic_ref = %" PRIu64
                               " AND seq <= %" PRIu64 "; UPDATE topics SET oldest_seq = %" PRIu64
                               ", damaged_seq = %" PRIu64 " WHERE ref = %" PRIu64,
                               ref, last, last + 1, last, ref);
}

static enum status put_metadata(struct postgres_repair *repair, const char *entity_ref,
                                const char *hash, const struct store_cut *cut) {
    char *metadata = strndup(cut->metadata.data, cut->metadata.size);
    const char *values[] = {entity_ref, hash, metadata};
    if (!metadata)
        return STATUS_OUT_OF_MEMORY;
    enum status status =
        postgres_repair_ask(repair, NULL,
                            "INSERT INTO summary_metadata (entity_ref, metadata_hash, metadata) "
                            "VALUES ($1::bigint, decode($2, 'hex'), $3) ON CONFLICT (entity_ref, "
                            "metadata_hash) DO UPDATE SET metadata = excluded.metadata",
                            values, 3);
    free(metadata);
    return status;
}

static enum status put_row(struct postgres_repair *repair, struct slice topic,
                           const struct store_journal_row *row) {
    char ref[24], seq[24], entity_ref[24], at[24], hash[2 * SHA256_BYTES + 1] = "";
    char metadata_hash[2 * SHA256_BYTES + 1] = "";
    const struct store_cut *cut = repair->has_old_readers ? NULL : row->cut;
    struct slice text = cut ? cut->text : row->payload;
    char *payload = text.data ? strndup(text.data, text.size) : NULL;
    const char *values[] = {payload, hash, ref, seq, cut ? at : NULL, cut ? metadata_hash : NULL};
    const struct postgres_note note = {.reason = REASON_JOURNAL_DAMAGED,
                                       .subject = topic,
                                       .expected_seq = row->seq,
                                       .actual_seq = row->seq};
    if (row->payload.data && !payload)
        return STATUS_OUT_OF_MEMORY;
    hex_write(hash, row->payload_hash, SHA256_BYTES);
    snprintf(ref, sizeof(ref), "%" PRIu64, row->topic_ref);
    snprintf(seq, sizeof(seq), "%" PRIu64, row->seq);
    enum status status = STATUS_OK;
    if (cut) {
        hex_write(metadata_hash, cut->metadata_hash, SHA256_BYTES);
        snprintf(entity_ref, sizeof(entity_ref), "%" PRIu64, row->entity_ref);
        snprintf(at, sizeof(at), "%" PRIu64, cut->metadata_at);
        status = put_metadata(repair, entity_ref, metadata_hash, cut);
    }
    if (status == STATUS_OK)
        status = postgres_repair_ask(
            repair, NULL,
            "UPDATE journal SET payload = $1, payload_hash = decode($2, 'hex'), metadata_at = "
            "$5::bigint, metadata_hash = decode($6, 'hex') WHERE topic_ref = $3::bigint AND seq = "
            "$4::bigint",
            values, 6);
    free(payload);
    return status == STATUS_OK ? postgres_repair_note(repair, &note) : status;
}

static enum status repair_rows(struct postgres_repair *repair, void *user) {
    const struct store_journal_repair *asked = user;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < asked->row_count; i++)
        status = put_row(repair, asked->topic, &asked->rows[i]);
    if (status != STATUS_OK || asked->lost_seq == 0)
        return status;
    char *name = strndup(asked->topic.data, asked->topic.size);
    if (!name)
        return STATUS_OUT_OF_MEMORY;
    status = postgres_journal_raise_floor(repair, name, asked->lost_seq);
    free(name);
    return status;
}

enum status postgres_repair_journal(struct store_session *base,
                                    const struct store_journal_repair *asked) {
    return run(base, asked->now_ms, repair_rows, (void *)asked);
}

/* ---- new journals ---- */

/* One frame for each document, in the order of their last events. */
static enum status add_documents(struct postgres_repair *repair, enum document_kind kind,
                                 const char *table) {
    return postgres_repair_run(
        repair, NULL,
        INSERT_ROWS
        "SELECT b.ref, b.base + row_number() OVER (ORDER BY d.last), d.last, d.entity_ref, "
        "d.doc_version, %" PRIu64
        ", d.payload_hash, d.payload, 1, d.metadata_at, d.metadata_hash, " FIRST_FRAME
        " FROM (SELECT d.*, " HEAD_LOG_ID
        " AS last FROM %s d) d, bases b WHERE b.topic = '%s' AND d.last IS NOT NULL",
        repair->now_ms, table, topic_row(document_row(kind)->topic)->pattern);
}

/* The same for the topic of each owner. The name of such a topic has the owner in place of '*'. */
static enum status add_owned(struct postgres_repair *repair, enum topic_kind topic,
                             const char *table, const char *owner) {
    if (topic == TOPIC_NONE)
        return STATUS_OK;
    return postgres_repair_run(
        repair, NULL,
        INSERT_ROWS
        "SELECT b.ref, b.base + row_number() OVER (PARTITION BY b.ref ORDER BY d.last), d.last, "
        "d.entity_ref, d.doc_version, %" PRIu64 ", d.payload_hash, d.payload, 1, d.metadata_at, "
        "d.metadata_hash, " FIRST_FRAME " FROM (SELECT d.*, " HEAD_LOG_ID
        " AS last FROM %s d) d JOIN entities n ON n.ref = d.entity_ref JOIN bases b ON b.topic = "
        "replace('%s', '*', %s) WHERE d.last IS NOT NULL",
        repair->now_ms, table, topic_row(topic)->pattern, owner);
}

/* The latest events of all entities of a kind. */
static enum status add_shared_events(struct postgres_repair *repair, enum entity_kind kind,
                                     uint64_t limit) {
    const struct entity_row *row = entity_row(kind);
    if (row->shared_topic == TOPIC_NONE)
        return STATUS_OK;
    return postgres_repair_run(
        repair, NULL,
        INSERT_ROWS
        "SELECT b.ref, b.base + row_number() OVER (ORDER BY p.log_id), p.log_id, p.entity_ref, 0, "
        "%" PRIu64 ", p.payload_hash, NULL, NULL, NULL, NULL, NULL FROM bases b, (SELECT e.log_id, "
        "e.entity_ref, "
        "e.payload_hash FROM events e JOIN entities n ON n.ref = e.entity_ref WHERE n.kind = %d "
        "ORDER BY e.log_id DESC LIMIT %" PRIu64 ") p WHERE b.topic = '%s'",
        repair->now_ms, (int)kind, limit < INT64_MAX ? limit : INT64_MAX,
        topic_row(row->shared_topic)->pattern);
}

#define ADD_DOCUMENTS(kind, name, table, ...)                                                      \
    if (status == STATUS_OK)                                                                       \
        status = add_documents(repair, kind, table);                                               \
    if (status == STATUS_OK)                                                                       \
        status = add_owned(repair, document_row(kind)->user_topic, table, "n.owner_user_id");      \
    if (status == STATUS_OK)                                                                       \
        status = add_owned(repair, document_row(kind)->guest_topic, table,                         \
                           "CASE WHEN n.owner_user_id IS NULL THEN n.owner_guest_scope END");

static enum status rebuild(struct postgres_repair *repair, void *user) {
    const uint64_t *events_max = user;
    uint64_t epoch = 0;
    /* The seqs go on behind the old ones, with one left out. So a cursor without an epoch is stale
     * too, instead of going on in another history. */
    enum status status = postgres_repair_run(
        repair, NULL,
        BULK_PLANS
        "; CREATE TEMP TABLE bases ON COMMIT DROP AS SELECT t.ref, t.topic, greatest(t.head_seq, "
        "(SELECT max(j.seq) FROM journal j WHERE j.topic_ref = t.ref AND j.seq < "
        "4503599627370496), 0) + 1 AS base FROM topics t WHERE t.entity_ref IS NULL; DELETE FROM "
        "journal; DELETE FROM summary_metadata v WHERE true" STORE_NO_DOCUMENT_HAS);
    DOCUMENT_KINDS(ADD_DOCUMENTS)
    for (int kind = 0; status == STATUS_OK && kind < ENTITY_KIND_COUNT; kind++)
        status = add_shared_events(repair, (enum entity_kind)kind, *events_max);
    if (status == STATUS_OK)
        status = postgres_repair_take_epoch(repair, &epoch);
    if (status == STATUS_OK)
        status = postgres_repair_run(
            repair, NULL,
            "UPDATE topics t SET journal_epoch = %" PRIu64
            ", damaged_seq = 0, oldest_seq = b.base + 1, head_seq = b.base + (SELECT count(*) FROM "
            "journal j WHERE j.topic_ref = b.ref) FROM bases b WHERE b.ref = t.ref AND "
            "t.entity_ref IS NULL",
            epoch);
    return status;
}

enum status postgres_rebuild_journal(struct store_session *base, uint64_t events_max,
                                     uint64_t now_ms) {
    return run(base, now_ms, rebuild, &events_max);
}

/* ---- finding ---- */

enum status postgres_find_stray_row(struct store_session *base, uint64_t *topic_ref,
                                    uint64_t *seq) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_FIND_STRAY);
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK && PQntuples(result) == 0)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK) {
        *topic_ref = postgres_number((struct postgres_row){result, 0}, 0);
        *seq = postgres_number((struct postgres_row){result, 0}, 1);
    }
    PQclear(result);
    return status;
}
