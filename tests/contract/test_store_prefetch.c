/* Prefetch: all lookups of a batch at once, each with an answer of its own. */
#include "backend.h"
#include "rows.h"

#define RUNS 3

struct filled {
    struct rows_text ids[RUNS + 2];
    struct rows_text names[RUNS + 2][2];
};

/* Runs 2 to 4 with two events each; run 2 has a key on its second event. */
static void fill(struct fixture *fixture, struct filled *filled) {
    struct store_entity runs[RUNS];
    struct store_event events[RUNS * 2];
    struct store_topic topics[RUNS];
    struct store_key key = {2, SLICE("key"), 4};
    for (uint64_t i = 0; i < RUNS; i++) {
        runs[i] = rows_run(i + 2, &filled->ids[i]);
        topics[i] = rows_topic(i + 5, i + 2, filled->names[i]);
        events[i] = rows_event(i + 1, i + 2, 1);
        events[i + RUNS] = rows_event(i + 1 + RUNS, i + 2, 2);
    }
    events[5].event_id = rows_client_id(77);
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = runs,
                                                                  .entity_count = RUNS,
                                                                  .events = events,
                                                                  .event_count = RUNS * 2,
                                                                  .topics = topics,
                                                                  .topic_count = RUNS,
                                                                  .keys = &key,
                                                                  .key_count = 1}));
}

struct seen {
    size_t count;
    uint64_t refs[RUNS];
    uint64_t head_seqs[RUNS];
    enum status answer;
};

static enum status see(void *user, struct store_entity_lookup *lookup,
                       const struct store_entity *entity) {
    struct seen *seen = user;
    assert_true(slice_equal(lookup->id, entity->id));
    assert_int_equal(lookup->ref, entity->ref);
    assert_true(slice_equal(entity->metadata, SLICE("{\"a\":1}")));
    seen->refs[seen->count] = entity->ref;
    seen->head_seqs[seen->count++] = entity->head_seq;
    return seen->answer;
}

static void an_empty_prefetch_succeeds(void **state) {
    struct fixture *fixture = *state;
    struct store_prefetch prefetch = {0};
    assert_ok(store_prefetch(fixture->writer, &prefetch));
}

static void entities_are_found_by_name_or_reported_absent(void **state) {
    struct fixture *fixture = *state;
    struct filled filled;
    struct seen seen = {0};
    fill(fixture, &filled);
    struct store_entity_lookup entities[] = {
        {.kind = ENTITY_RUN, .id = SLICE("run-4")},
        {.kind = ENTITY_WORKER, .id = SLICE("run-4")},
        {.kind = ENTITY_RUN, .id = SLICE("run-2")},
        {.kind = ENTITY_RUN, .id = SLICE("")},
    };
    struct store_prefetch prefetch = {entities, 4, NULL, 0, see, &seen};
    for (int round = 0; round < 2; round++) {
        seen.count = 0;
        assert_ok(store_prefetch(fixture->writer, &prefetch));
        assert_int_equal(seen.count, 2);
        assert_int_equal(seen.refs[0], 4);
        assert_int_equal(seen.refs[1], 2);
        assert_int_equal(seen.head_seqs[0], 2);
        assert_int_equal(entities[0].status, STATUS_OK);
        assert_int_equal(entities[1].status, STATUS_NOT_FOUND);
        assert_int_equal(entities[1].ref, 0);
        assert_int_equal(entities[2].status, STATUS_OK);
        assert_int_equal(entities[3].status, STATUS_NOT_FOUND);
        fixture_reopen(fixture);
    }
}

static void the_callback_decides_the_status(void **state) {
    struct fixture *fixture = *state;
    struct filled filled;
    struct seen seen = {.answer = STATUS_OUT_OF_MEMORY};
    fill(fixture, &filled);
    struct store_entity_lookup entity = {.kind = ENTITY_RUN, .id = SLICE("run-3")};
    struct store_prefetch prefetch = {&entity, 1, NULL, 0, see, &seen};
    assert_ok(store_prefetch(fixture->writer, &prefetch));
    assert_int_equal(entity.status, STATUS_OUT_OF_MEMORY);
}

static void a_stream_id_is_taken_or_free(void **state) {
    struct fixture *fixture = *state;
    struct filled filled;
    struct seen seen = {0};
    fill(fixture, &filled);
    struct slice taken = slice_of(filled.names[1][1].bytes);
    struct store_entity_lookup entities[] = {
        {.kind = ENTITY_TOPIC, .id = SLICE("new"), .stream_id = taken},
        {.kind = ENTITY_TOPIC, .id = SLICE("newer"), .stream_id = SLICE("runtime.topic.newer")},
        {.kind = ENTITY_RUN, .id = SLICE("run-2"), .stream_id = taken},
    };
    struct store_prefetch prefetch = {entities, 3, NULL, 0, see, &seen};
    assert_ok(store_prefetch(fixture->writer, &prefetch));
    assert_int_equal(entities[0].status, STATUS_NOT_FOUND);
    assert_true(entities[0].is_stream_taken);
    assert_int_equal(entities[1].status, STATUS_NOT_FOUND);
    assert_false(entities[1].is_stream_taken);
    assert_int_equal(entities[2].status, STATUS_OK);
}

