/* Reading single rows: every row whole, every position found. */
#include "backend.h"
#include "lookup.h"
#include "rows.h"
#include "rows_check.h"

static void assert_entity(const struct store_entity *actual, const struct store_entity *expected) {
    assert_int_equal(actual->ref, expected->ref);
    assert_int_equal(actual->kind, expected->kind);
    assert_text(actual->id, expected->id);
    assert_owner(&actual->owner, &expected->owner);
    assert_text(actual->status, expected->status);
    assert_text(actual->worker_id, expected->worker_id);
    assert_text(actual->thread_id, expected->thread_id);
    assert_text(actual->workspace_ref, expected->workspace_ref);
    assert_text(actual->codex_home_ref, expected->codex_home_ref);
    assert_text(actual->adapter, expected->adapter);
    assert_text(actual->metadata, expected->metadata);
    assert_int_equal(actual->created_at_ms, expected->created_at_ms);
    assert_int_equal(actual->started_at_ms, expected->started_at_ms);
    assert_int_equal(actual->stopped_at_ms, expected->stopped_at_ms);
    assert_int_equal(actual->last_heartbeat_at_ms, expected->last_heartbeat_at_ms);
}

static void a_new_store_has_an_epoch_and_the_fixed_topics(void **state) {
    struct fixture *fixture = *state;
    struct store_state at;
    assert_ok(store_read_state(fixture->reader, &at));
    assert_int_equal(strlen(at.epoch), STORE_EPOCH_SIZE);
    assert_int_equal(at.log_id, 0);
    assert_int_equal(at.entity_ref, 1);
    assert_int_equal(at.topic_ref, 4);
    static const struct {
        const char *name, *stream_id;
        uint64_t ref, entity_ref;
    } fixed[] = {
        {"runtime.run_summaries", "runtime.topic.runtime.run_summaries", 1, 0},
        {"runtime.codex_worker_summaries", "runtime.topic.runtime.codex_worker_summaries", 2, 0},
        {"runtime.codex_worker_events", "runtime.codex.worker.events", 3, 0},
        {"runtime.notifications", "runtime.topic.runtime.notifications", 4, 1},
    };
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        struct store_topic topic, stream;
        assert_ok(
            store_load_topic(fixture->reader, slice_of(fixed[i].name), &fixture->arena, &topic));
        assert_ok(store_load_stream(fixture->reader, slice_of(fixed[i].stream_id), &fixture->arena,
                                    &stream));
        assert_int_equal(topic.ref, fixed[i].ref);
        assert_int_equal(stream.ref, fixed[i].ref);
        assert_int_equal(topic.entity_ref, fixed[i].entity_ref);
        assert_int_equal(topic.oldest_seq, 1);
        assert_int_equal(topic.head_seq, 0);
    }
    struct store_entity entity;
    assert_ok(store_load_entity(fixture->reader, ENTITY_TOPIC, SLICE("runtime.notifications"),
                                &fixture->arena, &entity));
    assert_int_equal(entity.ref, 1);
}

static void the_epoch_and_the_state_survive_a_reopen(void **state) {
    struct fixture *fixture = *state;
    struct store_state before, after;
    check_fill(fixture);
    assert_ok(store_read_state(fixture->writer, &before));
    fixture_reopen(fixture);
    assert_ok(store_read_state(fixture->reader, &after));
    assert_string_equal(before.epoch, after.epoch);
    assert_int_equal(after.log_id, CHECK_EVENTS);
    assert_int_equal(after.entity_ref, 3);
    struct uuid cursor = rows_cursor(CHECK_EVENTS);
    assert_memory_equal(&after.cursor, &cursor, sizeof(cursor));
}

