/* Payloads whose metadata is stored once: what is read back is whole, and versions go with the last
 * row that has them. */
#include <sqlite3.h>
#include <stdlib.h>

#include "backend_postgres.h"
#include "rows.h"

#define WORKER    7
#define SUMMARIES "runtime.codex_worker_summaries"
#define VERSIONS  3

/* Payloads with characters of several bytes before the metadata and in it. */
#define BEFORE "{\"adapter\":\"h\xc3\xa9llo \xf0\x9f\x98\x80\",\"metadata\":"
#define AFTER  ",\"org_id\":\"\xe2\x82\xac\"}"

/* One payload, as it is and as it is written. */
struct sample {
    char metadata[2048];
    char payload[4096];
    char text[256];
    struct store_cut cut;
    struct store_document document;
    struct store_journal_row row;
    struct rows_text key;
};

/* The metadata follows from the version, the rest of the rows from the seq. */
static void sample_make(struct sample *sample, uint64_t version, uint64_t seq, bool is_new) {
    memset(sample->metadata, 0, sizeof(sample->metadata));
    int size = snprintf(sample->metadata, sizeof(sample->metadata),
                        "{\"t\":\"\xe2\x82\xac%llu\",\"x\":\"", (unsigned long long)version);
    memset(sample->metadata + size, 'x', 1000);
    strcat(sample->metadata, "\"}");
    snprintf(sample->payload, sizeof(sample->payload), "%s%s%s", BEFORE, sample->metadata, AFTER);
    snprintf(sample->text, sizeof(sample->text), "%s%s", BEFORE, AFTER);
    sample->cut = (struct store_cut){
        .text = slice_of(sample->text),
        .metadata_at = sizeof(BEFORE) - 1 - 4, /* characters */
        .metadata = slice_of(sample->metadata),
        .is_new = is_new,
    };
    sha256(sample->metadata, strlen(sample->metadata), sample->cut.metadata_hash);
    sample->document = rows_document(DOCUMENT_WORKER_SUMMARY, WORKER, seq, &sample->key);
    sample->document.payload = slice_of(sample->payload);
    sample->document.cut = &sample->cut;
    sha256(sample->payload, strlen(sample->payload), sample->document.payload_hash);
    sample->row = rows_journal(2, seq, seq);
    sample->row.entity_ref = WORKER;
    sample->row.payload = sample->document.payload;
    sample->row.cut = &sample->cut;
    memcpy(sample->row.payload_hash, sample->document.payload_hash, SHA256_BYTES);
}

static struct store_topic summaries(struct fixture *fixture) {
    struct store_topic topic;
    assert_ok(store_load_topic(fixture->reader, SLICE(SUMMARIES), &fixture->arena, &topic));
    assert_int_equal(topic.ref, 2);
    return topic;
}

static void put(struct fixture *fixture, uint64_t version, uint64_t seq, bool is_new) {
    struct sample *sample = malloc(sizeof(*sample));
    struct rows_text id;
    struct store_entity worker = rows_run(WORKER, &id);
    struct store_event event = rows_event(seq, WORKER, seq);
    struct store_topic topic = summaries(fixture);
    worker.kind = ENTITY_WORKER;
    event.entity_kind = ENTITY_WORKER;
    topic.head_seq = seq;
    assert_non_null(sample);
    sample_make(sample, version, seq, is_new);
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &worker,
                                                                  .entity_count = 1,
                                                                  .events = &event,
                                                                  .event_count = 1,
                                                                  .topics = &topic,
                                                                  .topic_count = 1,
                                                                  .documents = &sample->document,
                                                                  .document_count = 1,
                                                                  .journal = &sample->row,
                                                                  .journal_count = 1}));
    free(sample);
}

