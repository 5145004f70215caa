/* Subscriptions over a real store and the hub: where they begin, what they are told, what they may
 * see, and the seam between store, window and live, by seed, under pruning. */
#include "delivery/subscription.h"

#include <pthread.h>

#include "delivery/publisher.h"
#include "hub/frame_row.h"

static const struct principal operator_all = {.read_all = true};
static const struct policy policy = {.replay_budget_events = 1000000};
static const struct policy frugal = {.replay_budget_events = 10};

static void no_wake(void *user) {
    (void)user;
}

struct reader {
    struct hub_listener listener;
    struct hub_watch watch;
    struct store_session *session;
    struct subscription subscription;
    struct delivery_batch batch;
};

static void reader_open(struct reader *reader, struct publisher *publisher,
                        const struct subscription_options *options) {
    struct subscription_options given = *options;
    assert_ok(store_session_open(publisher->store, STORE_READ, &reader->session));
    hub_listen(publisher->hub, &reader->listener, no_wake, NULL);
    assert_ok(hub_watch(&reader->listener, given.topic, &reader->watch));
    given.watch = &reader->watch;
    given.principal = given.principal ? given.principal : &operator_all;
    given.view = GRANT_VIEW_OWN;
    given.policy = given.policy ? given.policy : &policy;
    subscription_init(&reader->subscription, &given);
    reader->batch.count_max = 16;
    reader->batch.bytes_max = 4096;
}

static void reader_close(struct reader *reader) {
    subscription_release(&reader->subscription);
    hub_unwatch(&reader->watch);
    hub_unlisten(&reader->listener);
    store_session_close(reader->session);
}

/* Reads are run at once. */
static enum subscription_step reader_next(struct reader *reader) {
    for (;;) {
        enum subscription_step step = subscription_next(&reader->subscription, &reader->batch);
        if (step != STEP_READ)
            return step;
        journal_read_run(reader->subscription.read, reader->session);
        subscription_read_done(&reader->subscription);
    }
}

/* Takes everything up to the head; answers the last seq given. */
static uint64_t drain(struct reader *reader, size_t *given) {
    uint64_t through = reader->subscription.next_seq - 1;
    enum subscription_step step;
    *given = 0;
    while ((step = reader_next(reader)) == STEP_FRAMES) {
        if (reader->batch.through_seq == reader->batch.after_seq)
            continue;
        through = reader->batch.through_seq;
        *given += reader->batch.count;
        delivery_batch_release(&reader->batch);
    }
    assert_int_equal(step, STEP_WAIT);
    return through;
}

struct bench {
    struct hub *hub;
    struct publisher *publisher;
    struct reader reader;
};

static void bench_open_hub(struct bench *bench, size_t committed,
                           const struct hub_options *options) {
    memset(bench, 0, sizeof(*bench));
    assert_ok(hub_open(&bench->hub, options));
    bench->publisher = publisher_open(bench->hub);
    while (committed > 0) {
        size_t count = committed > PUBLISHER_BATCH_MAX ? PUBLISHER_BATCH_MAX : committed;
        publisher_commit(bench->publisher, count);
        committed -= count;
    }
}

static void bench_open(struct bench *bench, size_t committed) {
    bench_open_hub(bench, committed, &(struct hub_options){{32, 1u << 20}, 64u << 20});
}

static void bench_close(struct bench *bench) {
    reader_close(&bench->reader);
    publisher_close(bench->publisher);
    hub_close(bench->hub);
}

static void a_cursor_resumes_right_behind_it(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){
                    .topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = 42});
    assert_int_equal(drain(&bench.reader, &given), 100);
    assert_int_equal(given, 58);
    publisher_commit(bench.publisher, 3);
    assert_int_equal(drain(&bench.reader, &given), 103);
    assert_int_equal(given, 3);
    assert_false(bench.reader.subscription.is_bootstrap);
    bench_close(&bench);
}

/* It is announced once, to a reader that is at work or in line: who only knew the head that the
 * read found would take itself to be done. */
static void what_is_committed_while_a_page_is_on_its_way_counts_as_more(void **state) {
    (void)state;
    for (int after_read = 0; after_read < 2; after_read++) {
        struct bench bench;
        bench_open(&bench, 10);
        reader_open(&bench.reader, bench.publisher,
                    &(struct subscription_options){.topic = SLICE(SUMMARIES), .has_cursor = true});
        struct subscription *subscription = &bench.reader.subscription;
        assert_int_equal(subscription_next(subscription, &bench.reader.batch), STEP_READ);
        journal_read_run(subscription->read, bench.reader.session);
        if (!after_read)
            publisher_commit(bench.publisher, 2);
        subscription_read_done(subscription);
        if (after_read)
            publisher_commit(bench.publisher, 2);
        assert_int_equal(subscription_next(subscription, &bench.reader.batch), STEP_FRAMES);
        assert_int_equal(bench.reader.batch.through_seq, 10);
        assert_int_equal(subscription->window.head_seq, 12);
        delivery_batch_release(&bench.reader.batch);
        bench_close(&bench);
    }
}

