#include "stored_log.h"

#include "base/log.h"

struct seen {
    size_t count;
    char key[128];
    enum reason reason;
    char what[128];
    uint64_t done;
    uint64_t total;
};

static void see_drift(void *user, const struct reproject_drift *drift) {
    struct seen *seen = user;
    seen->count++;
    seen->reason = drift->reason;
    snprintf(seen->key, sizeof(seen->key), "%.*s", (int)drift->document_key.size,
             drift->document_key.data);
    snprintf(seen->what, sizeof(seen->what), "%s", drift->message);
}

static void see_progress(void *user, uint64_t done, uint64_t total) {
    struct seen *seen = user;
    assert_true(done >= seen->done);
    seen->done = done;
    seen->total = total;
}

static struct stored_log *populated(void) {
    struct stored_log *log = log_open(NULL);
    log_entity(log, ENTITY_WORKER, "w1")->owner.user_id = SLICE("u1");
    for (int i = 0; i < 30; i++) {
        log_append(log, ENTITY_RUN, i % 2 ? "r1" : "r2", i < 2 ? "run.started" : "x", "{}");
        log_append(log, ENTITY_WORKER, "w1", i ? "worker.heartbeat" : "worker.registered",
                   "{\"owner_user_id\":\"u1\"}");
        if (i % 7 == 0)
            log_commit(log);
    }
    log_append(log, ENTITY_TOPIC, "app", "x", "{}");
    log_commit(log);
    return log;
}

static struct reproject_result run(struct stored_log *log, bool apply, struct seen *seen) {
    const struct reproject_options options = {
        .apply = apply,
        .now_ms = ++log->now_ms,
        .user = seen,
        .on_drift = see_drift,
        .on_progress = see_progress,
    };
    struct reproject_result result;
    memset(seen, 0, sizeof(*seen));
    assert_ok(reproject(log->session, &options, &result));
    assert_int_equal(result.drifted, seen->count);
    assert_ok(store_read_state(log->session, &log->state));
    return result;
}

static uint64_t head_of(struct stored_log *log, const char *name) {
    struct store_topic topic;
    assert_ok(store_load_topic(log->session, slice_of(name), &log->arena, &topic));
    return topic.head_seq;
}

static void an_intact_store_has_no_drift(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct seen seen;
    struct reproject_result result = run(log, false, &seen);
    assert_int_equal(result.entities, 3);
    assert_int_equal(result.events, 60);
    assert_int_equal(result.drifted, 0);
    assert_int_equal(seen.done, 60);
    assert_int_equal(seen.total, 60);
    uint64_t head = head_of(log, "runtime.run_summaries");
    result = run(log, true, &seen);
    assert_int_equal(result.drifted + result.repaired, 0);
    assert_int_equal(head_of(log, "runtime.run_summaries"), head);
    log_close(log);
}

static void an_altered_document_is_reported_and_repaired_as_a_new_version(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct seen seen;
    uint64_t version = log_document(log, ENTITY_RUN, "r1").version;
    uint64_t head = head_of(log, "runtime.run_summaries");
    log_alter(log, "UPDATE run_documents SET payload = replace(payload, 'running', 'failed') "
                   "WHERE doc_key = 'runtime/run_summary:r1'");
    for (int i = 0; i < 2; i++) {
        run(log, false, &seen);
        assert_int_equal(seen.count, 1);
        assert_string_equal(seen.key, "runtime/run_summary:r1");
        assert_int_equal(seen.reason, REASON_SUMMARY_HASH_MISMATCH);
        assert_string_equal(seen.what, "the document differs from the log");
    }
    assert_int_equal(run(log, true, &seen).repaired, 1);
    assert_string_equal(seen.key, "runtime/run_summary:r1");
    struct store_document document = log_document(log, ENTITY_RUN, "r1");
    assert_int_equal(document.version, version + 1);
    assert_non_null(memmem(document.payload.data, document.payload.size, "running", 7));
    assert_int_equal(head_of(log, "runtime.run_summaries"), head + 1);
    assert_int_equal(run(log, false, &seen).drifted, 0);
    log_close(log);
}

