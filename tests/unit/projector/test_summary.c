#include "base/limits.h"
#include "history.h"

#include "wire/canonical.h"

/* ---- random histories ---------------------------------------------------------------------- */

struct step {
    const char *type;
    const char *payload;
};

static const struct step run_steps[] = {
    {"run.started", "{\"owner_user_id\":\"u\",\"thread_id\":\"t\\n\"}"},
    {"run.progress", "{}"},
    {"a \"quoted\" type", "{\"x\":[1]}"},
    {"run.cancel_requested", "{}"},
    {"run.finished", "{\"reason\":\"because\\\\\",\"status\":\"failed\"}"},
    {"run.finished", "{\"status\":\"succeeded\"}"},
};

static const struct step worker_steps[] = {
    {"worker.registered",
     "{\"adapter\":\"x\",\"metadata\":{\"k\":[1,2]},\"owner_guest_scope\":\"g\"}"},
    {"worker.heartbeat", "{\"metadata_patch\":{\"\\\"\":1,\"a\":true}}"},
    {"worker.heartbeat", "{\"metadata_patch\":{\"a\":null,\"z\":{\"y\":0}}}"},
    {"worker.heartbeat", "{}"},
    {"worker.status_changed", "{\"reason\":\"r\",\"status\":\"stopped\"}"},
    {"worker.status_changed", "{\"status\":\"running\"}"},
    {"worker.anything", "{\"a\":1}"},
};

static void add_step(struct history *history, uint64_t choice) {
    bool is_run = history->kind == DOCUMENT_RUN_SUMMARY;
    const struct step *steps = is_run ? run_steps : worker_steps;
    size_t count = is_run ? sizeof(run_steps) / sizeof(run_steps[0])
                          : sizeof(worker_steps) / sizeof(worker_steps[0]);
    if (history->summary.common.latest_seq == 0)
        choice = 0;
    history_add(history, steps[choice % count].type, steps[choice % count].payload);
}

/* Ends a commit: the texts of the summary move to its document, by parsing it or by its marks. */
static void store_and_load(struct history *history, bool by_reading) {
    struct arena fresh;
    arena_init(&fresh, (size_t)64 << 20);
    if (by_reading) {
        char *document = history_document(history);
        struct slice copy = arena_copy(&fresh, slice_of(document));
        free(document);
        assert_ok(summary_read(fold_layout(history->kind), copy, history->summary.common.entity_id,
                               &history->summary.common));
    } else {
        assert_ok(fold_move(history->kind, &history->summary, &fresh));
    }
    arena_release(&history->arena);
    history->arena = fresh;
}

static void check_splits(enum document_kind kind, uint64_t seed) {
    uint64_t split_seed = seed * 31;
    struct history whole = history_begin(kind, "an \"id\"");
    struct history split = history_begin(kind, "an \"id\"");
    size_t count = 1 + test_random(&seed) % 40;
    for (size_t i = 0; i < count; i++) {
        uint64_t choice = test_random(&seed);
        add_step(&whole, choice);
        add_step(&split, choice);
        if (test_random(&split_seed) % 3 == 0)
            store_and_load(&split, test_random(&split_seed) % 2 == 0);
    }
    char *expected = history_document(&whole);
    history_expect(&split, expected);
    free(expected);
    arena_release(&whole.arena);
    arena_release(&split.arena);
}

static void documents_do_not_depend_on_the_split_into_commits(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        check_splits(DOCUMENT_RUN_SUMMARY, seed);
        check_splits(DOCUMENT_WORKER_SUMMARY, seed);
    }
}

static void documents_are_canonical(void **state) {
    (void)state;
    const struct json_limits limits = {SUMMARY_BYTES_MAX, JSON_DEPTH_MAX};
    struct canonical_scratch scratch;
    canonical_scratch_init(&scratch, (size_t)1 << 20);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t chance = seed;
        struct history history = history_begin(
            seed % 2 ? DOCUMENT_RUN_SUMMARY : DOCUMENT_WORKER_SUMMARY, "id\twith\\escapes");
        for (int i = 0; i < 10; i++)
            add_step(&history, test_random(&chance));
        char *document = history_document(&history);
        struct json_value value;
        struct payload_hash hash;
        assert_ok(json_parse(slice_of(document), &limits, &value));
        assert_ok(payload_hash(value, &scratch, &hash));
        assert_slice(buffer_slice(&scratch.text), document);
        free(document);
        arena_release(&history.arena);
    }
    canonical_scratch_release(&scratch);
}

/* ---- the codec ----------------------------------------------------------------------------- */

static void expect_source(const struct history *history, const char *source) {
    const struct summary_stamp stamp = {SLICE("v"), 1};
    struct summary_marks marks;
    struct buffer document;
    uint8_t hash[SHA256_BYTES];
    uint8_t hash_marked[SHA256_BYTES];
    uint8_t payload_hash[SHA256_BYTES];
    uint8_t payload_hash_marked[SHA256_BYTES];
    buffer_init(&document, SUMMARY_BYTES_MAX);
    assert_ok(summary_write(fold_layout(history->kind), &history->summary.common, &stamp, &document,
                            &marks));
    assert_non_null(memmem(document.data, document.size, source, strlen(source)));
    assert_ok(summary_hash(buffer_slice(&document), hash));
    sha256(document.data, document.size, payload_hash);
    summary_hash_marked(buffer_slice(&document), &marks, payload_hash_marked, hash_marked);
    assert_memory_equal(hash, hash_marked, SHA256_BYTES);
    assert_memory_equal(payload_hash, payload_hash_marked, SHA256_BYTES);
    buffer_release(&document);
}

