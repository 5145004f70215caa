/* Derived rows that were altered: commits compare what they replace, and journals are repaired. */
#include "backend.h"
#include "rows.h"

#define RUN       7
#define SUMMARIES "runtime.run_summaries"

/* ---- what a commit replaces ------------------------------------------------------------------ */

static struct store_summary_rows summary_rows(uint64_t version) {
    struct store_summary_rows rows = {.last_runtime_seq = version, .document_version = version};
    rows_hash(rows.summary_hash, version);
    rows_hash(rows.document_hash, version);
    return rows;
}

static void put_summary(struct fixture *fixture, uint64_t version,
                        const struct store_summary_rows *replaced) {
    struct rows_text key, id;
    struct store_entity run = rows_run(RUN, &id);
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, RUN, version, &key);
    struct store_checkpoint checkpoint = rows_checkpoint(DOCUMENT_RUN_SUMMARY, RUN, version);
    checkpoint.replaced = replaced;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .documents = &document,
                                                                  .document_count = 1,
                                                                  .checkpoints = &checkpoint,
                                                                  .checkpoint_count = 1}));
    assert_ok(store_load_document(fixture->reader, DOCUMENT_RUN_SUMMARY, RUN, &fixture->arena,
                                  &document));
    assert_int_equal(document.version, version);
}

struct drifts {
    size_t count;
    struct store_drift latest;
    char subject[64];
};

static enum status see_drift(void *user, const struct store_drift *drift) {
    struct drifts *drifts = user;
    if (drifts->count++ > 0)
        return STATUS_OK;
    drifts->latest = *drift;
    snprintf(drifts->subject, sizeof(drifts->subject), "%.*s", (int)drift->subject.size,
             drift->subject.data ? drift->subject.data : "");
    return STATUS_OK;
}

static struct drifts drifts_of(struct fixture *fixture) {
    struct drifts drifts = {0};
    assert_ok(store_walk_drifts(fixture->reader, 100, &drifts, see_drift));
    return drifts;
}

static void rows_that_are_as_they_were_left_are_no_drift(void **state) {
    struct fixture *fixture = *state;
    put_summary(fixture, 1, NULL);
    for (uint64_t version = 2; version <= 4; version++) {
        struct store_summary_rows before = summary_rows(version - 1);
        put_summary(fixture, version, &before);
    }
    assert_int_equal(drifts_of(fixture).count, 0);
}

static void each_altered_row_that_a_commit_replaces_is_a_drift(void **state) {
    struct fixture *fixture = *state;
    struct store_summary_rows others[] = {summary_rows(1), summary_rows(2), summary_rows(3),
                                          summary_rows(4), summary_rows(5)};
    const enum reason reasons[] = {REASON_SUMMARY_HASH_MISMATCH, REASON_SUMMARY_HASH_MISMATCH,
                                   REASON_SUMMARY_HASH_MISMATCH, REASON_CHECKPOINT_AHEAD,
                                   REASON_SEQUENCE_GAP};
    /* What the writer left there is not what is stored. */
    others[0].document_hash[0] ^= 1;
    others[1].summary_hash[31] ^= 1;
    others[2].document_version = 9;
    others[3].last_runtime_seq = 2;
    others[4].last_runtime_seq = 9;
    put_summary(fixture, 1, NULL);
    for (size_t i = 0; i < 5; i++) {
        put_summary(fixture, i + 2, &others[i]);
        struct drifts drifts = drifts_of(fixture);
        assert_int_equal(drifts.count, i + 1);
        assert_int_equal(drifts.latest.reason, reasons[i]);
        assert_int_equal(drifts.latest.kind, DOCUMENT_RUN_SUMMARY);
        assert_int_equal(drifts.latest.entity_ref, RUN);
        assert_int_equal(drifts.latest.expected_seq, others[i].last_runtime_seq);
        assert_int_equal(drifts.latest.actual_seq, i + 1);
    }
}

static void a_removed_row_that_a_commit_replaces_is_a_drift(void **state) {
    struct fixture *fixture = *state;
    struct store_summary_rows before = summary_rows(1);
    struct rows_text key;
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, RUN, 1, &key);
    put_summary(fixture, 2, &before);
    assert_int_equal(drifts_of(fixture).count, 1);
    assert_int_equal(drifts_of(fixture).latest.reason, REASON_SEQUENCE_GAP);
    assert_int_equal(drifts_of(fixture).latest.actual_seq, 0);
    /* A document without a checkpoint. */
    document.entity_ref = RUN + 1;
    assert_ok(store_commit(fixture->writer,
                           &(struct store_batch){.documents = &document, .document_count = 1}));
    struct store_checkpoint checkpoint = rows_checkpoint(DOCUMENT_RUN_SUMMARY, RUN + 1, 2);
    checkpoint.replaced = &before;
    document.version = 2;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.documents = &document,
                                                                  .document_count = 1,
                                                                  .checkpoints = &checkpoint,
                                                                  .checkpoint_count = 1}));
    assert_int_equal(drifts_of(fixture).count, 2);
    assert_int_equal(drifts_of(fixture).latest.entity_ref, RUN + 1);
}