static void the_state_has_the_greatest_event_id_of_clients_and_server(void **state) {
    struct fixture *fixture = *state;
    struct store_state at;
    struct uuid none = {{0}};
    assert_ok(store_read_state(fixture->reader, &at));
    assert_memory_equal(&at.event_id_max, &none, sizeof(none));
    check_fill(fixture);
    assert_ok(store_read_state(fixture->reader, &at));
    assert_memory_equal(&at.event_id_max, &at.cursor, sizeof(none));
    struct store_event event = rows_event(CHECK_EVENTS + 1, 2, CHECK_EVENTS / 2 + 1);
    event.event_id = event.cursor;
    event.event_id.bytes[0] = 0x0f;
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1}));
    assert_ok(store_read_state(fixture->reader, &at));
    assert_memory_equal(&at.event_id_max, &event.event_id, sizeof(none));
}

static void two_stores_have_two_epochs(void **state) {
    struct fixture *fixture = *state, other;
    struct store_state here, there;
    fixture_open(&other, fixture->backend);
    assert_ok(store_read_state(fixture->reader, &here));
    assert_ok(store_read_state(other.reader, &there));
    assert_string_not_equal(here.epoch, there.epoch);
    fixture_close(&other);
}

static void every_field_of_an_entity_is_read_back(void **state) {
    struct fixture *fixture = *state;
    struct rows_text id;
    struct store_entity run = rows_run(2, &id), bare = {.ref = 3, .kind = ENTITY_AUDIT}, read;
    bare.id = SLICE("audit");
    bare.metadata = SLICE(""); /* present and empty is not absent */
    struct store_entity both[] = {run, bare};
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.entities = both, .entity_count = 2}));
    fixture_reopen(fixture);
    assert_ok(store_load_entity(fixture->reader, ENTITY_RUN, run.id, &fixture->arena, &read));
    assert_entity(&read, &run);
    assert_ok(store_load_entity_ref(fixture->reader, 3, &fixture->arena, &read));
    assert_entity(&read, &bare);
    assert_int_equal(read.head_seq, 0);
}

static void absent_rows_are_not_found(void **state) {
    struct fixture *fixture = *state;
    struct store_entity entity;
    struct store_event event;
    struct store_topic topic;
    struct store_document document;
    struct store_checkpoint checkpoint;
    struct arena *arena = &fixture->arena;
    struct uuid id = rows_client_id(1);
    uint64_t log_id = 77;
    check_fill(fixture);
    struct store_session *reader = fixture->reader;
    assert_int_equal(store_load_entity(reader, ENTITY_RUN, SLICE("run-9"), arena, &entity),
                     STATUS_NOT_FOUND);
    assert_int_equal(store_load_entity(reader, ENTITY_WORKER, SLICE("run-2"), arena, &entity),
                     STATUS_NOT_FOUND);
    assert_int_equal(store_load_entity(reader, ENTITY_RUN, SLICE("RUN-2"), arena, &entity),
                     STATUS_NOT_FOUND);
    assert_int_equal(store_load_entity_ref(reader, 4, arena, &entity), STATUS_NOT_FOUND);
    assert_int_equal(store_load_entity_ref(reader, UINT64_MAX, arena, &entity), STATUS_NOT_FOUND);
    assert_int_equal(store_load_event(reader, 0, arena, &event), STATUS_NOT_FOUND);
    assert_int_equal(store_load_event(reader, CHECK_EVENTS + 1, arena, &event), STATUS_NOT_FOUND);
    assert_int_equal(lookup_event_id(fixture->writer, &id, &log_id), STATUS_NOT_FOUND);
    assert_int_equal(lookup_key(fixture->writer, 2, SLICE("key"), &log_id), STATUS_NOT_FOUND);
    assert_int_equal(store_load_topic(reader, SLICE("none"), arena, &topic), STATUS_NOT_FOUND);
    assert_int_equal(store_load_stream(reader, SLICE("none"), arena, &topic), STATUS_NOT_FOUND);
    assert_int_equal(store_load_document(reader, DOCUMENT_RUN_SUMMARY, 2, arena, &document),
                     STATUS_NOT_FOUND);
    assert_int_equal(store_load_checkpoint(reader, DOCUMENT_RUN_SUMMARY, 2, arena, &checkpoint),
                     STATUS_NOT_FOUND);
    assert_int_equal(log_id, 77);
}

