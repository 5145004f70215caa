#include "delivery/topic_activity.h"

#include "test.h"

#define CAPACITY 64

static int setup(void **state) {
    return topic_activity_open((struct topic_activity **)state, CAPACITY) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
    topic_activity_close(*state);
    return 0;
}

struct top {
    struct arena arena;
    struct topic_counts *counts;
    size_t count;
};

static void top_read(struct topic_activity *activity, struct top *top, size_t count_max) {
    arena_init(&top->arena, 1 << 20);
    assert_ok(topic_activity_top(activity, &top->arena, count_max, &top->counts, &top->count));
}

/* So many commits with a frame of that shared topic. */
static void commit(struct topic_activity *activity, struct slice topic, size_t count) {
    const struct store_topic row = {.ref = 1, .name = topic};
    for (size_t i = 0; i < count; i++)
        topic_activity_committed(activity, &(struct store_batch){.topics = &row, .topic_count = 1});
}

static void the_busiest_topics_come_first(void **state) {
    struct top top;
    commit(*state, SLICE("b"), 2);
    commit(*state, SLICE("a"), 2);
    commit(*state, SLICE("c"), 3);
    commit(*state, SLICE("d"), 1);
    top_read(*state, &top, 3);
    assert_int_equal(top.count, 3);
    assert_slice(top.counts[0].topic, "c");
    assert_slice(top.counts[1].topic, "a");
    assert_slice(top.counts[2].topic, "b");
    arena_release(&top.arena);
}

static void violations_are_counted_by_kind_and_the_last_is_named(void **state) {
    struct top top;
    const struct continuity stale = {
        .decision = CONTINUITY_REBOOTSTRAP,
        .reasons = {REASON_RETENTION_FLOOR_BREACH, REASON_REPLAY_BUDGET_EXCEEDED},
        .reason_count = 2,
    };
    topic_activity_violated(*state, SLICE("t"), VIOLATION_PUBLISH_RATE);
    topic_activity_violated(*state, SLICE("t"), VIOLATION_PUBLISH_RATE);
    topic_activity_violated(*state, SLICE("t"), VIOLATION_FRAME_SIZE);
    topic_activity_stale(*state, SLICE("u"), &stale);
    top_read(*state, &top, 10);
    assert_int_equal(top.count, 2);
    assert_slice(top.counts[0].topic, "t");
    assert_int_equal(top.counts[0].violations[VIOLATION_PUBLISH_RATE], 2);
    assert_int_equal(top.counts[0].violations[VIOLATION_FRAME_SIZE], 1);
    assert_string_equal(top.counts[0].last_violation_reason, "khala_frame_payload_too_large");
    assert_int_equal(top.counts[1].violations[VIOLATION_RETENTION_FLOOR], 1);
    assert_int_equal(top.counts[1].violations[VIOLATION_REPLAY_BUDGET], 1);
    assert_string_equal(top.counts[1].last_violation_reason, "replay_budget_exceeded");
    arena_release(&top.arena);
}

static void a_flood_of_topics_does_not_evict_the_busy_ones(void **state) {
    struct top top;
    for (size_t i = 0; i < 20000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "once:%zu", i);
        commit(*state, slice_of(name), 1);
        if (i % 10 == 0)
            commit(*state, SLICE("busy"), 1);
    }
    top_read(*state, &top, CAPACITY * 2);
    assert_int_equal(top.count, CAPACITY);
    assert_slice(top.counts[0].topic, "busy");
    arena_release(&top.arena);
}

static void a_commit_counts_each_entity_and_each_shared_topic(void **state) {
    struct top top;
    const struct store_event events[] = {
        {.entity_ref = 1, .entity_kind = ENTITY_RUN, .entity_id = SLICE("x")},
        {.entity_ref = 1, .entity_kind = ENTITY_RUN, .entity_id = SLICE("x")},
        {.entity_ref = 2, .entity_kind = ENTITY_WORKER, .entity_id = SLICE("w")},
    };
    const struct store_topic topics[] = {
        {.ref = 1, .name = SLICE("run:x:events"), .entity_ref = 1},
        {.ref = 2, .name = SLICE("runtime.run_summaries")},
    };
    topic_activity_committed(
        *state, &(struct store_batch){
                    .events = events, .event_count = 3, .topics = topics, .topic_count = 2});
    top_read(*state, &top, 10);
    assert_int_equal(top.count, 3);
    assert_slice(top.counts[0].topic, "run:x:events");
    assert_int_equal(top.counts[0].activity, 2);
    assert_slice(top.counts[1].topic, "runtime.run_summaries");
    assert_slice(top.counts[2].topic, "worker:w:lifecycle");
    arena_release(&top.arena);
}

static void names_longer_than_a_topic_are_not_kept(void **state) {
    struct top top;
    char name[1024];
    memset(name, 'x', sizeof(name));
    topic_activity_violated(*state, (struct slice){name, sizeof(name)}, VIOLATION_FRAME_SIZE);
    top_read(*state, &top, 10);
    assert_int_equal(top.count, 0);
    arena_release(&top.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_busiest_topics_come_first, setup, teardown),
        cmocka_unit_test_setup_teardown(violations_are_counted_by_kind_and_the_last_is_named, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_flood_of_topics_does_not_evict_the_busy_ones, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_commit_counts_each_entity_and_each_shared_topic, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(names_longer_than_a_topic_are_not_kept, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
