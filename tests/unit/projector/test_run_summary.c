#include "authority/run_report.h"
#include "history.h"
#include "vectors.h"

static void a_started_run_has_every_field(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started",
                "{\"metadata\":{\"a\":1},\"org_id\":\"o1\",\"owner_user_id\":\"u1\",\"parent_run_"
                "id\":\"r0\","
                "\"run_id\":\"r1\",\"tags\":[\"x\"],\"thread_id\":\"t1\",\"title\":\"T\",\"worker_"
                "id\":\"w1\"}");
    history_expect(
        &history,
        "{\"current_step\":null,\"document_id\":\"runtime/run_summary:r1\",\"error\":null,"
        "\"event_count\":1,\"kind\":\"run_summary\",\"latest_event_at\":1700000000001,"
        "\"latest_event_type\":\"run.started\",\"latest_seq\":1,\"metadata\":{\"a\":1},"
        "\"open_steps\":0,\"org_id\":\"o1\",\"other_open_steps\":[],"
        "\"owner_guest_scope\":null,\"owner_user_id\":\"u1\",\"parent_run_id\":\"r0\","
        "\"projected_at\":1,\"projection_version\":\"khala_summary_v2\",\"run_id\":\"r1\","
        "\"runtime_source\":{\"entity\":\"run\",\"run_id\":\"r1\",\"seq\":1},"
        "\"started_at\":1700000000001,\"status\":\"running\",\"tags\":[\"x\"],"
        "\"terminal_at\":null,\"terminal_reason\":null,\"terminal_reason_class\":null,"
        "\"thread_id\":\"t1\",\"title\":\"T\",\"updated_at\":1700000000001,\"usage\":null,"
        "\"waiting\":null,\"worker_id\":\"w1\"}");
    arena_release(&history.arena);
}

static void expect_end(const char *finish, const char *status, const char *class,
                       const char *reason) {
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"run_id\":\"r1\"}");
    history_add(&history, "run.finished", finish);
    history_add(&history, "note", "{\"status\":\"failed\"}");
    const struct summary *summary = &history.summary.common;
    assert_slice(summary->status, status);
    assert_slice(summary->terminal_reason_class, class);
    assert_slice(summary->terminal_reason, reason);
    assert_int_equal(summary->terminal_at_ms, HISTORY_TIME_MS + 2);
    assert_int_equal(summary->latest_event_at_ms, HISTORY_TIME_MS + 3);
    assert_int_equal(summary->event_count, 3);
    arena_release(&history.arena);
}

static void a_finished_run_has_an_outcome_and_a_reason(void **state) {
    (void)state;
    expect_end("{\"status\":\"succeeded\"}", "\"succeeded\"", "\"completed\"", "null");
    expect_end("{\"reason\":\"a \\\"b\\\"\",\"status\":\"failed\"}", "\"failed\"", "\"failed\"",
               "\"a \\\"b\\\"\"");
    expect_end("{\"status\":\"canceled\"}", "\"canceled\"", "\"canceled\"", "null");
    expect_end("{\"reason\":7,\"status\":\"cancelled\"}", "\"canceled\"", "\"canceled\"", "null");
}

static void only_three_event_types_change_the_status(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"run_id\":\"r1\"}");
    history_add(&history, "run.progress", "{\"status\":\"failed\"}");
    assert_slice(history.summary.common.status, "\"running\"");
    history_add(&history, "run.cancel_requested", "{}");
    assert_slice(history.summary.common.status, "\"canceling\"");
    history_add(&history, "run.finished", "{\"status\":\"failed\"}");
    assert_slice(history.summary.common.status, "\"failed\"");
    arena_release(&history.arena);
}

static void starting_again_does_not_change_the_owner(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"owner_guest_scope\":\"g1\",\"run_id\":\"r1\"}");
    history_add(&history, "run.cancel_requested", "{}");
    history_add(&history, "run.started", "{\"owner_user_id\":\"thief\",\"thread_id\":\"t\"}");
    assert_slice(history.summary.common.owner_guest_scope, "\"g1\"");
    assert_slice(history.summary.common.owner_user_id, "null");
    assert_slice(history.summary.run.thread_id, "null");
    assert_slice(history.summary.common.status, "\"canceling\"");
    arena_release(&history.arena);
}