static void every_field_of_an_event_is_read_back(void **state) {
    struct fixture *fixture = *state;
    struct store_event read, expected = rows_event(7, 2, 4);
    check_fill(fixture);
    fixture_reopen(fixture);
    assert_ok(store_load_event(fixture->reader, 7, &fixture->arena, &read));
    assert_event(&read, &expected);
    assert_int_equal(read.entity_kind, ENTITY_RUN);
    assert_slice(read.entity_id, "run-2");
}

static void an_events_own_owner_and_id_are_kept(void **state) {
    struct fixture *fixture = *state;
    struct store_event read, event = rows_event(1, 1, 1);
    event.owner = (struct owner){.guest_scope = SLICE("guest"), .user_id = SLICE("")};
    event.event_id = rows_client_id(9);
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1}));
    assert_ok(store_load_event(fixture->reader, 1, &fixture->arena, &read));
    assert_event(&read, &event);
    assert_int_equal(read.entity_kind, ENTITY_TOPIC);
    assert_slice(read.entity_id, "runtime.notifications");
}

static void the_largest_payload_is_kept(void **state) {
    struct fixture *fixture = *state;
    size_t size = 262144;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    uint64_t seed = 5;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)('a' + test_random(&seed) % 26);
    struct store_event read, event = rows_event(1, 1, 1);
    event.payload = (struct slice){bytes, size};
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.events = &event, .event_count = 1}));
    fixture_reopen(fixture);
    assert_ok(store_load_event(fixture->reader, 1, &fixture->arena, &read));
    assert_event(&read, &event);
    free(bytes);
}

static void a_row_too_large_for_the_arena_is_refused(void **state) {
    struct fixture *fixture = *state;
    struct arena small;
    struct store_entity entity;
    check_fill(fixture);
    arena_init(&small, 8);
    assert_int_equal(store_load_entity_ref(fixture->reader, 2, &small, &entity),
                     STATUS_OUT_OF_MEMORY);
    assert_true(strlen(store_session_error(fixture->reader)) > 0);
    arena_release(&small);
    assert_ok(store_load_entity_ref(fixture->reader, 2, &fixture->arena, &entity));
}

static void the_head_of_an_entity_is_its_last_event(void **state) {
    struct fixture *fixture = *state;
    struct store_entity entity;
    uint8_t hash[SHA256_BYTES];
    check_fill(fixture);
    assert_ok(store_load_entity_ref(fixture->reader, 3, &fixture->arena, &entity));
    assert_int_equal(entity.head_seq, CHECK_EVENTS / 2);
    rows_hash(hash, 3 * CHECK_EVENTS + 2);
    assert_memory_equal(entity.head_hash, hash, sizeof(hash));
    struct store_event next = rows_event(CHECK_EVENTS + 1, 3, CHECK_EVENTS / 2 + 1);
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.events = &next, .event_count = 1}));
    assert_ok(
        store_load_entity(fixture->reader, ENTITY_RUN, SLICE("run-3"), &fixture->arena, &entity));
    assert_int_equal(entity.head_seq, CHECK_EVENTS / 2 + 1);
    assert_memory_equal(entity.head_hash, next.chain_hash, sizeof(hash));
}

/* ---- positions --------------------------------------------------------------------------------
 */

static uint64_t position(struct fixture *fixture, uint64_t timestamp_ms, struct uuid uuid) {
    struct event_cursor cursor = {timestamp_ms, uuid};
    uint64_t log_id = UINT64_MAX;
    assert_ok(store_find_cursor(fixture->reader, &cursor, &log_id));
    return log_id;
}

static void every_cursor_finds_its_event(void **state) {
    struct fixture *fixture = *state;
    check_fill(fixture);
    for (uint64_t i = 1; i <= CHECK_EVENTS; i++) {
        struct uuid uuid = rows_cursor(i);
        assert_int_equal(position(fixture, rows_time_ms(i), uuid), i);
        uuid.bytes[15]--; /* just before it */
        assert_int_equal(position(fixture, rows_time_ms(i), uuid), i - 1);
        uuid.bytes[15] = (uint8_t)(uuid.bytes[15] + 1);
        uuid.bytes[8] |= 1; /* well after it, in the same millisecond */
        uint64_t last_of_ms = i / 3 * 3 + 2 < CHECK_EVENTS ? i / 3 * 3 + 2 : CHECK_EVENTS;
        assert_int_equal(position(fixture, rows_time_ms(i), uuid), last_of_ms);
    }
}

