/* Reads of topics and of the whole log, on a real store. */
#include "base/limits.h"
#include "delivery/journal_read.h"

#include "authority/event_write.h"
#include "base/clock.h"
#include "delivery/publisher.h"
#include "hub/frame.h"

static const struct policy policy = {.replay_budget_events = 1000000};
static const struct policy frugal = {.replay_budget_events = 10};

#define EVENTS 100

static int setup(void **state) {
    struct publisher *publisher = publisher_open(NULL);
    publisher_commit(publisher, 60);
    publisher_commit(publisher, EVENTS - 60);
    *state = publisher;
    return 0;
}

static int teardown(void **state) {
    publisher_close(*state);
    return 0;
}

static void run(struct publisher *publisher, struct journal_read *read) {
    if (!read->asked.policy)
        read->asked.policy = &policy;
    if (read->asked.below_seq == 0)
        read->asked.below_seq = UINT64_MAX;
    while (journal_read_run(read, publisher->session))
        ;
    assert_ok(read->status);
}

/* After the event with that log id and before the next one. */
static struct event_cursor cursor_behind(uint64_t log_id) {
    struct event_cursor cursor = {.timestamp_ms = 1700000000000 + log_id};
    memset(cursor.uuid.bytes, 0xff, sizeof(cursor.uuid.bytes));
    return cursor;
}

static void assert_frames(struct journal_read *read, uint64_t first_seq, size_t count) {
    assert_int_equal(read->next_seq, first_seq);
    assert_int_equal(read->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(read->frames[i]->content.seq, first_seq + i);
    journal_read_release(read);
}

static void alternating_entities_are_looked_up_once_each(void **state) {
    struct publisher *publisher = *state;
    static const char *const topics[] = {LOG_TOPIC, SUMMARIES};
    for (size_t i = 0; i < 2; i++) {
        struct journal_read read = {.asked.topic = slice_of(topics[i]),
                                    .asked.mode = JOURNAL_READ_RESUME,
                                    .asked.frames_max = JOURNAL_READ_FRAMES_MAX};
        uint64_t before = store_session_rows_read(publisher->session);
        run(publisher, &read);
        assert_frames(&read, 1, EVENTS);
        /* The rows, the two entities, and the state of the topic twice. */
        assert_true(store_session_rows_read(publisher->session) - before <= EVENTS + 10);
    }
}

static void a_read_without_frames_finds_the_position(void **state) {
    const enum journal_read_mode modes[] = {JOURNAL_READ_RESUME, JOURNAL_READ_CONTINUE};
    for (size_t i = 0; i < 2; i++) {
        struct journal_read read = {
            .asked.topic = SLICE(SUMMARIES), .asked.mode = modes[i], .asked.after_seq = 42};
        run(*state, &read);
        assert_true(read.exists);
        assert_int_not_equal(read.state, JOURNAL_STALE);
        assert_int_equal(read.window.oldest_seq, 1);
        assert_int_equal(read.window.head_seq, EVENTS);
        assert_int_equal(read.window.replay_budget_events, policy.replay_budget_events);
        assert_frames(&read, 43, 0);
    }
}

static void reads_that_share_rows_are_each_judged_by_their_own_position(void **state) {
    struct publisher *publisher = *state;
    static const char *const topics[] = {SUMMARIES,         SUMMARIES,         RUN_TOPIC,
                                         "run:none:events", "run:none:events", SUMMARIES};
    struct journal_rows rows;
    uint64_t read_before = 0;
    journal_rows_init(&rows);
    for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++) {
        struct journal_read alone = {.asked.topic = slice_of(topics[i]),
                                     .asked.mode = JOURNAL_READ_RESUME,
                                     .asked.after_seq = 40 * i};
        struct journal_read shared = alone;
        shared.rows = &rows;
        run(publisher, &alone);
        read_before = store_session_rows_read(publisher->session);
        run(publisher, &shared);
        bool is_same = i > 0 && strcmp(topics[i], topics[i - 1]) == 0;
        assert_int_equal(store_session_rows_read(publisher->session) == read_before, is_same);
        assert_int_equal(shared.exists, alone.exists);
        assert_int_equal((shared.state == JOURNAL_STALE), (alone.state == JOURNAL_STALE));
        assert_int_equal(shared.next_seq, alone.next_seq);
        assert_memory_equal(&shared.epoch, &alone.epoch, sizeof(shared.epoch));
        assert_memory_equal(&shared.window, &alone.window, sizeof(shared.window));
        journal_read_release(&alone);
        journal_read_release(&shared);
    }
    journal_rows_release(&rows);
}