static void a_topic_that_is_not_there_yet_can_be_waited_for(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 0);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(RUN_TOPIC)});
    assert_int_equal(drain(&bench.reader, &given), 0);
    publisher_commit(bench.publisher, 10);
    assert_int_equal(drain(&bench.reader, &given), 5);
    assert_int_equal(given, 5);
    bench_close(&bench);
}

static void a_bootstrap_begins_where_the_budget_allows_and_is_never_stale(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(SUMMARIES), .policy = &frugal});
    assert_int_equal(drain(&bench.reader, &given), 100);
    assert_int_equal(given, 10);
    assert_true(bench.reader.subscription.is_bootstrap);
    assert_int_equal(bench.reader.subscription.bootstrap.from_seq, 91);
    assert_true(bench.reader.subscription.bootstrap.truncated);
    bench_close(&bench);
}

static void a_cursor_beyond_the_budget_is_stale_and_recovers_by_a_restart(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    publisher_prune(bench.publisher, bench.publisher->summaries_ref, 50);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){
                    .topic = SLICE(SUMMARIES), .policy = &frugal, .has_cursor = true});
    assert_int_equal(reader_next(&bench.reader), STEP_STALE);
    const struct continuity *why = subscription_continuity(&bench.reader.subscription);
    assert_int_equal(why->reason_count, 2);
    assert_int_equal(why->reasons[0], REASON_RETENTION_FLOOR_BREACH);
    assert_int_equal(why->reasons[1], REASON_REPLAY_BUDGET_EXCEEDED);
    assert_int_equal(why->oldest_available_cursor, 49);
    assert_int_equal(why->head_cursor, 100);
    subscription_restart(&bench.reader.subscription);
    assert_int_equal(drain(&bench.reader, &given), 100);
    assert_int_equal(given, 10);
    bench_close(&bench);
}

static void the_floor_is_told_to_the_cursor_right_below_it_and_not_to_the_one_at_it(void **state) {
    (void)state;
    for (uint64_t after = 48; after <= 49; after++) {
        struct bench bench;
        bench_open(&bench, 100);
        publisher_prune(bench.publisher, bench.publisher->summaries_ref, 50);
        reader_open(&bench.reader, bench.publisher,
                    &(struct subscription_options){
                        .topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = after});
        assert_int_equal(reader_next(&bench.reader), after == 48 ? STEP_STALE : STEP_FRAMES);
        delivery_batch_release(&bench.reader.batch);
        bench_close(&bench);
    }
}

static void a_reader_that_retention_overtakes_is_told(void **state) {
    (void)state;
    const char *const topics[] = {SUMMARIES, RUN_TOPIC};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        bench_open(&bench, 400);
        reader_open(
            &bench.reader, bench.publisher,
            &(struct subscription_options){.topic = slice_of(topics[i]), .has_cursor = true});
        assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
        assert_int_equal(bench.reader.batch.through_seq, 16);
        delivery_batch_release(&bench.reader.batch);
        publisher_prune(bench.publisher, i == 0 ? bench.publisher->summaries_ref : RUN_TOPIC_REF,
                        18);
        assert_int_equal(reader_next(&bench.reader), STEP_STALE);
        const struct continuity *why = subscription_continuity(&bench.reader.subscription);
        assert_int_equal(why->after_seq, 16);
        assert_int_equal(why->reasons[0], REASON_RETENTION_FLOOR_BREACH);
        bench_close(&bench);
    }
}

static void frames_of_others_are_covered_and_not_given(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("u")};
    const struct principal guest = {.identity.guest_scope = SLICE("g")};
    const struct principal nobody = {.identity.user_id = SLICE("g"), .identity.org_id = SLICE("u")};
    const struct principal *const who[] = {&user, &guest, &nobody};
    const size_t expected[] = {50, 50, 0};
    for (size_t i = 0; i < 3; i++) {
        struct bench bench;
        size_t given;
        bench_open(&bench, 40);
        reader_open(&bench.reader, bench.publisher,
                    &(struct subscription_options){.topic = SLICE(SUMMARIES), .principal = who[i]});
        size_t all = 0;
        assert_int_equal(drain(&bench.reader, &given), 40); /* from the store */
        all += given;
        publisher_commit(bench.publisher, 60); /* from the window, or both */
        assert_int_equal(drain(&bench.reader, &given), 100);
        assert_int_equal(all + given, expected[i]);
        bench_close(&bench);
    }
}

