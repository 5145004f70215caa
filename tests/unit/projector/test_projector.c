#include "stored_log.h"

#include "base/log.h"
#include "projector/summary.h"

#define CREATED "{\"owner_user_id\":\"u1\",\"run_id\":\"r1\"}"

/* ---- reading the stored rows --------------------------------------------------------------- */

struct frames {
    size_t count;
    uint64_t seq;
    uint64_t log_ids[64];
    uint64_t versions[64];
    /* Of the last frame. */
    uint64_t first_seq;
    uint8_t payload_hash[SHA256_BYTES];
};

static enum status see_frame(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    struct frames *frames = user;
    (void)event;
    assert_int_equal(row->seq, ++frames->seq);
    assert_true(frames->count < 64);
    frames->log_ids[frames->count] = row->log_id;
    frames->versions[frames->count++] = row->document_version;
    frames->first_seq = row->first_seq;
    memcpy(frames->payload_hash, row->payload_hash, SHA256_BYTES);
    return STATUS_OK;
}

static struct frames frames_of(struct stored_log *log, const char *name) {
    struct store_topic topic;
    struct frames frames = {0};
    assert_ok(store_load_topic(log->session, slice_of(name), &log->arena, &topic));
    assert_ok(store_walk_journal(log->session, topic.ref, 0, UINT64_MAX, &frames, see_frame));
    assert_int_equal(topic.head_seq, frames.seq);
    return frames;
}

struct drifts {
    size_t count;
    enum reason reasons[16];
};

static enum status see_drift(void *user, const struct store_drift *drift) {
    struct drifts *drifts = user;
    assert_true(drifts->count < 16);
    drifts->reasons[drifts->count++] = drift->reason;
    return STATUS_OK;
}

static struct drifts drifts_of(struct stored_log *log) {
    struct drifts drifts = {0};
    assert_ok(store_walk_drifts(log->session, 16, &drifts, see_drift));
    return drifts;
}

static void expect_drift(struct stored_log *log, enum reason reason) {
    struct drifts drifts = drifts_of(log);
    assert_int_equal(drifts.count, 1);
    assert_int_equal(drifts.reasons[0], reason);
}

static bool document_has(struct stored_log *log, enum entity_kind kind, const char *id,
                         const char *text) {
    struct store_document document = log_document(log, kind, id);
    return memmem(document.payload.data, document.payload.size, text, strlen(text)) != NULL;
}

static void expect_sound(struct stored_log *log) {
    assert_int_equal(log_reproject(log, false).drifted, 0);
}

/* ---- documents and frames ------------------------------------------------------------------ */

static void events_of_one_commit_become_one_update(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    log_append(log, ENTITY_RUN, "r1", "a", "{}");
    log_append(log, ENTITY_RUN, "r2", "run.started", "{}");
    log_append(log, ENTITY_RUN, "r1", "b", "{}");
    log_commit(log);
    struct frames frames = frames_of(log, "runtime.run_summaries");
    assert_int_equal(frames.count, 2);
    assert_int_equal(frames.log_ids[0], 3);
    assert_int_equal(frames.log_ids[1], 4);
    assert_int_equal(frames.first_seq, 1);
    assert_memory_equal(frames.payload_hash, log_document(log, ENTITY_RUN, "r1").payload_hash,
                        SHA256_BYTES);
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"latest_event_type\":\"b\""));
    log_append(log, ENTITY_RUN, "r1", "c", "{}");
    log_commit(log);
    frames = frames_of(log, "runtime.run_summaries");
    assert_int_equal(frames.count, 3);
    assert_int_equal(frames.first_seq, 0);
    struct store_document document = log_document(log, ENTITY_RUN, "r1");
    assert_int_equal(document.version, 2);
    assert_int_equal(frames.versions[2], 2);
    assert_slice(document.key, "runtime/run_summary:r1");
    uint8_t hash[SHA256_BYTES];
    sha256(document.payload.data, document.payload.size, hash);
    assert_memory_equal(hash, document.payload_hash, SHA256_BYTES);
    assert_int_equal(drifts_of(log).count, 0);
    expect_sound(log);
    log_close(log);
}