static void a_cursor_before_the_first_or_after_the_last_event_is_a_position(void **state) {
    struct fixture *fixture = *state;
    struct uuid zero = {{0}}, any = rows_cursor(5);
    assert_int_equal(position(fixture, rows_time_ms(5), any), 0); /* of an empty log */
    check_fill(fixture);
    assert_int_equal(position(fixture, 0, zero), 0);
    assert_int_equal(position(fixture, rows_time_ms(1) - 1, any), 0);
    assert_int_equal(position(fixture, rows_time_ms(1), zero), 0);
    assert_int_equal(position(fixture, rows_time_ms(CHECK_EVENTS) + 1, zero), CHECK_EVENTS);
    assert_int_equal(position(fixture, EVENT_CURSOR_TIMESTAMP_MS_MAX, any), CHECK_EVENTS);
    /* Between two milliseconds of the log. */
    assert_int_equal(position(fixture, rows_time_ms(6) - 1, any), 5);
}

static void positions_are_found_in_logs_of_every_size_and_pace(void **state) {
    struct fixture *fixture = *state;
    uint64_t seed = 11;
    uint64_t timestamp_ms = 1000;
    struct uuid cursors[301];
    for (uint64_t i = 1; i <= 300; i++) {
        /* Bursts, pauses and one jump of decades. */
        uint64_t step = test_random(&seed) % 4;
        timestamp_ms += step == 0 ? 0 : step == 1 ? 1 : test_random(&seed) % 1000;
        timestamp_ms += i == 200 ? UINT64_C(1000000000000) : 0;
        struct store_event event = rows_event(i, 1, i);
        for (int k = 0; k < 6; k++)
            event.cursor.bytes[k] = (uint8_t)(timestamp_ms >> (40 - 8 * k));
        event.event_id = cursors[i] = event.cursor;
        assert_ok(store_commit(fixture->writer,
                               &(struct store_batch){.events = &event, .event_count = 1}));
        if (i > 20 && i % 50 != 0)
            continue;
        for (uint64_t k = 1; k <= i; k++) {
            struct event_cursor at = event_cursor_of(&cursors[k]);
            assert_int_equal(position(fixture, at.timestamp_ms, at.uuid), k);
        }
    }
}

static void assert_replay(struct fixture *fixture, const struct store_topic *topic,
                          const uint64_t asked[2], uint64_t frame_count, uint64_t frame_bytes) {
    struct store_replay replay = {99, 99};
    assert_ok(store_measure_replay(fixture->reader, topic, asked[0], asked[1], &replay));
    assert_int_equal(replay.frame_count, frame_count);
    assert_int_equal(replay.payload_bytes, frame_count * frame_bytes);
}

static void a_replay_is_measured_in_frames_and_bytes(void **state) {
    struct fixture *fixture = *state;
    struct store_journal_row rows[20];
    const uint64_t event_bytes = rows_event(1, 1, 1).payload.size;
    check_fill(fixture);
    for (uint64_t i = 0; i < 20; i++) {
        rows[i] = rows_journal(1 + i % 2 * 2, i / 2 + 1, 20 - i);
        if (i % 2)
            rows[i].payload = (struct slice){0};
    }
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.journal = rows, .journal_count = 20}));
    const struct store_topic documents = {.ref = 1}, events = {.ref = 3}, none = {.ref = 2};
    const struct store_topic run = {.ref = 9, .entity_ref = 2};
    assert_replay(fixture, &documents, (uint64_t[]){0, UINT64_MAX}, 10, rows[0].payload.size);
    assert_replay(fixture, &documents, (uint64_t[]){4, 3}, 3, rows[0].payload.size);
    assert_replay(fixture, &events, (uint64_t[]){4, 100}, 6, event_bytes);
    assert_replay(fixture, &events, (uint64_t[]){10, 100}, 0, event_bytes);
    assert_replay(fixture, &events, (uint64_t[]){UINT64_MAX, 100}, 0, event_bytes);
    assert_replay(fixture, &none, (uint64_t[]){0, 100}, 0, event_bytes);
    assert_replay(fixture, &run, (uint64_t[]){0, UINT64_MAX}, CHECK_EVENTS / 2, event_bytes);
    assert_replay(fixture, &run, (uint64_t[]){CHECK_EVENTS / 2 - 1, 5}, 1, event_bytes);
    assert_replay(fixture, &run, (uint64_t[]){3, 0}, 0, event_bytes);
}