static void payloads_of_any_shape_are_counted(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "run.started", "{\"owner_user_id\":5,\"thread_id\":{}}");
    history_add(&history, "a\"b", "[1]");
    history_add(&history, "run.finished", "null");
    history_add(&history, "run.finished", "{\"status\":\"unheard of\"}");
    assert_slice(history.summary.common.status, "\"running\"");
    assert_slice(history.summary.common.owner_user_id, "null");
    assert_int_equal(history.summary.common.event_count, 4);
    arena_release(&history.arena);
}

static void a_type_is_quoted(void **state) {
    (void)state;
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    history_add(&history, "a\"b", "{}");
    assert_slice(history.summary.common.latest_event_type, "\"a\\\"b\"");
    history_add(&history, "a\"b", "{}");
    assert_slice(history.summary.common.latest_event_type, "\"a\\\"b\"");
    arena_release(&history.arena);
}

/* Folds an event onto the summary as it is, and onto what was read from its document. */
struct twofold {
    struct history straight;
    struct history stored;
    char *document;
};

static void twofold_add(struct twofold *fold, const char *type, const char *payload) {
    history_add(&fold->straight, type, payload);
    history_add(&fold->stored, type, payload);
    char *before = fold->document;
    fold->document = history_document(&fold->stored);
    assert_ok(summary_read(fold_layout(DOCUMENT_RUN_SUMMARY), slice_of(fold->document), SLICE("r"),
                           &fold->stored.summary.common));
    free(before);
}

static struct twofold twofold_begin(void) {
    return (struct twofold){.straight = history_begin(DOCUMENT_RUN_SUMMARY, "r"),
                            .stored = history_begin(DOCUMENT_RUN_SUMMARY, "r")};
}

/* The document of both, which must be the same. The caller frees it. */
static char *twofold_end(struct twofold *fold) {
    char *document = history_document(&fold->straight);
    assert_string_equal(document, fold->document);
    free(fold->document);
    arena_release(&fold->straight.arena);
    arena_release(&fold->stored.arena);
    return document;
}

static void summaries_follow_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("run_summary"), *vector;
    size_t i, j;
    json_array_foreach(vectors_array(vectors, "summaries"), i, vector) {
        struct twofold fold = twofold_begin();
        json_t *event, *wanted;
        const char *name;
        json_array_foreach(vectors_array(vector, "events"), j, event) {
            char *payload = json_dumps(json_array_get(event, 1), JSON_COMPACT | JSON_SORT_KEYS);
            twofold_add(&fold, json_string_value(json_array_get(event, 0)), payload);
            free(payload);
        }
        char *text = twofold_end(&fold);
        json_t *document = json_loads(text, 0, NULL);
        assert_non_null(document);
        json_object_foreach(json_object_get(vector, "summary"), name, wanted) {
            if (!json_equal(json_object_get(document, name), wanted))
                fail_msg("%s: %s of %s", vector_text(vector, "about").data, name, text);
        }
        json_decref(document);
        free(text);
    }
    json_decref(vectors);
}

