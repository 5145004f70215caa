/* What has expired, and pruning several topics at once. */
#include "backend.h"
#include "rows.h"

#define EVENT_COUNT 40
#define SUMMARIES   1
#define EVENTS      4 /* runtime.notifications: the events of entity 1 */
#define TOPIC_NAME  "runtime.notifications"

static uint64_t published_at[EVENT_COUNT];

static struct store_topic topic_now(struct fixture *fixture, const char *name) {
    struct store_topic topic;
    assert_ok(store_load_topic(fixture->reader, slice_of(name), &fixture->arena, &topic));
    return topic;
}

/* Events 1 to 40 of one entity, a row each; published_at says when the rows were. */
static void fill(struct fixture *fixture) {
    struct store_event events[EVENT_COUNT];
    struct store_journal_row rows[EVENT_COUNT];
    struct store_topic topic = topic_now(fixture, "runtime.run_summaries");
    for (uint64_t i = 0; i < EVENT_COUNT; i++) {
        events[i] = rows_event(i + 1, 1, i + 1);
        rows[i] = rows_journal(SUMMARIES, i + 1, i + 1);
        rows[i].published_at_ms = published_at[i];
    }
    topic.head_seq = EVENT_COUNT;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.events = events,
                                                                  .event_count = EVENT_COUNT,
                                                                  .journal = rows,
                                                                  .journal_count = EVENT_COUNT,
                                                                  .topics = &topic,
                                                                  .topic_count = 1}));
}

/* On a busy machine the many reads of a test take seconds, and a session that writes must not be
 * silent for so long. */
static struct store_expiry expired_at(struct fixture *fixture, const char *name,
                                      const struct store_expiry_query *query) {
    struct store_topic topic = topic_now(fixture, name);
    struct store_expiry expiry;
    int64_t wait_ms = 0;
    assert_ok(store_keep_alive(fixture->writer, &wait_ms));
    assert_ok(store_find_expired(fixture->reader, &topic, query, &expiry));
    return expiry;
}

/* No frame is dated in the future. */
static struct store_expiry expired(struct fixture *fixture, const char *name, uint64_t before_ms,
                                   uint64_t limit) {
    return expired_at(
        fixture, name,
        &(struct store_expiry_query){before_ms, .now_ms = UINT64_MAX, .limit = limit});
}

static void events_expire_by_the_time_of_their_cursors(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    for (uint64_t oldest = 1; oldest <= EVENT_COUNT + 1; oldest += 13) {
        uint64_t pruned;
        assert_ok(store_prune(fixture->writer, EVENTS, oldest, UINT64_MAX, &pruned));
        for (uint64_t before = rows_time_ms(1) - 1; before < rows_time_ms(EVENT_COUNT) + 3;
             before++) {
            uint64_t first = oldest;
            while (first <= EVENT_COUNT && rows_time_ms(first) < before)
                first++;
            struct store_expiry expiry = expired(fixture, TOPIC_NAME, before, 1);
            assert_int_equal(expiry.first_seq, first);
            assert_int_equal(expiry.first_at_ms, first > EVENT_COUNT ? 0 : rows_time_ms(first));
        }
    }
}

static void rows_expire_up_to_the_first_row_that_is_young_enough(void **state) {
    struct fixture *fixture = *state;
    for (uint64_t i = 0; i < EVENT_COUNT; i++)
        published_at[i] = 1000 + i;
    /* A clock that went ahead for one row, and one that fell behind for another. */
    published_at[9] = 5000;
    published_at[19] = 1;
    fill(fixture);
    struct store_expiry expiry = expired(fixture, "runtime.run_summaries", 1005, 5000);
    assert_int_equal(expiry.first_seq, 6);
    assert_int_equal(expiry.first_at_ms, 1005);
    expiry = expired(fixture, "runtime.run_summaries", 1030, 5000);
    assert_int_equal(expiry.first_seq, 10);
    assert_int_equal(expiry.first_at_ms, 5000);
    expiry = expired(fixture, "runtime.run_summaries", 6000, 5000);
    assert_int_equal(expiry.first_seq, EVENT_COUNT + 1);
    assert_int_equal(expiry.first_at_ms, 0);
    expiry = expired(fixture, "runtime.run_summaries", 6000, 7);
    assert_int_equal(expiry.first_seq, 8);
    assert_int_equal(expiry.first_at_ms, 0);
    expiry = expired(fixture, "runtime.codex_worker_events", 6000, 7);
    assert_int_equal(expiry.first_seq, 1);
    assert_int_equal(expiry.first_at_ms, 0);
}

/* The cursors of all events are far ahead of published_at, by which they were recorded. */
static void fill_ahead(struct fixture *fixture) {
    struct store_event events[EVENT_COUNT];
    for (uint64_t i = 0; i < EVENT_COUNT; i++) {
        events[i] = rows_event(i + 1, 1, i + 1);
        events[i].recorded_at_ms = published_at[i];
    }
    assert_ok(store_commit(fixture->writer,
                           &(struct store_batch){.events = events, .event_count = EVENT_COUNT}));
}