static void checkpoints_are_kept_by_kind(void **state) {
    struct fixture *fixture = *state;
    struct store_checkpoint read, checkpoints[] = {rows_checkpoint(DOCUMENT_RUN_SUMMARY, 8, 5),
                                                   rows_checkpoint(DOCUMENT_WORKER_SUMMARY, 9, 6)};
    assert_ok(store_commit(
        fixture->writer, &(struct store_batch){.checkpoints = checkpoints, .checkpoint_count = 2}));
    fixture_reopen(fixture);
    for (int i = 0; i < 2; i++) {
        const uint64_t ref = checkpoints[i].entity_ref;
        assert_int_equal(store_load_checkpoint(fixture->reader, (enum document_kind)(1 - i), ref,
                                               &fixture->arena, &read),
                         STATUS_NOT_FOUND);
        assert_ok(store_load_checkpoint(fixture->reader, (enum document_kind)i, ref,
                                        &fixture->arena, &read));
        assert_int_equal(read.kind, i);
        assert_int_equal(read.entity_ref, ref);
        assert_int_equal(read.last_runtime_seq, 5 + i);
        assert_text(read.document_id, checkpoints[i].document_id);
        assert_text(read.projection_version, checkpoints[i].projection_version);
        assert_memory_equal(read.summary_hash, checkpoints[i].summary_hash, SHA256_BYTES);
        assert_int_equal(read.last_projected_at_ms, checkpoints[i].last_projected_at_ms);
    }
}

static void every_kind_has_a_name(void **state) {
    (void)state;
    assert_string_equal(entity_kind_name(ENTITY_RUN), "run");
    assert_string_equal(entity_kind_name(ENTITY_WORKER), "worker");
    assert_string_equal(entity_kind_name(ENTITY_TOPIC), "topic");
    assert_string_equal(entity_kind_name(ENTITY_AUDIT), "audit");
    assert_string_equal(document_kind_name(DOCUMENT_RUN_SUMMARY), "run_summary");
    assert_string_equal(document_kind_name(DOCUMENT_WORKER_SUMMARY), "codex_worker_summary");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_store_has_an_epoch_and_the_fixed_topics),
        cmocka_unit_test(the_epoch_and_the_state_survive_a_reopen),
        cmocka_unit_test(the_state_has_the_greatest_event_id_of_clients_and_server),
        cmocka_unit_test(two_stores_have_two_epochs),
        cmocka_unit_test(every_field_of_an_entity_is_read_back),
        cmocka_unit_test(absent_rows_are_not_found),
        cmocka_unit_test(every_field_of_an_event_is_read_back),
        cmocka_unit_test(an_events_own_owner_and_id_are_kept),
        cmocka_unit_test(the_largest_payload_is_kept),
        cmocka_unit_test(a_row_too_large_for_the_arena_is_refused),
        cmocka_unit_test(the_head_of_an_entity_is_its_last_event),
        cmocka_unit_test(every_cursor_finds_its_event),
        cmocka_unit_test(a_cursor_before_the_first_or_after_the_last_event_is_a_position),
        cmocka_unit_test(positions_are_found_in_logs_of_every_size_and_pace),
        cmocka_unit_test(a_replay_is_measured_in_frames_and_bytes),
        cmocka_unit_test(checkpoints_are_kept_by_kind),
        cmocka_unit_test(every_kind_has_a_name),
    };
    return CONTRACT_RUN("store: reading", tests);
}