static struct event_cursor cursor_behind(uint64_t log_id) {
    struct event_cursor cursor = {.timestamp_ms = 1700000000000 + log_id};
    memset(cursor.uuid.bytes, 0xff, sizeof(cursor.uuid.bytes));
    return cursor;
}

static bool is_even(const void *user, const struct frame_content *content) {
    (void)user;
    return content->seq % 2 == 0;
}

static void what_was_not_asked_for_is_covered_and_the_cursor_goes_with_it(void **state) {
    (void)state;
    static const struct uuid none;
    struct bench bench;
    size_t given;
    bench_open(&bench, 101);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){
                    .topic = SLICE(LOG_TOPIC), .wants = is_even, .has_cursor = true});
    assert_int_equal(uuid_compare(&bench.reader.subscription.cursor, &none), 0);
    assert_int_equal(drain(&bench.reader, &given), 101);
    assert_int_equal(given, 50);
    /* The last one is hidden, and its cursor known. */
    struct event_cursor at = event_cursor_of(&bench.reader.subscription.cursor);
    assert_int_equal(at.timestamp_ms, cursor_behind(101).timestamp_ms);
    bench_close(&bench);
}

static void a_position_behind_others_events_names_none_of_them(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("u")};
    struct bench bench;
    size_t given;
    bench_open(&bench, 100); /* the last is g's, a millisecond after u's last */
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(LOG_TOPIC), .principal = &user});
    assert_int_equal(drain(&bench.reader, &given), 100);
    assert_int_equal(given, 50);
    struct uuid first = uuid7_first(1700000000000 + 100);
    assert_int_equal(uuid_compare(&bench.reader.subscription.cursor, &first), 0);
    bench_close(&bench);
}

static void a_reader_may_begin_at_the_head(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){
                    .topic = SLICE(SUMMARIES), .policy = &frugal, .from_head = true});
    assert_int_equal(drain(&bench.reader, &given), 0);
    assert_int_equal(given, 0);
    assert_int_equal(bench.reader.subscription.bootstrap.from_seq, 101);
    assert_true(bench.reader.subscription.bootstrap.truncated);
    publisher_commit(bench.publisher, 3);
    assert_int_equal(drain(&bench.reader, &given), 103);
    assert_int_equal(given, 3);
    bench_close(&bench);
}

static void a_frame_is_the_same_from_the_store_and_from_the_window(void **state) {
    (void)state;
    const char *const topics[] = {SUMMARIES, RUN_TOPIC, LOG_TOPIC};
    for (size_t i = 0; i < 3; i++) {
        struct bench bench;
        struct reader warm = {0};
        bench_open(&bench, 0);
        const struct subscription_options options = {.topic = slice_of(topics[i])};
        reader_open(&warm, bench.publisher, &options);
        assert_int_equal(reader_next(&warm), STEP_WAIT);
        publisher_commit(bench.publisher, 1);
        assert_int_equal(reader_next(&warm), STEP_FRAMES);
        for (int j = 0; j < 2; j++) /* pushes the first frame out of the window */
            publisher_commit(bench.publisher, 64);
        reader_open(&bench.reader, bench.publisher, &options);
        assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
        struct frame *a = warm.batch.frames[0];
        struct frame *b = bench.reader.batch.frames[0];
        assert_ptr_not_equal(a, b);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->texts, b->texts, 30);
        assert_int_equal(a->content.published_at_ms, b->content.published_at_ms);
        assert_int_equal(a->content.document_version, b->content.document_version);
        assert_int_equal(uuid_compare(&a->content.cursor, &b->content.cursor), 0);
        assert_true(slice_equal(a->content.document_key, b->content.document_key));
        assert_true(slice_equal(a->content.payload, b->content.payload));
        assert_true(slice_equal(a->content.kind, b->content.kind));
        if (i < 2)
            assert_slice(a->content.document_key,
                         i == 0 ? "runtime/run_summary:r" : "runtime/run_event:r:1");
        assert_slice(b->content.owner.user_id, "u");
        delivery_batch_release(&warm.batch);
        delivery_batch_release(&bench.reader.batch);
        reader_close(&warm);
        bench_close(&bench);
    }
}

/* ---- the log ---- */

/* Behind event log_id and before the next one. */
static void the_log_without_a_cursor_is_all_of_it_and_then_live(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(LOG_TOPIC), .policy = &frugal});
    assert_int_equal(drain(&bench.reader, &given), 100);
    assert_int_equal(given, 100);
    assert_false(bench.reader.subscription.bootstrap.truncated);
    assert_true(bench.reader.subscription.window.replay_budget_events > 100);
    publisher_commit(bench.publisher, 3);
    assert_int_equal(drain(&bench.reader, &given), 103);
    assert_int_equal(given, 3);
    bench_close(&bench);
}