static void events_expire_by_when_they_were_recorded(void **state) {
    struct fixture *fixture = *state;
    for (uint64_t i = 0; i < EVENT_COUNT; i++)
        published_at[i] = 1000 + i;
    fill_ahead(fixture);
    struct store_expiry expiry = expired(fixture, TOPIC_NAME, 1030, 1);
    assert_int_equal(expiry.first_seq, 31);
    assert_int_equal(expiry.first_at_ms, 1030);
}

/* Frames 1 to 3 and 10 are dated in the future, and frame 21 is young enough. */
static void date_some_ahead(void) {
    for (uint64_t i = 0; i < EVENT_COUNT; i++)
        published_at[i] = 1000 + i;
    published_at[0] = published_at[1] = published_at[2] = published_at[9] = 9000;
    published_at[19] = 9000;
    published_at[20] = 2000;
}

static void check_ahead(struct fixture *fixture, const char *name) {
    struct store_expiry_query query = {.before_ms = 1006, .now_ms = 3000, .limit = 5000};
    struct store_expiry expiry = expired_at(fixture, name, &query);
    assert_int_equal(expiry.first_seq, 7);
    assert_int_equal(expiry.first_at_ms, 1006);
    /* A frame dated in the future stays while no later frame goes. */
    query.before_ms = 1000;
    expiry = expired_at(fixture, name, &query);
    assert_int_equal(expiry.first_seq, 1);
    query.before_ms = 1030;
    expiry = expired_at(fixture, name, &query);
    assert_int_equal(expiry.first_seq, 20);
    assert_int_equal(expiry.first_at_ms, 2000);
}

static void frames_dated_in_the_future_go_with_a_later_frame(void **state) {
    struct fixture *fixture = *state;
    date_some_ahead();
    fill(fixture);
    check_ahead(fixture, "runtime.run_summaries");
    struct store_expiry_query query = {.before_ms = 1030, .now_ms = 3000, .limit = 2};
    struct store_expiry expiry = expired_at(fixture, "runtime.run_summaries", &query);
    assert_int_equal(expiry.first_seq, 6);
    assert_int_equal(expiry.first_at_ms, 0);
}

static void events_dated_in_the_future_go_with_a_later_event(void **state) {
    struct fixture *fixture = *state;
    date_some_ahead();
    fill_ahead(fixture);
    check_ahead(fixture, TOPIC_NAME);
}

static void several_topics_are_pruned_together_or_not_at_all(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    struct store_prune prunes[3] = {{.topic_ref = SUMMARIES, .below_seq = 11, .limit = 8},
                                    {.topic_ref = EVENTS, .below_seq = 21, .limit = 5000},
                                    {.topic_ref = 99, .below_seq = 5, .limit = 5}};
    assert_int_equal(store_prune_topics(fixture->writer, prunes, 3), STATUS_NOT_FOUND);
    assert_int_equal(topic_now(fixture, "runtime.run_summaries").oldest_seq, 1);
    assert_int_equal(topic_now(fixture, TOPIC_NAME).oldest_seq, 1);
    assert_ok(store_prune_topics(fixture->writer, prunes, 2));
    assert_int_equal(prunes[0].pruned, 8);
    assert_int_equal(prunes[0].oldest_seq, 9);
    assert_int_equal(prunes[0].head_seq, EVENT_COUNT);
    assert_int_equal(prunes[1].pruned, 20);
    assert_int_equal(prunes[1].oldest_seq, 21);
    fixture_reopen(fixture);
    assert_int_equal(topic_now(fixture, "runtime.run_summaries").oldest_seq, 9);
    assert_int_equal(topic_now(fixture, TOPIC_NAME).oldest_seq, 21);
    assert_int_equal(topic_now(fixture, TOPIC_NAME).head_seq, EVENT_COUNT);
}

static void pruning_an_unknown_topic_is_reported(void **state) {
    struct fixture *fixture = *state;
    const struct store_batch nothing = {.event_count = 0};
    uint64_t pruned = 9;
    assert_int_equal(store_prune(fixture->writer, 99, 5, 5, &pruned), STATUS_NOT_FOUND);
    assert_int_equal(pruned, 0);
    assert_ok(store_commit(fixture->writer, &nothing));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pruning_an_unknown_topic_is_reported),
        cmocka_unit_test(events_expire_by_the_time_of_their_cursors),
        cmocka_unit_test(rows_expire_up_to_the_first_row_that_is_young_enough),
        cmocka_unit_test(events_expire_by_when_they_were_recorded),
        cmocka_unit_test(frames_dated_in_the_future_go_with_a_later_frame),
        cmocka_unit_test(events_dated_in_the_future_go_with_a_later_event),
        cmocka_unit_test(several_topics_are_pruned_together_or_not_at_all),
    };
    return CONTRACT_RUN("expiry", tests);
}