/* A text of any size, of characters of two bytes behind one of one byte. */
static void fill(char *text, size_t size) {
    text[0] = 'x';
    for (size_t i = 1; i + 1 < size; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[size] = '\0';
}

static void an_error_is_cut_between_two_characters(void **state) {
    (void)state;
    static char message[4002], event[9000];
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    fill(message, 4001);
    snprintf(event, sizeof(event),
             "{\"error\":{\"code\":\"%s\",\"message\":\"\\n%s\"},\"status\":\"failed\"}", message,
             message);
    history_add(&history, "run.started", "{\"run_id\":\"r1\"}");
    history_add(&history, "run.finished", event);
    json_t *error =
        json_loadb(history.summary.run.error.data, history.summary.run.error.size, 0, NULL);
    assert_int_equal(json_string_length(json_object_get(error, "code")), 127);
    assert_int_equal(json_string_length(json_object_get(error, "message")), 1024);
    json_decref(error);
    arena_release(&history.arena);
}

/* Metadata of runs that were created before the limit is kept, and cannot grow. */
static void metadata_from_before_the_limit_is_kept(void **state) {
    (void)state;
    static char large[RUN_METADATA_BYTES_MAX + 1], event[2 * sizeof(large)];
    struct history history = history_begin(DOCUMENT_RUN_SUMMARY, "r1");
    memset(large, 'x', RUN_METADATA_BYTES_MAX);
    snprintf(event, sizeof(event), "{\"metadata\":{\"a\":\"%s\",\"b\":1},\"run_id\":\"r1\"}",
             large);
    history_add(&history, "run.started", event);
    size_t size = history.summary.run.metadata.size;
    assert_int_equal(size, RUN_METADATA_BYTES_MAX + 14);
    history_add(&history, "run.updated", "{\"metadata_patch\":{\"c\":1},\"title\":\"lost\"}");
    assert_int_equal(history.summary.run.metadata.size, size);
    assert_slice(history.summary.run.title, "null");
    history_add(&history, "run.updated", "{\"metadata_patch\":{\"b\":null},\"title\":\"kept\"}");
    assert_int_equal(history.summary.run.metadata.size, size - 6);
    assert_slice(history.summary.run.title, "\"kept\"");
    history_add(&history, "run.updated", "{\"metadata_patch\":{\"a\":2}}");
    assert_slice(history.summary.run.metadata, "{\"a\":2}");
    arena_release(&history.arena);
}

/* Random events of all types and shapes: a summary that is read from its document after each event
 * is the one that was folded without. */
static void a_stored_summary_folds_on_like_one_in_memory(void **state) {
    (void)state;
    static const char *const events[][2] = {
        {"run.step_started", "{\"name\":\"n\",\"step_id\":\"#\"}"},
        {"run.step_started", "{\"name\":\"\\\"\",\"step_id\":\"1#\"}"},
        {"run.step_finished", "{\"step_id\":\"#\"}"},
        {"run.usage", "{\"cost\":\"0.#\",\"input_tokens\":#}"},
        {"run.usage", "{\"model\":\"m#\"}"},
        {"run.updated", "{\"metadata_patch\":{\"k#\":{\"a\":1}}}"},
        {"run.updated", "{\"metadata_patch\":{\"k#\":null}}"},
        {"run.updated", "{\"tags\":[\"t#\"],\"title\":\"T\"}"},
        {"run.waiting", "{\"for\":\"input\",\"question\":\"q#\"}"},
        {"run.resumed", "{}"},
        {"note", "{}"},
    };
    uint64_t seed = 7;
    for (int round = 0; round < 20; round++) {
        struct twofold fold = twofold_begin();
        twofold_add(&fold, "run.started", "{\"run_id\":\"r\"}");
        for (int i = 0; i < 200; i++) {
            char payload[100] = "";
            uint64_t pick = test_random(&seed) % (sizeof(events) / sizeof(events[0]));
            char digit = (char)('0' + test_random(&seed) % 10);
            strcpy(payload, events[pick][1]);
            for (char *at = payload; (at = strchr(at, '#'));)
                *at = digit;
            twofold_add(&fold, events[pick][0], payload);
        }
        twofold_add(&fold, "run.finished", "{\"error\":\"x\",\"status\":\"failed\"}");
        free(twofold_end(&fold));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_started_run_has_every_field),
        cmocka_unit_test(a_finished_run_has_an_outcome_and_a_reason),
        cmocka_unit_test(only_three_event_types_change_the_status),
        cmocka_unit_test(starting_again_does_not_change_the_owner),
        cmocka_unit_test(payloads_of_any_shape_are_counted),
        cmocka_unit_test(a_type_is_quoted),
        cmocka_unit_test(summaries_follow_the_vectors),
        cmocka_unit_test(an_error_is_cut_between_two_characters),
        cmocka_unit_test(metadata_from_before_the_limit_is_kept),
        cmocka_unit_test(a_stored_summary_folds_on_like_one_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