static void the_log_by_event_cursor_opens_with_one_read(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(LOG_TOPIC),
                                               .has_event_cursor = true,
                                               .event_cursor = cursor_behind(90)});
    struct subscription *subscription = &bench.reader.subscription;
    bench.reader.batch.bytes_max = 65536;
    assert_int_equal(subscription_next(subscription, &bench.reader.batch), STEP_READ);
    journal_read_run(subscription->read, bench.reader.session);
    subscription_read_done(subscription);
    assert_int_equal(subscription_next(subscription, &bench.reader.batch), STEP_FRAMES);
    assert_int_equal(bench.reader.batch.after_seq, 90);
    assert_int_equal(bench.reader.batch.count, 10);
    assert_false(subscription->is_bootstrap);
    delivery_batch_release(&bench.reader.batch);
    publisher_commit(bench.publisher, 3);
    assert_int_equal(drain(&bench.reader, &given), 103);
    bench_close(&bench);
}

static void a_cursor_at_the_head_waits_for_the_next_event(void **state) {
    (void)state;
    struct bench bench;
    size_t given;
    bench_open(&bench, 100);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(LOG_TOPIC),
                                               .has_event_cursor = true,
                                               .event_cursor = cursor_behind(100)});
    assert_int_equal(reader_next(&bench.reader), STEP_WAIT);
    assert_int_equal(bench.reader.subscription.next_seq, 101);
    publisher_commit(bench.publisher, 1);
    assert_int_equal(drain(&bench.reader, &given), 101);
    assert_int_equal(given, 1);
    bench_close(&bench);
}

static void on_the_log_too_everybody_sees_their_own(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("u")};
    const struct principal nobody = {.identity.user_id = SLICE("g")};
    const struct principal *const who[] = {&user, &nobody};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        size_t stored;
        size_t live;
        bench_open(&bench, 40);
        reader_open(&bench.reader, bench.publisher,
                    &(struct subscription_options){.topic = SLICE(LOG_TOPIC), .principal = who[i]});
        assert_int_equal(drain(&bench.reader, &stored), 40);
        publisher_commit(bench.publisher, 20);
        assert_int_equal(drain(&bench.reader, &live), 60);
        assert_int_equal(stored, i == 0 ? 20 : 0);
        assert_int_equal(live, i == 0 ? 10 : 0);
        bench_close(&bench);
    }
}

static void a_cursor_of_another_epoch_is_told_and_a_restart_forgets_it(void **state) {
    (void)state;
    const char *const topics[] = {SUMMARIES, "nothing", LOG_TOPIC};
    for (size_t i = 0; i < 3; i++) {
        struct bench bench;
        size_t given;
        bench_open(&bench, 40);
        reader_open(&bench.reader, bench.publisher,
                    &(struct subscription_options){.topic = slice_of(topics[i]),
                                                   .has_cursor = i < 2,
                                                   .after_seq = 7,
                                                   .epoch_differs = true,
                                                   .has_event_cursor = i == 2,
                                                   .event_cursor = cursor_behind(7)});
        assert_int_equal(reader_next(&bench.reader), STEP_STALE);
        assert_int_equal(subscription_continuity(&bench.reader.subscription)->reasons[0],
                         REASON_EPOCH_MISMATCH);
        subscription_restart(&bench.reader.subscription);
        (void)drain(&bench.reader, &given);
        assert_int_equal(given, i == 1 ? 0 : 40);
        bench_close(&bench);
    }
}

/* ---- replays ---- */

static const struct hub_options roomy = {{1024, 4u << 20}, 256u << 20};

/* As a link does it: where it stands is looked at first. */
static void replayer_open(struct reader *reader, struct publisher *publisher, uint64_t after_seq) {
    reader_open(reader, publisher,
                &(struct subscription_options){
                    .topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = after_seq});
    assert_ok(subscription_ask_position(&reader->subscription));
    journal_read_run(reader->subscription.read, reader->session);
    subscription_read_done(&reader->subscription);
}

static void ahead_finish(struct reader *reader) {
    journal_read_run(reader->subscription.ahead, reader->session);
    subscription_ahead_done(&reader->subscription);
}

/* To the head, always reading ahead; each read ahead comes back when it is waited for. */
static size_t replay(struct reader *reader, size_t *aheads) {
    size_t given = 0;
    *aheads = 0;
    for (;;) {
        enum subscription_step step = reader_next(reader);
        if (step == STEP_AHEAD) {
            ahead_finish(reader);
            continue;
        }
        if (step != STEP_FRAMES) {
            assert_int_equal(step, STEP_WAIT);
            return given;
        }
        given += reader->batch.count;
        if (!reader->subscription.ahead &&
            subscription_ask_ahead(&reader->subscription, &reader->batch))
            ++*aheads;
        delivery_batch_release(&reader->batch);
    }
}