static void events_are_found_with_their_content_by_every_lookup(void **state) {
    struct fixture *fixture = *state;
    struct arena *arena = &fixture->arena;
    struct filled filled;
    struct seen seen = {0};
    fill(fixture, &filled);
    struct store_entity_lookup entities[] = {
        {.kind = ENTITY_RUN, .id = SLICE("run-2")},
        {.kind = ENTITY_RUN, .id = SLICE("none")},
    };
    struct store_event_lookup events[] = {
        {.by = STORE_EVENT_BY_LOG_ID, .log_id = 5, .arena = arena},
        {.by = STORE_EVENT_BY_ID, .event_id = rows_client_id(77), .arena = arena},
        {.by = STORE_EVENT_BY_ID, .event_id = rows_cursor(2), .arena = arena},
        {.by = STORE_EVENT_BY_KEY, .entity_ref = 2, .key = SLICE("key"), .arena = arena},
        {.by = STORE_EVENT_BY_KEY, .entity = &entities[0], .key = SLICE("key"), .arena = arena},
        {.by = STORE_EVENT_FIRST, .entity_ref = 4, .arena = arena},
        {.by = STORE_EVENT_FIRST, .entity = &entities[0], .arena = arena},
        /* Absent. */
        {.by = STORE_EVENT_BY_LOG_ID, .log_id = 7, .arena = arena},
        {.by = STORE_EVENT_BY_ID, .event_id = rows_client_id(78), .arena = arena},
        {.by = STORE_EVENT_BY_KEY, .entity_ref = 3, .key = SLICE("key"), .arena = arena},
        {.by = STORE_EVENT_BY_KEY, .entity = &entities[1], .key = SLICE("key"), .arena = arena},
        {.by = STORE_EVENT_FIRST, .entity_ref = 9, .arena = arena},
        {.by = STORE_EVENT_FIRST, .entity = &entities[1], .arena = arena},
    };
    static const uint64_t log_ids[] = {5, 6, 2, 4, 4, 3, 1, 0, 0, 0, 0, 0, 0};
    struct store_prefetch prefetch = {entities, 2, events, 13, see, &seen};
    assert_ok(store_prefetch(fixture->writer, &prefetch));
    for (size_t i = 0; i < 13; i++) {
        print_message("lookup %zu\n", i);
        assert_int_equal(events[i].status, log_ids[i] > 0 ? STATUS_OK : STATUS_NOT_FOUND);
        if (log_ids[i] == 0)
            continue;
        struct store_event expected;
        assert_ok(store_load_event(fixture->reader, log_ids[i], arena, &expected));
        assert_int_equal(events[i].event.log_id, log_ids[i]);
        assert_true(slice_equal(events[i].event.payload, expected.payload));
        assert_true(slice_equal(events[i].event.entity_id, expected.entity_id));
        assert_memory_equal(events[i].event.chain_hash, expected.chain_hash, SHA256_BYTES);
    }
}

static void an_event_that_does_not_fit_fails_alone(void **state) {
    struct fixture *fixture = *state;
    struct arena small;
    struct filled filled;
    fill(fixture, &filled);
    arena_init(&small, 16);
    struct store_event_lookup events[] = {
        {.by = STORE_EVENT_BY_LOG_ID, .log_id = 1, .arena = &small},
        {.by = STORE_EVENT_BY_LOG_ID, .log_id = 2, .arena = &fixture->arena},
    };
    struct store_prefetch prefetch = {.events = events, .event_count = 2};
    assert_ok(store_prefetch(fixture->writer, &prefetch));
    assert_int_equal(events[0].status, STATUS_OUT_OF_MEMORY);
    assert_int_equal(events[1].status, STATUS_OK);
    arena_release(&small);
}

static void a_commit_follows_a_prefetch(void **state) {
    struct fixture *fixture = *state;
    struct filled filled;
    fill(fixture, &filled);
    struct store_event_lookup lookup = {
        .by = STORE_EVENT_BY_ID, .event_id = rows_client_id(5), .arena = &fixture->arena};
    struct store_prefetch prefetch = {.events = &lookup, .event_count = 1};
    for (uint64_t i = 0; i < 3; i++) {
        assert_ok(store_prefetch(fixture->writer, &prefetch));
        assert_int_equal(lookup.status, i == 0 ? STATUS_NOT_FOUND : STATUS_OK);
        struct store_event event = rows_event(7 + i, 2, 3 + i);
        if (i == 0)
            event.event_id = rows_client_id(5);
        assert_ok(store_commit(fixture->writer,
                               &(struct store_batch){.events = &event, .event_count = 1}));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_prefetch_succeeds),
        cmocka_unit_test(entities_are_found_by_name_or_reported_absent),
        cmocka_unit_test(the_callback_decides_the_status),
        cmocka_unit_test(a_stream_id_is_taken_or_free),
        cmocka_unit_test(events_are_found_with_their_content_by_every_lookup),
        cmocka_unit_test(an_event_that_does_not_fit_fails_alone),
        cmocka_unit_test(a_commit_follows_a_prefetch),
    };
    return CONTRACT_RUN("prefetch", tests);
}