static void workers_feed_their_summaries_their_fleet_and_their_events(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    log_entity(log, ENTITY_WORKER, "w1")->owner.user_id = SLICE("u:1");
    log_entity(log, ENTITY_WORKER, "w2")->owner.guest_scope = SLICE("g1");
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{\"owner_user_id\":\"u:1\"}");
    log_append(log, ENTITY_WORKER, "w2", "worker.registered", "{\"owner_guest_scope\":\"g1\"}");
    log_append(log, ENTITY_WORKER, "w1", "worker.heartbeat", "{}");
    log_commit(log);
    log_append(log, ENTITY_WORKER, "w1", "worker.heartbeat", "{}");
    log_commit(log);
    assert_int_equal(frames_of(log, "runtime.codex_worker_summaries").count, 3);
    assert_int_equal(frames_of(log, "fleet:user:u:1:workers").count, 2);
    assert_int_equal(frames_of(log, "fleet:guest:g1:workers").count, 1);
    struct frames frames = frames_of(log, "runtime.codex_worker_events");
    assert_int_equal(frames.count, 4);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(frames.log_ids[i], i + 1);
    struct store_topic topic;
    assert_ok(store_load_stream(log->session, SLICE("runtime.fleet.user.u:1.workers"), &log->arena,
                                &topic));
    assert_slice(topic.name, "fleet:user:u:1:workers");
    expect_sound(log);
    log_close(log);
}

static void other_entities_have_no_summaries(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_TOPIC, "app.topic", "x", "{}");
    log_append(log, ENTITY_AUDIT, "audit", "y", "{}");
    log_commit(log);
    assert_int_equal(frames_of(log, "runtime.run_summaries").count, 0);
    assert_int_equal(projector_stats(log->projector).updates, 0);
    log_close(log);
}

static void a_restart_continues_from_the_stored_document(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    log_commit(log);
    log_restart(log);
    log_append(log, ENTITY_RUN, "r1", "run.finished", "{\"status\":\"succeeded\"}");
    log_commit(log);
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"owner_user_id\":\"u1\""));
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"event_count\":2"));
    assert_int_equal(log_document(log, ENTITY_RUN, "r1").version, 2);
    assert_int_equal(drifts_of(log).count, 0);
    log_close(log);
}

static void an_abandoned_commit_leaves_no_trace(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    const struct projection *projection = projector_projection(log->projector);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    log_commit(log);
    log_append(log, ENTITY_RUN, "r1", "lost", "{}");
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    struct store_state before = log->state;
    struct arena arena;
    arena_init(&arena, (size_t)1 << 20);
    (void)log_collect(log, &arena);
    projection->abandoned(projection->user);
    arena_release(&arena);
    log->state = before;
    /* The writer tries the same batch again. */
    log_commit(log);
    assert_int_equal(log_document(log, ENTITY_RUN, "r1").version, 2);
    assert_int_equal(log_document(log, ENTITY_WORKER, "w1").version, 1);
    assert_int_equal(frames_of(log, "runtime.run_summaries").count, 2);
    assert_int_equal(frames_of(log, "runtime.codex_worker_events").count, 1);
    expect_sound(log);
    log_close(log);
}

static void an_empty_cache_gives_the_same_documents(void **state) {
    (void)state;
    const struct projector_options options = {.cache_bytes_max = 1};
    struct stored_log *log = log_open(&options);
    char id[16];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            snprintf(id, sizeof(id), "r%d", i);
            log_append(log, ENTITY_RUN, id, round == 0 ? "run.started" : "x", "{}");
        }
        log_commit(log);
    }
    assert_int_equal(projector_stats(log->projector).cache_misses, 60);
    assert_int_equal(drifts_of(log).count, 0);
    expect_sound(log);
    log_close(log);
}