static void a_read_without_frames_finds_a_stale_position(void **state) {
    struct publisher *publisher = *state;
    publisher_prune(publisher, publisher->summaries_ref, 50);
    for (uint64_t after_seq = 48; after_seq <= 49; after_seq++) {
        struct journal_read read = {.asked.topic = SLICE(SUMMARIES), .asked.after_seq = after_seq};
        run(publisher, &read);
        assert_int_equal((read.state == JOURNAL_STALE), after_seq == 48);
    }
    struct journal_read read = {
        .asked.topic = SLICE(SUMMARIES), .asked.policy = &frugal, .asked.after_seq = 89};
    run(publisher, &read);
    assert_int_equal(read.state, JOURNAL_STALE);
    assert_int_equal(read.continuity.reason_count, 1);
    assert_int_equal(read.continuity.reasons[0], REASON_REPLAY_BUDGET_EXCEEDED);
}

static void a_bootstrap_without_frames_finds_its_first_position(void **state) {
    struct journal_read read = {.asked.topic = SLICE(SUMMARIES),
                                .asked.policy = &frugal,
                                .asked.mode = JOURNAL_READ_BOOTSTRAP};
    run(*state, &read);
    assert_int_equal(read.bootstrap.from_seq, 91);
    assert_true(read.bootstrap.truncated);
    assert_frames(&read, 91, 0);
}

static void a_cursor_of_another_epoch_is_stale_even_for_a_missing_topic(void **state) {
    const char *const topics[] = {SUMMARIES, RUN_TOPIC, "nothing", LOG_TOPIC};
    for (size_t i = 0; i < 4; i++)
        for (size_t frames_max = 0; frames_max < 2; frames_max++) {
            struct journal_read read = {.asked.topic = slice_of(topics[i]),
                                        .asked.after_seq = 10,
                                        .asked.frames_max = frames_max,
                                        .asked.given_epoch = {"another"}};
            run(*state, &read);
            assert_int_equal(read.state, JOURNAL_STALE);
            assert_int_equal(read.count, 0);
            assert_int_equal(read.continuity.reason_count, 1);
            assert_int_equal(read.continuity.reasons[0], REASON_EPOCH_MISMATCH);
        }
}

static void a_bootstrap_ignores_the_epoch(void **state) {
    const char *const topics[] = {SUMMARIES, "nothing"};
    for (size_t i = 0; i < 2; i++) {
        struct journal_read read = {.asked.topic = slice_of(topics[i]),
                                    .asked.mode = JOURNAL_READ_BOOTSTRAP,
                                    .asked.frames_max = 3,
                                    .asked.given_epoch = {"another"}};
        run(*state, &read);
        assert_int_not_equal(read.state, JOURNAL_STALE);
        assert_frames(&read, 1, i == 0 ? 3 : 0);
    }
}

static void the_log_is_read_by_its_ids(void **state) {
    struct journal_read read = {
        .asked.topic = SLICE(LOG_TOPIC), .asked.after_seq = 30, .asked.frames_max = 20};
    run(*state, &read);
    assert_true(read.exists);
    assert_int_equal(read.window.oldest_seq, 1);
    assert_int_equal(read.window.head_seq, EVENTS);
    assert_frames(&read, 31, 20);
    struct journal_read end = {
        .asked.topic = SLICE(LOG_TOPIC), .asked.after_seq = 95, .asked.frames_max = 20};
    run(*state, &end);
    assert_frames(&end, 96, 5);
    struct journal_read head = {
        .asked.topic = SLICE(LOG_TOPIC), .asked.after_seq = EVENTS, .asked.frames_max = 20};
    run(*state, &head);
    assert_frames(&head, EVENTS + 1, 0);
    struct journal_read below = {.asked.topic = SLICE(LOG_TOPIC),
                                 .asked.after_seq = 95,
                                 .asked.below_seq = 98,
                                 .asked.frames_max = 20};
    run(*state, &below);
    assert_frames(&below, 96, 2);
}