static void an_abandoned_batch_records_no_drift(void **state) {
    struct fixture *fixture = *state;
    struct store_summary_rows before = summary_rows(9);
    struct rows_text key;
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, RUN, 3, &key);
    struct store_checkpoint checkpoint = rows_checkpoint(DOCUMENT_RUN_SUMMARY, RUN, 3);
    struct store_journal_row row = rows_journal(1, 1, 1);
    struct store_journal_row twice[2] = {row, row};
    checkpoint.replaced = &before;
    put_summary(fixture, 1, NULL);
    assert_int_not_equal(
        store_commit(fixture->writer, &(struct store_batch){.documents = &document,
                                                            .document_count = 1,
                                                            .checkpoints = &checkpoint,
                                                            .checkpoint_count = 1,
                                                            .journal = twice,
                                                            .journal_count = 2}),
        STATUS_OK);
    assert_int_equal(drifts_of(fixture).count, 0);
}

/* ---- journals -------------------------------------------------------------------------------- */

static struct store_topic summaries(struct fixture *fixture) {
    struct store_topic topic;
    assert_ok(store_load_topic(fixture->reader, SLICE(SUMMARIES), &fixture->arena, &topic));
    return topic;
}

static void fill_journal(struct fixture *fixture) {
    struct rows_text id;
    struct store_entity run = rows_run(2, &id);
    struct store_event events[5];
    struct store_journal_row rows[5];
    struct store_topic topic = summaries(fixture);
    for (uint64_t i = 0; i < 5; i++) {
        events[i] = rows_event(i + 1, 2, i + 1);
        rows[i] = rows_journal(topic.ref, i + 1, i + 1);
    }
    topic.head_seq = 5;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .events = events,
                                                                  .event_count = 5,
                                                                  .topics = &topic,
                                                                  .topic_count = 1,
                                                                  .journal = rows,
                                                                  .journal_count = 5}));
}

struct frames {
    size_t count;
    uint64_t first_seq;
    size_t mended_count; /* rows with the payload of the repair */
};

static enum status see_frame(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    struct frames *frames = user;
    uint8_t hash[SHA256_BYTES];
    rows_hash(hash, 77 + row->seq);
    assert_int_equal(event->log_id, row->log_id);
    if (frames->count++ == 0)
        frames->first_seq = row->seq;
    if (!slice_equal(row->payload, SLICE("{\"mended\":true}")))
        return STATUS_OK;
    assert_memory_equal(row->payload_hash, hash, SHA256_BYTES);
    frames->mended_count++;
    return STATUS_OK;
}

static struct frames frames_of(struct fixture *fixture) {
    struct frames frames = {0};
    assert_ok(store_walk_journal(fixture->reader, summaries(fixture).ref, 0, UINT64_MAX, &frames,
                                 see_frame));
    return frames;
}

static void altered_rows_of_a_journal_are_put_right_in_place(void **state) {
    struct fixture *fixture = *state;
    fill_journal(fixture);
    struct store_topic topic = summaries(fixture);
    struct store_journal_row rows[2] = {rows_journal(topic.ref, 2, 2),
                                        rows_journal(topic.ref, 4, 4)};
    for (size_t i = 0; i < 2; i++) {
        rows[i].payload = SLICE("{\"mended\":true}");
        rows_hash(rows[i].payload_hash, 77 + rows[i].seq);
    }
    const struct store_journal_repair repair = {
        .topic = SLICE(SUMMARIES), .rows = rows, .row_count = 2, .now_ms = 5};
    assert_ok(store_repair_journal(fixture->writer, &repair));
    struct frames frames = frames_of(fixture);
    assert_int_equal(frames.count, 5);
    assert_int_equal(frames.mended_count, 2);
    assert_int_equal(summaries(fixture).oldest_seq, 1);
    struct drifts drifts = drifts_of(fixture);
    assert_int_equal(drifts.count, 2);
    assert_int_equal(drifts.latest.reason, REASON_JOURNAL_DAMAGED);
    assert_int_equal(drifts.latest.expected_seq, 4);
    assert_int_equal(drifts.latest.seen_at_ms, 5);
    assert_string_equal(drifts.subject, SUMMARIES);
}

static void the_floor_rises_behind_a_lost_row_and_the_rows_above_it_are_put_right(void **state) {
    struct fixture *fixture = *state;
    fill_journal(fixture);
    struct store_journal_row row = rows_journal(summaries(fixture).ref, 4, 4);
    row.payload = SLICE("{\"mended\":true}");
    rows_hash(row.payload_hash, 77 + row.seq);
    const struct store_journal_repair repair = {
        .topic = SLICE(SUMMARIES), .rows = &row, .row_count = 1, .lost_seq = 2, .now_ms = 5};
    assert_ok(store_repair_journal(fixture->writer, &repair));
    struct frames frames = frames_of(fixture);
    assert_int_equal(frames.first_seq, 3);
    assert_int_equal(frames.count, 3);
    assert_int_equal(frames.mended_count, 1);
    assert_int_equal(summaries(fixture).oldest_seq, 3);
    assert_int_equal(summaries(fixture).damaged_seq, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_are_as_they_were_left_are_no_drift),
        cmocka_unit_test(each_altered_row_that_a_commit_replaces_is_a_drift),
        cmocka_unit_test(a_removed_row_that_a_commit_replaces_is_a_drift),
        cmocka_unit_test(an_abandoned_batch_records_no_drift),
        cmocka_unit_test(altered_rows_of_a_journal_are_put_right_in_place),
        cmocka_unit_test(the_floor_rises_behind_a_lost_row_and_the_rows_above_it_are_put_right),
    };
    return CONTRACT_RUN("store: damage", tests);
}