/* ---- drift --------------------------------------------------------------------------------- */

static struct stored_log *log_of_three(void) {
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    log_commit(log);
    log_append(log, ENTITY_RUN, "r1", "a", "{}");
    log_append(log, ENTITY_RUN, "r1", "b", "{}");
    log_commit(log);
    return log;
}

static void append_after_restart(struct stored_log *log) {
    log_restart(log);
    log_append(log, ENTITY_RUN, "r1", "after", "{}");
    log_commit(log);
}

static void an_altered_document_is_detected_and_folded_again(void **state) {
    (void)state;
    struct stored_log *log = log_of_three();
    log_alter(log, "UPDATE run_documents SET payload = replace(payload, 'u1', 'u2')");
    append_after_restart(log);
    expect_drift(log, REASON_SUMMARY_HASH_MISMATCH);
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"owner_user_id\":\"u1\""));
    assert_int_equal(log_document(log, ENTITY_RUN, "r1").version, 3);
    expect_sound(log);
    log_close(log);
}

static void a_missing_or_invalid_document_is_folded_again(void **state) {
    (void)state;
    const char *alterations[] = {
        "DELETE FROM run_documents",
        "UPDATE run_documents SET payload = 'garbage'",
        "UPDATE run_documents SET payload_hash = zeroblob(32)",
        "UPDATE run_documents SET doc_key = 'runtime/run_summary:r2'",
        "UPDATE checkpoints SET summary_hash = zeroblob(32)",
    };
    for (size_t i = 0; i < sizeof(alterations) / sizeof(alterations[0]); i++) {
        struct stored_log *log = log_of_three();
        log_alter(log, alterations[i]);
        append_after_restart(log);
        expect_drift(log, REASON_SUMMARY_HASH_MISMATCH);
        assert_true(log_document(log, ENTITY_RUN, "r1").version > 2);
        expect_sound(log);
        log_close(log);
    }
}

static void a_gap_is_filled_from_the_log(void **state) {
    (void)state;
    struct stored_log *log = log_of_three();
    log_append(log, ENTITY_RUN, "r1", "unseen", "{}");
    log_append(log, ENTITY_RUN, "r1", "run.cancel_requested", "{}");
    log_commit_unprojected(log);
    append_after_restart(log);
    expect_drift(log, REASON_SEQUENCE_GAP);
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"status\":\"canceling\""));
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"event_count\":6"));
    struct frames frames = frames_of(log, "runtime.run_summaries");
    assert_int_equal(frames.first_seq, 4);
    expect_sound(log);
    log_close(log);
}

static void a_gap_of_a_worker_publishes_the_missed_events(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    log_commit(log);
    log_append(log, ENTITY_WORKER, "w1", "worker.x", "{}");
    log_append(log, ENTITY_WORKER, "w1", "worker.y", "{}");
    log_commit_unprojected(log);
    log_append(log, ENTITY_WORKER, "w1", "worker.z", "{}");
    log_commit(log);
    struct frames frames = frames_of(log, "runtime.codex_worker_events");
    assert_int_equal(frames.count, 4);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(frames.log_ids[i], i + 1);
    expect_drift(log, REASON_SEQUENCE_GAP);
    log_close(log);
}

/* All events of the log are of workers. Each has exactly one frame. */
static void expect_each_event_once(struct stored_log *log, uint64_t count) {
    struct frames frames = frames_of(log, "runtime.codex_worker_events");
    assert_int_equal(frames.count, count);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(frames.log_ids[i], i + 1);
}

static void folding_a_worker_again_publishes_no_event_twice(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    log_append(log, ENTITY_WORKER, "w1", "worker.x", "{}");
    log_commit(log);
    log_alter(log, "UPDATE worker_documents SET payload = '{}'");
    log_restart(log);
    log_append(log, ENTITY_WORKER, "w1", "worker.y", "{}");
    log_commit(log);
    expect_drift(log, REASON_SUMMARY_HASH_MISMATCH);
    expect_each_event_once(log, 3);
    expect_sound(log);
    log_close(log);
}