static void an_event_of_the_log_equals_the_event_of_a_list(void **state) {
    struct publisher *publisher = *state;
    struct journal_read read = {.asked.topic = SLICE(LOG_TOPIC), .asked.frames_max = 64};
    struct arena arena;
    struct buffer json;
    arena_init(&arena, 1u << 20);
    buffer_init(&json, 65536);
    run(publisher, &read);
    assert_int_equal(read.count, 64);
    for (size_t i = 0; i < read.count; i++) {
        const struct frame_content *content = &read.frames[i]->content;
        struct store_event event;
        assert_ok(store_load_event(publisher->session, i + 1, &arena, &event));
        buffer_clear(&json);
        assert_ok(event_write_json(&json, &event));
        assert_true(slice_equal(content->payload, buffer_slice(&json)));
        assert_slice(content->kind, "run.log");
        assert_int_equal(uuid_compare(&content->cursor, &event.cursor), 0);
        /* Run r belongs to a user, run s to a guest. */
        assert_slice(i % 2 == 0 ? content->owner.user_id : content->owner.guest_scope,
                     i % 2 == 0 ? "u" : "g");
        assert_null(i % 2 == 0 ? content->owner.guest_scope.data : content->owner.user_id.data);
    }
    journal_read_release(&read);
    buffer_release(&json);
    arena_release(&arena);
}