static void an_altered_projected_at_is_drift(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct seen seen;
    log_alter(log, "UPDATE worker_documents SET payload = "
                   "replace(payload, '\"projected_at\":1', '\"projected_at\":2')");
    run(log, false, &seen);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.key, "runtime/codex_worker_summary:w1");
    log_close(log);
}

struct alteration {
    const char *sql;
    enum reason reason;
    const char *what;
    bool is_reemitted;
};

static void every_kind_of_drift_is_distinguished_and_repaired(void **state) {
    (void)state;
    const struct alteration alterations[] = {
        {"DELETE FROM worker_documents", REASON_SUMMARY_HASH_MISMATCH, "the document is missing",
         true},
        {"UPDATE worker_documents SET payload = 'x'", REASON_SUMMARY_HASH_MISMATCH,
         "the document differs from the log", true},
        {"UPDATE worker_documents SET doc_key = 'x'", REASON_SUMMARY_HASH_MISMATCH,
         "the document differs from the log", true},
        {"DELETE FROM checkpoints WHERE document_id LIKE '%w1'", REASON_SEQUENCE_GAP,
         "the checkpoint differs from the log", false},
        {"UPDATE checkpoints SET last_runtime_seq = 29 WHERE document_id LIKE '%w1'",
         REASON_SEQUENCE_GAP, "the checkpoint differs from the log", false},
        {"UPDATE checkpoints SET last_runtime_seq = 31 WHERE document_id LIKE '%w1'",
         REASON_CHECKPOINT_AHEAD, "the checkpoint differs from the log", false},
        {"UPDATE checkpoints SET summary_hash = zeroblob(32) WHERE document_id LIKE '%w1'",
         REASON_SUMMARY_HASH_MISMATCH, "the checkpoint differs from the log", false},
        {"UPDATE checkpoints SET projection_version = 'x' WHERE document_id LIKE '%w1'",
         REASON_PROJECTION_VERSION_CHANGED, "the checkpoint differs from the log", false},
    };
    struct stored_log *log = populated();
    for (size_t i = 0; i < sizeof(alterations) / sizeof(alterations[0]); i++) {
        struct seen seen;
        uint64_t head = head_of(log, "fleet:user:u1:workers");
        uint64_t event_head = head_of(log, "runtime.codex_worker_events");
        uint64_t version = log_document(log, ENTITY_WORKER, "w1").version;
        log_alter(log, alterations[i].sql);
        run(log, false, &seen);
        assert_int_equal(seen.count, 1);
        assert_string_equal(seen.key, "runtime/codex_worker_summary:w1");
        assert_int_equal(seen.reason, alterations[i].reason);
        assert_string_equal(seen.what, alterations[i].what);
        assert_int_equal(run(log, true, &seen).repaired, 1);
        assert_int_equal(head_of(log, "fleet:user:u1:workers"), head + alterations[i].is_reemitted);
        assert_int_equal(head_of(log, "runtime.codex_worker_events"), event_head);
        assert_true(log_document(log, ENTITY_WORKER, "w1").version >=
                    version + alterations[i].is_reemitted);
        assert_int_equal(run(log, false, &seen).drifted, 0);
    }
    log_close(log);
}

static void events_that_were_never_projected_are_projected(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct seen seen;
    uint64_t head = head_of(log, "runtime.codex_worker_events");
    log_append(log, ENTITY_WORKER, "w1", "worker.x", "{}");
    log_append(log, ENTITY_WORKER, "w2", "worker.registered", "{}");
    log_append(log, ENTITY_RUN, "r3", "run.started", "{}");
    log_commit_unprojected(log);
    assert_int_equal(run(log, false, &seen).drifted, 3);
    assert_int_equal(head_of(log, "runtime.codex_worker_events"), head);
    assert_int_equal(run(log, true, &seen).repaired, 3);
    assert_int_equal(head_of(log, "runtime.codex_worker_events"), head + 2);
    assert_int_equal(run(log, false, &seen).drifted, 0);
    assert_int_equal(log_document(log, ENTITY_RUN, "r3").version, 2);
    log_close(log);
}