static void a_commit_that_failed_but_was_stored_is_continued(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    const struct projection *projection = projector_projection(log->projector);
    struct arena arena;
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    log_commit(log);
    log_append(log, ENTITY_WORKER, "w1", "worker.x", "{}");
    arena_init(&arena, (size_t)1 << 20);
    struct store_batch batch = log_collect(log, &arena);
    assert_ok(store_commit(log->session, &batch));
    projection->abandoned(projection->user);
    arena_release(&arena);
    log->event_count = 0;
    log_append(log, ENTITY_WORKER, "w1", "worker.y", "{}");
    log_commit(log);
    assert_int_equal(log_document(log, ENTITY_WORKER, "w1").version, 3);
    assert_int_equal(drifts_of(log).count, 0);
    expect_each_event_once(log, 3);
    expect_sound(log);
    log_close(log);
}

static void an_entity_that_failed_is_projected_completely_later(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    const struct projection *projection = projector_projection(log->projector);
    struct arena arena;
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    log_append(log, ENTITY_WORKER, "w1", "worker.x", "{}");
    arena_init(&arena, (size_t)1 << 20);
    log->events[1].seq = 7;
    struct store_batch batch = log_collect(log, &arena);
    log->events[1].seq = 2;
    assert_int_equal(batch.document_count + batch.journal_count, 0);
    assert_ok(store_commit(log->session, &batch));
    projection->committed(projection->user);
    arena_release(&arena);
    log->event_count = 0;
    assert_int_equal(projector_stats(log->projector).failures, 1);
    log_commit(log);
    expect_each_event_once(log, 2);
    assert_int_equal(log_document(log, ENTITY_WORKER, "w1").version, 3);
    expect_sound(log);
    log_close(log);
}

static void without_a_checkpoint_all_events_are_folded_again(void **state) {
    (void)state;
    struct stored_log *log = log_of_three();
    log_alter(log, "DELETE FROM checkpoints");
    append_after_restart(log);
    expect_drift(log, REASON_SEQUENCE_GAP);
    assert_int_equal(log_document(log, ENTITY_RUN, "r1").version, 3);
    expect_sound(log);
    log_close(log);
}

static void a_checkpoint_ahead_is_rebuilt_from_the_log(void **state) {
    (void)state;
    struct stored_log *log = log_of_three();
    log_alter(log, "UPDATE checkpoints SET last_runtime_seq = 5");
    append_after_restart(log);
    expect_drift(log, REASON_CHECKPOINT_AHEAD);
    assert_int_equal(log_document(log, ENTITY_RUN, "r1").version, 3);
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"event_count\":4"));
    assert_int_equal(projector_stats(log->projector).skipped, 0);
    expect_sound(log);
    log_close(log);
}

static void another_projection_version_rewrites_the_document(void **state) {
    (void)state;
    struct stored_log *log = log_of_three();
    log->options.projection_version = SLICE("v2");
    append_after_restart(log);
    expect_drift(log, REASON_PROJECTION_VERSION_CHANGED);
    assert_true(document_has(log, ENTITY_RUN, "r1", "\"projection_version\":\"v2\""));
    expect_sound(log);
    log_close(log);
}

/* ---- sinks --------------------------------------------------------------------------------- */

/* Writes to the tables, or fails on demand. */
struct fickle {
    struct sink sink;
    bool is_failing;
    size_t writes;
};

static enum status fickle_write(void *user, const struct sink_commit *commit) {
    struct fickle *fickle = user;
    fickle->writes++;
    return fickle->is_failing ? STATUS_STORE_UNAVAILABLE : sink_tables.write(NULL, commit);
}