static void alter(struct fixture *fixture, const char *sql) {
    char path[256];
    sqlite3 *other = NULL;
    if (fixture->backend == &backend_postgres) {
        pg_run(fixture->place, sql);
        return;
    }
    snprintf(path, sizeof(path), "%s/khala.db", fixture->place);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

/* Fails unless the condition holds, as both stores evaluate it. */
static void holds(struct fixture *fixture, const char *condition) {
    char sql[1024];
    /* A division by zero is no error in SQLite. */
    if (fixture->backend == &backend_postgres)
        snprintf(sql, sizeof(sql), "SET search_path = runtime; SELECT 1 / (%s)::int", condition);
    else
        snprintf(sql, sizeof(sql), "SELECT iif(%s, 1, abs(-9223372036854775807 - 1))", condition);
    alter(fixture, sql);
}

struct frames {
    size_t count;
    size_t whole_count;
    uint64_t payload_bytes;
};

static enum status see_frame(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    struct frames *frames = user;
    assert_non_null(row->payload.data);
    frames->count++;
    frames->whole_count += store_row_is_whole(row, event);
    frames->payload_bytes += row->payload.size;
    return STATUS_OK;
}

static struct frames frames_of(struct fixture *fixture) {
    struct frames frames = {0};
    assert_ok(store_walk_journal(fixture->reader, 2, 0, UINT64_MAX, &frames, see_frame));
    return frames;
}

static enum status see_document(void *user, const struct store_document *document) {
    size_t *count = user;
    *count += document->payload.data && store_document_is_whole(document);
    return STATUS_OK;
}

static bool is_document_whole(struct fixture *fixture) {
    struct store_document document;
    size_t count = 0;
    assert_ok(store_load_document(fixture->reader, DOCUMENT_WORKER_SUMMARY, WORKER, &fixture->arena,
                                  &document));
    assert_ok(store_walk_documents(fixture->reader, DOCUMENT_WORKER_SUMMARY, 0, 10, &count,
                                   see_document));
    assert_int_equal(count, store_document_is_whole(&document));
    return count == 1;
}

/* Frames 1 to 9: three with each version. */
static void fill(struct fixture *fixture) {
    for (uint64_t seq = 1; seq <= 3 * VERSIONS; seq++)
        put(fixture, (seq - 1) / 3, seq, seq % 3 == 1);
}

static void payloads_are_read_whole_and_metadata_is_stored_once(void **state) {
    struct fixture *fixture = *state;
    struct store_replay replay;
    fill(fixture);
    fixture_reopen(fixture);
    struct frames frames = frames_of(fixture);
    assert_int_equal(frames.count, 9);
    assert_int_equal(frames.whole_count, 9);
    assert_true(is_document_whole(fixture));
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 3");
    holds(fixture, "(SELECT sum(length(payload)) FROM journal) < 9 * 200");
    holds(fixture, "(SELECT length(payload) FROM worker_documents) < 200");
    struct store_topic topic = summaries(fixture);
    assert_ok(store_measure_replay(fixture->reader, &topic, 0, 100, &replay));
    assert_int_equal(replay.frame_count, 9);
    assert_int_equal(replay.payload_bytes, frames.payload_bytes);
    /* The names of the contract show whole payloads. */
    holds(fixture, "(SELECT count(*) FROM sync_stream_events s JOIN sync_codex_worker_summaries d "
                   "ON d.payload = s.payload AND s.topic = '" SUMMARIES "') = 3");
    holds(fixture, "(SELECT min(length(payload)) FROM sync_codex_worker_summaries) > 1000");
}

static void a_version_goes_with_the_last_row_that_has_it(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    struct store_prune prune = {.topic_ref = 2, .below_seq = 3, .limit = 100};
    assert_ok(store_prune_topics(fixture->writer, &prune, 1));
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 3");
    prune.below_seq = 5;
    assert_ok(store_prune_topics(fixture->writer, &prune, 1));
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 2");
    assert_int_equal(frames_of(fixture).whole_count, 5);
    /* The document keeps its version. */
    prune.below_seq = 100;
    assert_ok(store_prune_topics(fixture->writer, &prune, 1));
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 1");
    assert_true(is_document_whole(fixture));
    /* A version that no row had when its rows went goes with later rows of its entity. */
    put(fixture, 9, 10, true);
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 2");
    put(fixture, 9, 11, false);
    prune.below_seq = 11;
    assert_ok(store_prune_topics(fixture->writer, &prune, 1));
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 1");
    assert_int_equal(frames_of(fixture).whole_count, 1);
}

static void a_version_of_another_topic_stays(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    alter(fixture, fixture->backend == &backend_postgres
                       ? "UPDATE runtime.journal SET topic_ref = 1 WHERE seq = 2"
                       : "UPDATE journal SET topic_ref = 1 WHERE seq = 2");
    struct store_prune prune = {.topic_ref = 2, .below_seq = 8, .limit = 100};
    assert_ok(store_prune_topics(fixture->writer, &prune, 1));
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 2");
}

static void a_missing_or_altered_version_leaves_rows_that_are_not_whole(void **state) {
    struct fixture *fixture = *state;
    struct sample *sample = malloc(sizeof(*sample));
    fill(fixture);
    alter(fixture, fixture->backend == &backend_postgres
                       ? "DELETE FROM runtime.summary_metadata WHERE metadata_hash = (SELECT "
                         "metadata_hash FROM runtime.journal WHERE seq = 1); UPDATE "
                         "runtime.summary_metadata SET metadata = '{}' WHERE metadata_hash = "
                         "(SELECT metadata_hash FROM runtime.journal WHERE seq = 9)"
                       : "DELETE FROM summary_metadata WHERE metadata_hash = (SELECT metadata_hash "
                         "FROM journal WHERE seq = 1); UPDATE summary_metadata SET metadata = '{}' "
                         "WHERE metadata_hash = (SELECT metadata_hash FROM journal WHERE seq = 9)");
    assert_int_equal(frames_of(fixture).count, 9);
    assert_int_equal(frames_of(fixture).whole_count, 3);
    assert_false(is_document_whole(fixture));
    /* The repair of one row brings the version back for all. */
    assert_non_null(sample);
    sample_make(sample, 0, 2, true);
    const struct store_journal_repair repair = {
        .topic = SLICE(SUMMARIES), .rows = &sample->row, .row_count = 1, .now_ms = 5};
    assert_ok(store_repair_journal(fixture->writer, &repair));
    assert_int_equal(frames_of(fixture).whole_count, 6);
    /* A commit that offers the version replaces the altered one. */
    put(fixture, 2, 10, true);
    assert_int_equal(frames_of(fixture).whole_count, 10);
    assert_true(is_document_whole(fixture));
    free(sample);
}

static void rebuilt_journals_keep_the_versions_of_documents(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    assert_ok(store_rebuild_journal(fixture->writer, 0, 1));
    struct frames frames = frames_of(fixture);
    assert_int_equal(frames.count, 1);
    assert_int_equal(frames.whole_count, 1);
    holds(fixture, "(SELECT count(*) FROM summary_metadata) = 1");
}

static void nodes_of_a_release_before_read_whole_payloads(void **state) {
    struct fixture *fixture = *state;
    if (fixture->backend != &backend_postgres)
        return;
    alter(fixture, "INSERT INTO runtime.nodes (node_id, address, version, schema_version, role, "
                   "term, log_id, revocations_seen) VALUES ('old', '', '0.2.0', 10, 'follower', 0, "
                   "0, 0)");
    fixture_reopen(fixture);
    put(fixture, 1, 1, true);
    put(fixture, 1, 2, false);
    holds(fixture, "(SELECT count(*) FROM journal WHERE metadata_at IS NULL) = 2");
    holds(fixture, "(SELECT count(*) FROM worker_documents WHERE metadata_at IS NULL) = 1");
    struct sample *sample = malloc(sizeof(*sample));
    assert_non_null(sample);
    sample_make(sample, 1, 1, true);
    const struct store_journal_repair repair = {
        .topic = SLICE(SUMMARIES), .rows = &sample->row, .row_count = 1, .now_ms = 5};
    assert_ok(store_repair_journal(fixture->writer, &repair));
    free(sample);
    holds(fixture, "(SELECT count(*) FROM journal WHERE metadata_at IS NULL) = 2");
    alter(fixture, "DELETE FROM runtime.nodes");
    fixture_reopen(fixture);
    put(fixture, 1, 3, false);
    holds(fixture, "(SELECT count(*) FROM journal WHERE metadata_at IS NULL) = 2");
    assert_int_equal(frames_of(fixture).whole_count, 3);
    assert_true(is_document_whole(fixture));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_are_read_whole_and_metadata_is_stored_once),
        cmocka_unit_test(a_version_goes_with_the_last_row_that_has_it),
        cmocka_unit_test(a_version_of_another_topic_stays),
        cmocka_unit_test(a_missing_or_altered_version_leaves_rows_that_are_not_whole),
        cmocka_unit_test(rebuilt_journals_keep_the_versions_of_documents),
        cmocka_unit_test(nodes_of_a_release_before_read_whole_payloads),
    };
    return CONTRACT_RUN("store: metadata", tests);
}