static void frames_are_read_ahead_once_for_all_who_replay_there(void **state) {
    (void)state;
    struct bench bench;
    struct reader other = {0};
    bench_open_hub(&bench, 400, &roomy);
    struct reader *first = &bench.reader;
    replayer_open(first, bench.publisher, 0);
    replayer_open(&other, bench.publisher, 8);
    size_t bytes = hub_stats(bench.hub).bytes;
    assert_int_equal(reader_next(first), STEP_FRAMES);
    assert_int_equal(first->batch.through_seq, 16);
    assert_true(subscription_ask_ahead(&first->subscription, &first->batch));
    delivery_batch_release(&first->batch);
    /* One at a time, and only behind what is in memory. */
    uint64_t rows = store_session_rows_read(other.session);
    assert_int_equal(reader_next(&other), STEP_FRAMES);
    assert_int_equal(other.batch.through_seq, 16);
    assert_false(subscription_ask_ahead(&other.subscription, &other.batch));
    delivery_batch_release(&other.batch);
    assert_int_equal(reader_next(first), STEP_AHEAD);
    ahead_finish(first);
    size_t aheads;
    assert_int_equal(replay(&other, &aheads), 400 - 16);
    assert_int_equal(store_session_rows_read(other.session), rows);
    rows = store_session_rows_read(first->session);
    assert_int_equal(replay(first, &aheads), 400 - 16);
    assert_int_equal(store_session_rows_read(first->session), rows);
    /* Nobody replays any more. */
    assert_int_equal(hub_stats(bench.hub).bytes, bytes);
    reader_close(&other);
    bench_close(&bench);
}