static void a_single_entity_can_be_checked(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct reproject_result result;
    struct reproject_options options = {.kind = ENTITY_RUN, .id = SLICE("r2"), .now_ms = 1};
    log_alter(log, "UPDATE run_documents SET payload = '{}' WHERE doc_key LIKE '%r1'");
    assert_ok(reproject(log->session, &options, &result));
    assert_int_equal(result.entities, 1);
    assert_int_equal(result.drifted, 0);
    options.id = SLICE("r1");
    assert_ok(reproject(log->session, &options, &result));
    assert_int_equal(result.drifted, 1);
    options.kind = ENTITY_WORKER;
    assert_int_equal(reproject(log->session, &options, &result), STATUS_NOT_FOUND);
    log_close(log);
}

static void repairs_may_need_several_commits(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    char id[16];
    struct seen seen;
    for (int i = 0; i < LOG_ENTITIES_MAX; i++) {
        snprintf(id, sizeof(id), "r%d", i);
        log_append(log, i % 2 ? ENTITY_RUN : ENTITY_WORKER, id,
                   i % 2 ? "run.started" : "worker.registered", "{}");
    }
    log_commit_unprojected(log);
    log->entity_count = 0;
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof(id), "more%d", i);
        log_append(log, ENTITY_RUN, id, "run.started", "{}");
    }
    log_commit_unprojected(log);
    assert_int_equal(run(log, true, &seen).repaired, LOG_ENTITIES_MAX + 100);
    assert_int_equal(run(log, false, &seen).drifted, 0);
    assert_int_equal(head_of(log, "runtime.run_summaries"), LOG_ENTITIES_MAX / 2 + 100);
    log_close(log);
}

static void random_histories_rebuild_to_the_same_documents(void **state) {
    (void)state;
    static const char *const run_types[] = {"x", "run.started", "run.cancel_requested"};
    static const char *const worker_payloads[] = {"{}", "{\"metadata_patch\":{\"a\":1}}",
                                                  "{\"metadata_patch\":{\"a\":null,\"b\":[2]}}"};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t chance = seed;
        const struct projector_options options = {.cache_bytes_max = seed % 2 ? 1 : 0};
        struct stored_log *log = log_open(&options);
        for (int i = 0; i < 200; i++) {
            uint64_t choice = test_random(&chance);
            char id[8];
            snprintf(id, sizeof(id), "e%d", (int)(choice % 5));
            if (choice & 64)
                log_append(log, ENTITY_RUN, id, run_types[choice % 3], "{}");
            else
                log_append(log, ENTITY_WORKER, id, "worker.heartbeat", worker_payloads[choice % 3]);
            if (test_random(&chance) % 9 == 0)
                log_commit(log);
            if (test_random(&chance) % 50 == 0) {
                log_commit(log);
                log_restart(log);
            }
        }
        log_commit(log);
        struct seen seen;
        assert_int_equal(run(log, false, &seen).drifted, 0);
        log_close(log);
    }
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_intact_store_has_no_drift),
        cmocka_unit_test(an_altered_document_is_reported_and_repaired_as_a_new_version),
        cmocka_unit_test(an_altered_projected_at_is_drift),
        cmocka_unit_test(every_kind_of_drift_is_distinguished_and_repaired),
        cmocka_unit_test(events_that_were_never_projected_are_projected),
        cmocka_unit_test(a_single_entity_can_be_checked),
        cmocka_unit_test(repairs_may_need_several_commits),
        cmocka_unit_test(random_histories_rebuild_to_the_same_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