static void updates_that_a_sink_refused_come_with_the_next_commit(void **state) {
    (void)state;
    struct fickle fickle = {.is_failing = true};
    fickle.sink = (struct sink){"fickle", &fickle, fickle_write, NULL};
    const struct projector_options options = {.sink = &fickle.sink};
    struct stored_log *log = log_open(&options);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    log_commit(log);
    struct store_event event;
    assert_ok(store_load_event(log->session, 2, &log->arena, &event));
    assert_int_equal(frames_of(log, "runtime.run_summaries").count, 0);
    assert_int_equal(projector_stats(log->projector).failures, 2);
    fickle.is_failing = false;
    log_append(log, ENTITY_RUN, "r2", "run.started", "{}");
    log_commit(log);
    assert_int_equal(log_document(log, ENTITY_RUN, "r1").version, 2);
    assert_int_equal(frames_of(log, "runtime.run_summaries").count, 2);
    assert_int_equal(frames_of(log, "runtime.codex_worker_events").count, 1);
    expect_sound(log);
    size_t writes = fickle.writes;
    log_commit(log);
    assert_int_equal(fickle.writes, writes);
    log_close(log);
}

static void retries_end_when_a_sink_keeps_failing(void **state) {
    (void)state;
    struct fickle fickle = {.is_failing = true};
    fickle.sink = (struct sink){"fickle", &fickle, fickle_write, NULL};
    const struct projector_options options = {.sink = &fickle.sink};
    struct stored_log *log = log_open(&options);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    for (int i = 0; i < 2 * PROJECTOR_ATTEMPTS_MAX; i++)
        log_commit(log);
    assert_int_equal(projector_stats(log->projector).given_up, 1);
    assert_int_equal(fickle.writes, PROJECTOR_ATTEMPTS_MAX);
    fickle.is_failing = false;
    log_append(log, ENTITY_RUN, "r1", "a", "{}");
    log_commit(log);
    expect_drift(log, REASON_SEQUENCE_GAP);
    expect_sound(log);
    log_close(log);
}

static void the_noop_sink_writes_nothing(void **state) {
    (void)state;
    const struct projector_options options = {.sink = &sink_noop};
    struct stored_log *log = log_open(&options);
    log_append(log, ENTITY_RUN, "r1", "run.started", CREATED);
    log_commit(log);
    assert_int_equal(frames_of(log, "runtime.run_summaries").count, 0);
    assert_int_equal(drifts_of(log).count, 0);
    log_close(log);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_one_commit_become_one_update),
        cmocka_unit_test(workers_feed_their_summaries_their_fleet_and_their_events),
        cmocka_unit_test(other_entities_have_no_summaries),
        cmocka_unit_test(a_restart_continues_from_the_stored_document),
        cmocka_unit_test(an_abandoned_commit_leaves_no_trace),
        cmocka_unit_test(an_empty_cache_gives_the_same_documents),
        cmocka_unit_test(an_altered_document_is_detected_and_folded_again),
        cmocka_unit_test(a_missing_or_invalid_document_is_folded_again),
        cmocka_unit_test(a_gap_is_filled_from_the_log),
        cmocka_unit_test(a_gap_of_a_worker_publishes_the_missed_events),
        cmocka_unit_test(folding_a_worker_again_publishes_no_event_twice),
        cmocka_unit_test(a_commit_that_failed_but_was_stored_is_continued),
        cmocka_unit_test(an_entity_that_failed_is_projected_completely_later),
        cmocka_unit_test(without_a_checkpoint_all_events_are_folded_again),
        cmocka_unit_test(a_checkpoint_ahead_is_rebuilt_from_the_log),
        cmocka_unit_test(another_projection_version_rewrites_the_document),
        cmocka_unit_test(updates_that_a_sink_refused_come_with_the_next_commit),
        cmocka_unit_test(retries_end_when_a_sink_keeps_failing),
        cmocka_unit_test(the_noop_sink_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