static void who_asks_for_frames_that_came_meanwhile_reads_nothing(void **state) {
    (void)state;
    struct bench bench;
    struct reader other = {0};
    bench_open_hub(&bench, 400, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    replayer_open(&other, bench.publisher, 0);
    assert_int_equal(subscription_next(&other.subscription, &other.batch), STEP_READ);
    assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
    delivery_batch_release(&bench.reader.batch);
    uint64_t rows = store_session_rows_read(other.session);
    journal_read_run(other.subscription.read, other.session);
    subscription_read_done(&other.subscription);
    assert_int_equal(store_session_rows_read(other.session), rows);
    assert_int_equal(subscription_next(&other.subscription, &other.batch), STEP_FRAMES);
    assert_int_equal(other.batch.count, 16);
    assert_int_equal(other.batch.frames[0]->content.seq, 1);
    delivery_batch_release(&other.batch);
    reader_close(&other);
    bench_close(&bench);
}

static void a_lone_replay_is_read_in_pages_larger_than_its_batches(void **state) {
    (void)state;
    struct bench bench;
    size_t aheads;
    bench_open_hub(&bench, 3000, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    assert_int_equal(replay(&bench.reader, &aheads), 3000);
    assert_in_range(aheads, 3, 5);
    bench_close(&bench);
}

static void a_replay_that_finds_no_room_goes_on_by_itself(void **state) {
    (void)state;
    const struct hub_options tight[] = {{{1024, 1u << 20}, HUB_SHARDS * 1024},
                                        {{1024, 2048}, 64u << 20}};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        size_t aheads;
        bench_open_hub(&bench, 400, &tight[i]);
        replayer_open(&bench.reader, bench.publisher, 0);
        assert_int_equal(replay(&bench.reader, &aheads), 400);
        assert_true(hub_stats(bench.hub).bytes <= tight[i].bytes_max);
        bench_close(&bench);
    }
}

static void of_two_replays_apart_each_gets_its_own_frames(void **state) {
    (void)state;
    struct bench bench;
    struct reader other = {0};
    bench_open_hub(&bench, 1200, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    replayer_open(&other, bench.publisher, 600);
    uint64_t last[2] = {0, 600};
    size_t aheads = 0;
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (size_t i = 0; i < 2; i++) {
            struct reader *reader = i == 0 ? &bench.reader : &other;
            enum subscription_step step = reader_next(reader);
            if (step == STEP_AHEAD)
                ahead_finish(reader);
            goes_on = goes_on || step != STEP_WAIT;
            if (step != STEP_FRAMES)
                continue;
            aheads += subscription_ask_ahead(&reader->subscription, &reader->batch) ? 1 : 0;
            for (size_t j = 0; j < reader->batch.count; j++)
                assert_int_equal(frame_number(reader->batch.frames[j]), ++last[i]);
            delivery_batch_release(&reader->batch);
        }
    }
    assert_int_equal(last[0], 1200);
    assert_int_equal(last[1], 1200);
    assert_true(aheads > 0);
    reader_close(&other);
    bench_close(&bench);
}

static void one_that_rests_holds_no_frames_and_goes_on_where_it_was(void **state) {
    (void)state;
    struct bench bench;
    size_t aheads;
    bench_open_hub(&bench, 400, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    struct subscription *subscription = &bench.reader.subscription;
    size_t bytes = hub_stats(bench.hub).bytes;
    assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
    assert_true(subscription_ask_ahead(subscription, &bench.reader.batch));
    delivery_batch_release(&bench.reader.batch);
    assert_true(hub_stats(bench.hub).bytes > bytes);
    subscription_idle(subscription);
    assert_int_equal(hub_stats(bench.hub).bytes, bytes);
    /* What was under way finds nobody who waits for it. */
    ahead_finish(&bench.reader);
    assert_int_equal(hub_stats(bench.hub).bytes, bytes);
    assert_null(subscription->read);
    assert_int_equal(replay(&bench.reader, &aheads), 400 - 16);
    bench_close(&bench);
}

static void who_reaches_the_head_by_the_pages_of_others_replays_no_more(void **state) {
    (void)state;
    struct bench bench;
    struct reader other = {0};
    bench_open_hub(&bench, 32, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    replayer_open(&other, bench.publisher, 0);
    size_t bytes = hub_stats(bench.hub).bytes;
    assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
    delivery_batch_release(&bench.reader.batch);
    assert_int_equal(reader_next(&other), STEP_FRAMES);
    delivery_batch_release(&other.batch);
    assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
    assert_true(hub_stats(bench.hub).bytes > bytes);
    assert_true(subscription_is_at(&other.subscription, bench.reader.batch.after_seq));
    subscription_pass(&other.subscription, &bench.reader.batch, 32);
    assert_int_equal(hub_stats(bench.hub).bytes, bytes);
    delivery_batch_release(&bench.reader.batch);
    reader_close(&other);
    bench_close(&bench);
}

static void pages_that_overlap_are_kept_as_one(void **state) {
    (void)state;
    struct bench bench;
    struct reader other = {0};
    bench_open_hub(&bench, 400, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    replayer_open(&other, bench.publisher, 8);
    assert_int_equal(subscription_next(&other.subscription, &other.batch), STEP_READ);
    journal_read_run(other.subscription.read, other.session);
    assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
    delivery_batch_release(&bench.reader.batch);
    subscription_read_done(&other.subscription);
    for (uint64_t seq = 1; seq <= 24; seq++)
        assert_true(hub_holds(&other.watch, seq));
    assert_false(hub_holds(&other.watch, 25));
    reader_close(&other);
    bench_close(&bench);
}

static void what_was_read_again_is_pruned_too(void **state) {
    (void)state;
    struct bench bench;
    bench_open_hub(&bench, 400, &roomy);
    replayer_open(&bench.reader, bench.publisher, 0);
    assert_int_equal(reader_next(&bench.reader), STEP_FRAMES);
    assert_true(subscription_ask_ahead(&bench.reader.subscription, &bench.reader.batch));
    delivery_batch_release(&bench.reader.batch);
    ahead_finish(&bench.reader);
    publisher_prune(bench.publisher, bench.publisher->summaries_ref, 100);
    hub_prune(bench.hub, SLICE(SUMMARIES), 100);
    assert_int_equal(reader_next(&bench.reader), STEP_STALE);
    assert_int_equal(subscription_continuity(&bench.reader.subscription)->after_seq, 16);
    bench_close(&bench);
}

static void what_was_read_is_given_whatever_retention_does_meanwhile(void **state) {
    (void)state;
    struct bench bench;
    bench_open_hub(&bench, 400, &roomy);
    reader_open(&bench.reader, bench.publisher,
                &(struct subscription_options){.topic = SLICE(SUMMARIES)});
    struct subscription *subscription = &bench.reader.subscription;
    assert_int_equal(subscription_next(subscription, &bench.reader.batch), STEP_READ);
    journal_read_run(subscription->read, bench.reader.session);
    subscription_read_done(subscription);
    publisher_prune(bench.publisher, bench.publisher->summaries_ref, 100);
    hub_prune(bench.hub, SLICE(SUMMARIES), 100);
    /* A bootstrap is never stale. */
    assert_int_equal(subscription_next(subscription, &bench.reader.batch), STEP_FRAMES);
    assert_int_equal(bench.reader.batch.count, 16);
    delivery_batch_release(&bench.reader.batch);
    assert_int_equal(reader_next(&bench.reader), STEP_STALE);
    bench_close(&bench);
}

/* ---- the seam ---- */

#define SEAM_ROUNDS_DEFAULT 150
#define SEAM_READERS        2

struct seam {
    struct publisher *publisher;
    atomic_uint_fast64_t head; /* of the summaries, as committed */
    size_t rounds;
};

struct seam_reader {
    struct seam *seam;
    pthread_t thread;
    uint64_t seed;
    size_t stale;
    size_t resumed;
    size_t frames;
    size_t aheads;
};

enum seam_topic { SEAM_RUN, SEAM_SUMMARIES, SEAM_LOG, SEAM_LOG_BY_EVENT, SEAM_TOPICS };

static uint64_t seam_goal(const struct seam *seam, enum seam_topic topic) {
    uint64_t head = atomic_load(&seam->head);
    return topic == SEAM_RUN ? head / 2 : head;
}

static struct subscription_options seam_options(struct seam_reader *me, enum seam_topic topic,
                                                uint64_t head) {
    const char *const names[SEAM_TOPICS] = {RUN_TOPIC, SUMMARIES, LOG_TOPIC, LOG_TOPIC};
    uint64_t back = test_random(&me->seed) % 600;
    uint64_t after_seq = head > back ? head - back : 0;
    /* All of the log would be a long round. */
    bool has_cursor = topic >= SEAM_LOG || test_random(&me->seed) % 8 != 0;
    return (struct subscription_options){.topic = slice_of(names[topic]),
                                         .has_cursor = has_cursor && topic != SEAM_LOG_BY_EVENT,
                                         .after_seq = after_seq,
                                         .has_event_cursor = topic == SEAM_LOG_BY_EVENT,
                                         .event_cursor = cursor_behind(after_seq)};
}

/* One client: begins anywhere, must see every seq from there on, or be told and begin again. */
static void seam_round(struct seam_reader *me) {
    struct seam *seam = me->seam;
    struct reader reader = {0};
    enum seam_topic topic = (enum seam_topic)(test_random(&me->seed) % SEAM_TOPICS);
    uint64_t head = seam_goal(seam, topic);
    uint64_t goal = head + test_random(&me->seed) % 100;
    struct subscription_options options = seam_options(me, topic, head);
    reader_open(&reader, seam->publisher, &options);
    reader.batch.count_max = 1 + test_random(&me->seed) % 64;
    uint64_t last = options.after_seq;
    bool is_placed = options.has_cursor || options.has_event_cursor;
    while (last < goal) {
        enum subscription_step step = reader_next(&reader);
        bool is_late = test_random(&me->seed) % 2 == 0;
        if (reader.subscription.ahead && (step == STEP_AHEAD || !is_late))
            ahead_finish(&reader);
        if (step == STEP_AHEAD)
            continue;
        if (test_random(&me->seed) % 64 == 0)
            subscription_idle(&reader.subscription);
        if (step == STEP_STALE) {
            assert_true(topic < SEAM_LOG);
            me->stale++;
            assert_true(subscription_continuity(&reader.subscription)->reason_count > 0);
            subscription_restart(&reader.subscription);
            is_placed = false;
            continue;
        }
        assert_true(step == STEP_FRAMES || step == STEP_WAIT);
        if (!is_placed) {
            assert_true(reader.subscription.is_bootstrap);
            last = reader.subscription.bootstrap.from_seq - 1;
            is_placed = true;
        }
        assert_int_equal(reader.batch.after_seq, last);
        for (size_t i = 0; step == STEP_FRAMES && i < reader.batch.count; i++) {
            assert_int_equal(reader.batch.frames[i]->content.seq, last + 1);
            if (topic < SEAM_LOG)
                assert_int_equal(frame_number(reader.batch.frames[i]), last + 1);
            last++;
        }
        me->frames += reader.batch.count;
        if (step == STEP_FRAMES && subscription_ask_ahead(&reader.subscription, &reader.batch))
            me->aheads++;
        if (step == STEP_FRAMES)
            delivery_batch_release(&reader.batch);
        assert_int_equal(reader.batch.through_seq, last);
    }
    me->resumed++;
    if (reader.subscription.ahead)
        ahead_finish(&reader);
    reader_close(&reader);
}

static void *seam_thread(void *user) {
    struct seam_reader *me = user;
    for (size_t i = 0; i < me->seam->rounds; i++)
        seam_round(me);
    return NULL;
}

static void seam_prune(struct seam *seam, uint64_t topic_ref, struct slice topic,
                       uint64_t below_seq) {
    publisher_prune(seam->publisher, topic_ref, below_seq);
    hub_prune(seam->publisher->hub, topic, below_seq);
}

static void readers_at_random_places_see_everything_or_are_told(void **state) {
    (void)state;
    const struct hub_options options = {{64, 1u << 20}, HUB_SHARDS * 16384};
    const char *rounds = getenv("KHALA_SEAM_ROUNDS");
    struct seam seam = {.rounds = rounds ? strtoul(rounds, NULL, 10) : SEAM_ROUNDS_DEFAULT};
    struct seam_reader readers[SEAM_READERS];
    struct hub *hub;
    uint64_t seed = 4;
    assert_ok(hub_open(&hub, &options));
    seam.publisher = publisher_open(hub);
    publisher_commit(seam.publisher, 64);
    atomic_store(&seam.head, 64);
    for (size_t i = 0; i < SEAM_READERS; i++) {
        readers[i] = (struct seam_reader){.seam = &seam, .seed = 100 + i};
        pthread_create(&readers[i].thread, NULL, seam_thread, &readers[i]);
    }
    /* Until all rounds are done: the readers count on the head going on. */
    for (size_t done = 0; done < SEAM_READERS;) {
        size_t count = 1 + test_random(&seed) % 32;
        publisher_commit(seam.publisher, count);
        uint64_t head = seam.publisher->log_id;
        atomic_store(&seam.head, head);
        uint64_t kept = test_random(&seed) % 500;
        if (test_random(&seed) % 4 == 0 && head > kept)
            seam_prune(&seam, seam.publisher->summaries_ref, SLICE(SUMMARIES), head - kept);
        if (test_random(&seed) % 4 == 0 && head / 2 > kept)
            seam_prune(&seam, RUN_TOPIC_REF, SLICE(RUN_TOPIC), head / 2 - kept);
        while (done < SEAM_READERS && pthread_tryjoin_np(readers[done].thread, NULL) == 0)
            done++;
    }
    for (size_t i = 0; i < SEAM_READERS; i++) {
        assert_int_equal(readers[i].resumed, seam.rounds);
        assert_true(readers[i].stale > 0);
        assert_true(readers[i].frames > 0);
        assert_true(readers[i].aheads > 0);
    }
    publisher_close(seam.publisher);
    hub_close(hub);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cursor_resumes_right_behind_it),
        cmocka_unit_test(what_is_committed_while_a_page_is_on_its_way_counts_as_more),
        cmocka_unit_test(a_topic_that_is_not_there_yet_can_be_waited_for),
        cmocka_unit_test(a_bootstrap_begins_where_the_budget_allows_and_is_never_stale),
        cmocka_unit_test(a_cursor_beyond_the_budget_is_stale_and_recovers_by_a_restart),
        cmocka_unit_test(the_floor_is_told_to_the_cursor_right_below_it_and_not_to_the_one_at_it),
        cmocka_unit_test(a_reader_that_retention_overtakes_is_told),
        cmocka_unit_test(frames_of_others_are_covered_and_not_given),
        cmocka_unit_test(what_was_not_asked_for_is_covered_and_the_cursor_goes_with_it),
        cmocka_unit_test(a_position_behind_others_events_names_none_of_them),
        cmocka_unit_test(a_reader_may_begin_at_the_head),
        cmocka_unit_test(a_frame_is_the_same_from_the_store_and_from_the_window),
        cmocka_unit_test(the_log_without_a_cursor_is_all_of_it_and_then_live),
        cmocka_unit_test(the_log_by_event_cursor_opens_with_one_read),
        cmocka_unit_test(a_cursor_at_the_head_waits_for_the_next_event),
        cmocka_unit_test(on_the_log_too_everybody_sees_their_own),
        cmocka_unit_test(a_cursor_of_another_epoch_is_told_and_a_restart_forgets_it),
        cmocka_unit_test(frames_are_read_ahead_once_for_all_who_replay_there),
        cmocka_unit_test(who_asks_for_frames_that_came_meanwhile_reads_nothing),
        cmocka_unit_test(a_lone_replay_is_read_in_pages_larger_than_its_batches),
        cmocka_unit_test(a_replay_that_finds_no_room_goes_on_by_itself),
        cmocka_unit_test(of_two_replays_apart_each_gets_its_own_frames),
        cmocka_unit_test(one_that_rests_holds_no_frames_and_goes_on_where_it_was),
        cmocka_unit_test(who_reaches_the_head_by_the_pages_of_others_replays_no_more),
        cmocka_unit_test(pages_that_overlap_are_kept_as_one),
        cmocka_unit_test(what_was_read_again_is_pruned_too),
        cmocka_unit_test(what_was_read_is_given_whatever_retention_does_meanwhile),
        cmocka_unit_test(readers_at_random_places_see_everything_or_are_told),
    };
    return cmocka_run_group_tests_name("subscription", tests, NULL, NULL);
}