/* Its hash by marks equals the hash by parsing. */
static void a_summary_names_its_last_event(void **state) {
    (void)state;
    struct history run = history_begin(DOCUMENT_RUN_SUMMARY, "r");
    struct history worker = history_begin(DOCUMENT_WORKER_SUMMARY, "w");
    for (int i = 0; i < 4; i++) {
        add_step(&run, 1);
        add_step(&worker, 6);
    }
    expect_source(&run, "{\"entity\":\"run\",\"run_id\":\"r\",\"seq\":4}");
    expect_source(&worker, "{\"entity\":\"worker\",\"seq\":4,\"worker_id\":\"w\"}");
    arena_release(&run.arena);
    arena_release(&worker.arena);
}

static void the_hash_excludes_only_projected_at(void **state) {
    (void)state;
    uint8_t expected[SHA256_BYTES];
    uint8_t hash[SHA256_BYTES];
    sha256("{\"a\":1,\"z\":2}", 13, expected);
    const char *same[] = {
        "{\"a\":1,\"projected_at\":5,\"z\":2}",
        "{\"a\":1,\"projected_at\":null,\"z\":2}",
        "{\"projected_at\":5,\"a\":1,\"z\":2}",
        "{\"a\":1,\"z\":2,\"projected_at\":{\"b\":[]}}",
        "{\"a\":1,\"z\":2}",
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        assert_ok(summary_hash(slice_of(same[i]), hash));
        assert_memory_equal(hash, expected, SHA256_BYTES);
    }
    assert_ok(summary_hash(SLICE("{\"a\":1,\"b\":{\"projected_at\":5},\"z\":2}"), hash));
    assert_memory_not_equal(hash, expected, SHA256_BYTES);
    assert_ok(summary_hash(SLICE("{\"projected_at\":5}"), hash));
    sha256("{}", 2, expected);
    assert_memory_equal(hash, expected, SHA256_BYTES);
    assert_int_not_equal(summary_hash(SLICE("[1]"), hash), STATUS_OK);
    assert_int_not_equal(summary_hash(SLICE("{\"a\""), hash), STATUS_OK);
}

static void refuse(struct history *history, const char *from, const char *to) {
    char altered[4096];
    union any_summary summary;
    char *document = history_document(history);
    char *at = strstr(document, from);
    assert_non_null(at);
    snprintf(altered, sizeof(altered), "%.*s%s%s", (int)(at - document), document, to,
             at + strlen(from));
    free(document);
    assert_int_not_equal(
        summary_read(fold_layout(history->kind), slice_of(altered), SLICE("w1"), &summary.common),
        STATUS_OK);
}

static void a_text_that_is_no_summary_is_refused(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_WORKER_SUMMARY, "w1");
    add_step(&history, 0);
    refuse(&history, "\"worker_id\":\"w1\",\"workspace", "\"worker_id\":\"w2\",\"workspace");
    refuse(&history, "\"latest_seq\":1", "\"latest_seq\":-1");
    refuse(&history, "\"latest_seq\":1,", "");
    refuse(&history, "\"latest_event_at\":1700000000001", "\"latest_event_at\":\"yesterday\"");
    refuse(&history, "\"status\":\"starting\"", "\"status\":1");
    refuse(&history, "\"metadata\":{\"k\":[1,2]}", "\"metadata\":[]");
    refuse(&history, "{\"adapter\"", "[\"adapter\"");
    arena_release(&history.arena);
}

static void a_full_buffer_or_arena_is_reported(void **state) {
    (void)state;
    const struct summary_stamp stamp = {SLICE("v"), 1};
    struct summary_marks marks;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    struct buffer small;
    add_step(&history, 0);
    buffer_init(&small, 100);
    assert_int_equal(
        summary_write(&run_summary_layout, &history.summary.common, &stamp, &small, &marks),
        STATUS_PAYLOAD_TOO_LARGE);
    buffer_release(&small);
    struct arena none;
    arena_init(&none, 1);
    struct store_event event = history_event(2, "another type", "{}");
    assert_int_equal(fold_event(history.kind, &history.summary, &event, &none),
                     STATUS_OUT_OF_MEMORY);
    arena_release(&none);
    arena_release(&history.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_do_not_depend_on_the_split_into_commits),
        cmocka_unit_test(documents_are_canonical),
        cmocka_unit_test(a_summary_names_its_last_event),
        cmocka_unit_test(the_hash_excludes_only_projected_at),
        cmocka_unit_test(a_text_that_is_no_summary_is_refused),
        cmocka_unit_test(a_full_buffer_or_arena_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