/* Half of the frames are the user's. */
static void the_budget_counts_the_frames_that_the_reader_may_see(void **state) {
    static const struct principal user = {.identity.user_id = SLICE("u")};
    static const struct principal stranger = {.identity.user_id = SLICE("x")};
    const struct {
        const struct principal *principal;
        enum grant_view view;
        uint64_t after_seq;
        uint64_t lag;
        bool is_stale;
    } rows[] = {
        {&user, GRANT_VIEW_OWN, 80, 10, false},
        {&user, GRANT_VIEW_OWN, 78, 11, true},
        {&stranger, GRANT_VIEW_OWN, 0, 0, false},
        {&user, GRANT_VIEW_ALL, 80, 20, true},
        {&principal_operator, GRANT_VIEW_OWN, 80, 20, true},
        {NULL, GRANT_VIEW_NONE, 80, 20, true},
        {&principal_operator, GRANT_VIEW_ALL, 90, 10, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct journal_read read = {.asked.topic = SLICE(SUMMARIES),
                                    .asked.policy = &frugal,
                                    .asked.mode = JOURNAL_READ_RESUME,
                                    .asked.after_seq = rows[i].after_seq,
                                    .asked.principal = rows[i].principal,
                                    .asked.view = rows[i].view};
        run(*state, &read);
        assert_int_equal((read.state == JOURNAL_STALE), rows[i].is_stale);
        assert_int_equal(read.continuity.replay_lag, rows[i].lag);
        assert_int_equal(read.continuity.reason_count, rows[i].is_stale ? 1 : 0);
        journal_read_release(&read);
    }
}

/* None of the frames is the reader's. */
static void a_long_count_of_frames_takes_several_slices(void **state) {
    static const struct principal stranger = {.identity.user_id = SLICE("x")};
    static const enum journal_read_mode modes[] = {JOURNAL_READ_RESUME, JOURNAL_READ_BOOTSTRAP};
    static const struct policy events = {.replay_budget_events = 10,
                                         .snapshot_document = DOCUMENT_NONE};
    struct publisher *publisher = *state;
    while (publisher->log_id < 3 * STORE_TASK_ROWS + EVENTS)
        publisher_commit(publisher, PUBLISHER_BATCH_MAX);
    for (size_t i = 0; i < 2; i++) {
        struct journal_read read = {.asked.topic = SLICE(SUMMARIES),
                                    .asked.policy = &events,
                                    .asked.mode = modes[i],
                                    .asked.after_seq = 1,
                                    .asked.below_seq = UINT64_MAX,
                                    .asked.principal = &stranger,
                                    .asked.view = GRANT_VIEW_OWN};
        size_t slices = 1;
        for (; journal_read_run(&read, publisher->session); slices++)
            assert_true(slices < 10);
        assert_ok(read.status);
        assert_int_not_equal(read.state, JOURNAL_STALE);
        assert_int_equal(slices, 4);
        bool resumes = modes[i] == JOURNAL_READ_RESUME;
        assert_int_equal(read.next_seq, resumes ? 2 : read.window.head_seq - 10 + 1);
        journal_read_release(&read);
    }
}

static void
a_cursor_of_a_summary_topic_is_not_over_budget_while_its_next_frame_is_young(void **state) {
    struct policy summaries = {.replay_budget_events = 10,
                               .snapshot_document = DOCUMENT_RUN_SUMMARY};
    /* The frames were published in 1970. */
    for (int is_young = 0; is_young < 2; is_young++) {
        struct journal_read read = {.asked.topic = SLICE(SUMMARIES),
                                    .asked.policy = &summaries,
                                    .asked.mode = JOURNAL_READ_RESUME,
                                    .asked.after_seq = 50,
                                    .asked.principal = &principal_operator,
                                    .asked.view = GRANT_VIEW_ALL};
        summaries.snapshot_cadence_seconds = is_young ? clock_now().wall_ms / 1000 : 300;
        run(*state, &read);
        assert_int_equal((read.state == JOURNAL_STALE), !is_young);
        journal_read_release(&read);
    }
}

static void the_log_has_neither_a_floor_nor_a_budget(void **state) {
    struct publisher *publisher = *state;
    publisher_prune(publisher, publisher->summaries_ref, 90);
    publisher_prune(publisher, RUN_TOPIC_REF, 40);
    const enum journal_read_mode modes[] = {JOURNAL_READ_RESUME, JOURNAL_READ_BOOTSTRAP,
                                            JOURNAL_READ_CONTINUE, JOURNAL_READ_RESUME_CURSOR};
    for (size_t i = 0; i < 4; i++) {
        struct journal_read read = {.asked.topic = SLICE(LOG_TOPIC),
                                    .asked.policy = &frugal,
                                    .asked.mode = modes[i],
                                    .asked.frames_max = 7};
        run(publisher, &read);
        assert_int_not_equal(read.state, JOURNAL_STALE);
        assert_false(read.bootstrap.truncated);
        assert_frames(&read, 1, 7);
    }
}

static void an_empty_log_exists_and_waits(void **state) {
    (void)state;
    struct publisher *publisher = publisher_open(NULL);
    struct journal_read read = {.asked.topic = SLICE(LOG_TOPIC),
                                .asked.mode = JOURNAL_READ_BOOTSTRAP,
                                .asked.frames_max = 7};
    run(publisher, &read);
    assert_true(read.exists);
    assert_int_equal(read.window.head_seq, 0);
    assert_frames(&read, 1, 0);
    struct journal_read cursor = {.asked.topic = SLICE(LOG_TOPIC),
                                  .asked.mode = JOURNAL_READ_RESUME_CURSOR,
                                  .asked.frames_max = 7,
                                  .asked.event_cursor = cursor_behind(5)};
    run(publisher, &cursor);
    assert_int_equal(cursor.state, JOURNAL_STALE);
    journal_read_release(&cursor);
    struct journal_read start = {.asked.topic = SLICE(LOG_TOPIC),
                                 .asked.mode = JOURNAL_READ_RESUME_CURSOR,
                                 .asked.frames_max = 7};
    run(publisher, &start);
    assert_int_equal(start.state, JOURNAL_DONE);
    assert_frames(&start, 1, 0);
    publisher_close(publisher);
}

static void an_event_cursor_continues_right_after_its_event(void **state) {
    struct publisher *publisher = *state;
    struct arena arena;
    arena_init(&arena, 65536);
    for (uint64_t log_id = 1; log_id <= EVENTS; log_id += 33) {
        struct store_event event;
        assert_ok(store_load_event(publisher->session, log_id, &arena, &event));
        struct journal_read read = {.asked.topic = SLICE(LOG_TOPIC),
                                    .asked.mode = JOURNAL_READ_RESUME_CURSOR,
                                    .asked.frames_max = 1,
                                    .asked.event_cursor = event_cursor_of(&event.cursor)};
        run(publisher, &read);
        assert_frames(&read, log_id + 1, log_id < EVENTS ? 1 : 0);
    }
    arena_release(&arena);
}

static void an_event_cursor_without_an_event_continues_at_its_time(void **state) {
    const struct {
        struct event_cursor cursor;
        uint64_t next_seq;
    } cases[] = {
        {{0}, 1},
        {cursor_behind(0), 1},
        {cursor_behind(17), 18},
    };
    for (size_t i = 0; i < 3; i++)
        for (size_t frames_max = 0; frames_max < 2; frames_max++) {
            struct journal_read read = {.asked.topic = SLICE(LOG_TOPIC),
                                        .asked.mode = JOURNAL_READ_RESUME_CURSOR,
                                        .asked.frames_max = frames_max,
                                        .asked.event_cursor = cases[i].cursor};
            run(*state, &read);
            assert_frames(&read, cases[i].next_seq, cases[i].next_seq <= EVENTS ? frames_max : 0);
        }
}

static void an_event_cursor_later_than_the_last_event_is_of_another_history(void **state) {
    for (uint64_t after = EVENTS; after <= EVENTS + 1000; after += 1000) {
        struct journal_read read = {.asked.topic = SLICE(LOG_TOPIC),
                                    .asked.mode = JOURNAL_READ_RESUME_CURSOR,
                                    .asked.frames_max = 1,
                                    .asked.event_cursor = cursor_behind(after)};
        run(*state, &read);
        assert_int_equal(read.state, JOURNAL_STALE);
        assert_int_equal(read.continuity.reason_count, 1);
        assert_int_equal(read.continuity.reasons[0], REASON_CURSOR_AHEAD_OF_HEAD);
    }
}

#define READ_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        READ_TEST(alternating_entities_are_looked_up_once_each),
        READ_TEST(a_read_without_frames_finds_the_position),
        READ_TEST(reads_that_share_rows_are_each_judged_by_their_own_position),
        READ_TEST(a_read_without_frames_finds_a_stale_position),
        READ_TEST(a_bootstrap_without_frames_finds_its_first_position),
        READ_TEST(a_cursor_of_another_epoch_is_stale_even_for_a_missing_topic),
        READ_TEST(a_bootstrap_ignores_the_epoch),
        READ_TEST(the_log_is_read_by_its_ids),
        READ_TEST(an_event_of_the_log_equals_the_event_of_a_list),
        READ_TEST(the_budget_counts_the_frames_that_the_reader_may_see),
        READ_TEST(a_long_count_of_frames_takes_several_slices),
        READ_TEST(a_cursor_of_a_summary_topic_is_not_over_budget_while_its_next_frame_is_young),
        READ_TEST(the_log_has_neither_a_floor_nor_a_budget),
        cmocka_unit_test(an_empty_log_exists_and_waits),
        READ_TEST(an_event_cursor_continues_right_after_its_event),
        READ_TEST(an_event_cursor_without_an_event_continues_at_its_time),
        READ_TEST(an_event_cursor_later_than_the_last_event_is_of_another_history),
    };
    return cmocka_run_group_tests_name("journal_read", tests, NULL, NULL);
}
