/* A subscription with its feed over a real store, a real hub and an io loop that the test turns by
 * hand. A sink records its calls as words. */
#include "delivery/subscription.h"

#include "death.h"
#include "delivery/feed_world.h"

#define BYTES_MAX 4096

struct fixture {
    struct feed_world world;
    struct subscription subscription;
    struct buffer said; /* the calls of the sink */
    size_t advanced;    /* calls of the member */
    size_t given;       /* frames */
    bool asks_ahead;
};

static struct fixture fixture;

/* ---- the recording sink ---- */

static unsigned long long number(uint64_t value) {
    return value;
}

static void record_frames(struct subscription *subscription, struct delivery_batch *batch) {
    assert_ok(buffer_printf(&fixture.said, "frames(%llu,%llu]:%zu ", number(batch->after_seq),
                            number(batch->through_seq), batch->count));
    for (size_t i = 0; i < batch->count; i++)
        assert_int_equal(frame_number(batch->frames[i]), batch->after_seq + 1 + i);
    fixture.given += batch->count;
    if (fixture.asks_ahead)
        (void)!subscription_ask_ahead(subscription, batch);
    subscription_sent(subscription, batch->through_seq);
    delivery_batch_release(batch);
}

static void record_head(struct subscription *subscription) {
    (void)subscription;
    assert_ok(buffer_append_slice(&fixture.said, SLICE("head ")));
}

static void record_read(struct subscription *subscription) {
    (void)subscription;
    assert_ok(buffer_append_slice(&fixture.said, SLICE("read ")));
}

static void record_ahead(struct subscription *subscription) {
    (void)subscription;
    assert_ok(buffer_append_slice(&fixture.said, SLICE("ahead ")));
}

static void record_stale(struct subscription *subscription) {
    const struct continuity *continuity = subscription_continuity(subscription);
    assert_ok(buffer_printf(&fixture.said, "stale:%s@%llu ", reason_code(continuity->reasons[0]),
                            number(continuity->after_seq)));
}

static void record_failed(struct subscription *subscription) {
    assert_ok(buffer_printf(&fixture.said, "failed:%s ", status_code(subscription->status)));
}

static const struct subscription_sink recording_sink = {
    .frames = record_frames,
    .at_head = record_head,
    .read = record_read,
    .ahead = record_ahead,
    .stale = record_stale,
    .failed = record_failed,
};

/* ---- the fixture ---- */

static void count_advanced(struct feed_member *member) {
    assert_ptr_equal(member, &fixture.subscription.member);
    fixture.advanced++;
}

static void commit(size_t count) {
    feed_world_commit(&fixture.world, count);
}

static void fixture_open(size_t committed, size_t window_frames) {
    memset(&fixture, 0, sizeof(fixture));
    feed_world_open(&fixture.world, window_frames);
    buffer_init(&fixture.said, 1u << 16);
    commit(committed);
}

/* after_seq UINT64_MAX: a bootstrap. */
static void fixture_drive(const char *topic, uint64_t after_seq) {
    bool has_cursor = after_seq != UINT64_MAX;
    const struct subscription_options options = {.principal = &principal_operator,
                                                 .view = GRANT_VIEW_ALL,
                                                 .has_cursor = has_cursor,
                                                 .after_seq = has_cursor ? after_seq : 0};
    const struct subscription_rules rules = {.policies = &fixture.world.policies};
    fixture.subscription.member.advanced = count_advanced;
    assert_ok(subscription_open(&fixture.subscription, &fixture.world.feeds, slice_of(topic),
                                &rules, &options));
}

static void fixture_close(void) {
    subscription_close(&fixture.subscription);
    feed_world_close(&fixture.world);
    buffer_release(&fixture.said);
}

static void step(size_t frames_max) {
    subscription_serve(&fixture.subscription, frames_max, BYTES_MAX, &recording_sink);
}

static void run_read(void) {
    subscription_read_run(&fixture.subscription, fixture.world.session);
    subscription_read_done(&fixture.subscription, STATUS_OK);
}

static void prune(uint64_t below_seq) {
    publisher_prune(fixture.world.publisher, fixture.world.publisher->summaries_ref, below_seq);
    hub_prune(fixture.world.hub, SLICE(SUMMARIES), below_seq);
}

/* The calls of the sink since the last check. */
#define assert_said(text)                                                                          \
    do {                                                                                           \
        assert_slice(buffer_slice(&fixture.said), text);                                           \
        buffer_clear(&fixture.said);                                                               \
    } while (0)

/* ---- frames ---- */

static void a_driver_at_the_head_takes_new_frames_from_the_window(void **state) {
    (void)state;
    fixture_open(0, 32);
    fixture_drive(SUMMARIES, 0);
    step(16);
    assert_said("read ");
    run_read();
    step(16);
    assert_said("head ");
    uint64_t rows = store_session_rows_read(fixture.world.session);
    commit(5);
    step(16);
    assert_said("frames(0,5]:5 ");
    step(16);
    assert_said("head ");
    assert_int_equal(store_session_rows_read(fixture.world.session), rows);
    fixture_close();
}

static void a_driver_below_the_window_reads_the_store(void **state) {
    (void)state;
    fixture_open(100, 8);
    fixture_drive(SUMMARIES, 42);
    step(16);
    assert_said("read ");
    run_read();
    step(16);
    assert_said("frames(42,58]:16 ");
    assert_int_equal(subscription_lag(&fixture.subscription), 42);
    step(16);
    assert_said("read ");
    run_read();
    step(16);
    assert_said("frames(58,74]:16 ");
    fixture_close();
}

static void a_replay_reaches_the_head_without_a_gap(void **state) {
    (void)state;
    fixture_open(30, 8);
    fixture_drive(SUMMARIES, 0);
    do {
        step(7);
        if (subscription_is_reading(&fixture.subscription))
            run_read();
    } while (fixture.given == 0 || subscription_lag(&fixture.subscription) > 0);
    assert_int_equal(fixture.given, 30);
    assert_int_equal(fixture.subscription.next_seq, 31);
    buffer_clear(&fixture.said);
    step(7);
    assert_said("head ");
    fixture_close();
}

static void a_step_respects_both_limits(void **state) {
    (void)state;
    fixture_open(0, 32);
    fixture_drive(SUMMARIES, 0);
    step(16);
    run_read();
    step(16);
    buffer_clear(&fixture.said);
    commit(9);
    step(4);
    assert_said("frames(0,4]:4 ");
    assert_int_equal(subscription_lag(&fixture.subscription), 5);
    /* Each payload has seven bytes, and one frame is given whatever its size. */
    subscription_serve(&fixture.subscription, 16, 14, &recording_sink);
    assert_said("frames(4,6]:2 ");
    subscription_serve(&fixture.subscription, 16, 1, &recording_sink);
    assert_said("frames(6,7]:1 ");
    fixture_close();
}

static void a_bootstrap_begins_where_the_policy_of_the_topic_allows(void **state) {
    (void)state;
    fixture_open(40, 8);
    fixture.world.policies.rows[policy_row_of(SLICE(SUMMARIES))].replay_budget_events = 10;
    fixture_drive(SUMMARIES, UINT64_MAX);
    step(16);
    run_read();
    step(16);
    assert_said("read frames(30,40]:10 ");
    assert_true(fixture.subscription.is_bootstrap);
    fixture_close();
}

/* ---- the feed ---- */

static void a_commit_tells_the_member_of_its_topic(void **state) {
    (void)state;
    fixture_open(0, 32);
    fixture_drive(OTHER_TOPIC, 0);
    step(16);
    run_read();
    step(16);
    assert_said("read head ");
    commit(1); /* of the first run only */
    assert_int_equal(fixture.advanced, 0);
    commit(1);
    assert_int_equal(fixture.advanced, 1);
    /* The topic has just appeared: the store is read once more. */
    step(16);
    run_read();
    step(16);
    assert_said("read frames(0,1]:1 ");
    fixture_close();
}

static void a_driver_keeps_a_copy_of_the_topic_name(void **state) {
    (void)state;
    char name[] = SUMMARIES;
    fixture_open(0, 32);
    fixture_drive(name, 0);
    memset(name, 'x', sizeof(name) - 1);
    assert_slice(fixture.subscription.topic->name, SUMMARIES);
    assert_ptr_equal(fixture.subscription.topic->policy,
                     policy_of(&fixture.world.policies, SLICE(SUMMARIES)));
    assert_ptr_equal(fixture.subscription.topic, feed_topic(fixture.subscription.member.feed));
    fixture_close();
}

static void a_closed_driver_receives_no_commits(void **state) {
    (void)state;
    fixture_open(0, 32);
    fixture_drive(SUMMARIES, 0);
    commit(1);
    assert_int_equal(fixture.advanced, 1);
    subscription_close(&fixture.subscription);
    commit(1);
    assert_int_equal(fixture.advanced, 1);
    fixture_drive(SUMMARIES, 0);
    fixture_close();
}

/* ---- stale and failed ---- */

static void a_driver_that_pruning_overtook_is_stale(void **state) {
    (void)state;
    fixture_open(100, 8);
    fixture_drive(SUMMARIES, 0);
    step(16);
    run_read();
    step(16);
    assert_said("read frames(0,16]:16 ");
    prune(50);
    step(16);
    run_read();
    step(16);
    assert_said("read stale:retention_floor_breach@16 ");
    step(16);
    assert_said("stale:retention_floor_breach@16 ");
    subscription_restart(&fixture.subscription);
    step(16);
    run_read();
    step(16);
    assert_said("read frames(49,65]:16 ");
    fixture_close();
}

static void a_driver_whose_read_could_not_run_fails(void **state) {
    (void)state;
    fixture_open(10, 8);
    fixture_drive(SUMMARIES, 0);
    step(16);
    subscription_read_done(&fixture.subscription, STATUS_LIMIT_REACHED);
    step(16);
    assert_said("read failed:limit_reached ");
    step(16);
    assert_said("failed:limit_reached ");
    fixture_close();
}

static void a_driver_whose_read_ran_and_failed_fails(void **state) {
    (void)state;
    fixture_open(10, 8);
    fixture_drive(SUMMARIES, 0);
    step(16);
    subscription_read_run(&fixture.subscription, fixture.world.session);
    journal_read_release(fixture.subscription.read);
    fixture.subscription.read->status = STATUS_STORE_UNAVAILABLE;
    subscription_read_done(&fixture.subscription, STATUS_OK);
    step(16);
    assert_said("read failed:store_unavailable ");
    fixture_close();
}

/* ---- read-ahead ---- */

/* The position is read first, as a session does it. The first page of frames follows. */
static void begin_ahead(void) {
    fixture_open(400, 1024);
    fixture_drive(SUMMARIES, 0);
    assert_ok(subscription_ask_position(&fixture.subscription));
    run_read();
    fixture.asks_ahead = true;
    step(16);
    run_read();
    step(16);
    assert_said("read frames(0,16]:16 ");
    assert_non_null(fixture.subscription.ahead);
}

static void end_ahead(void) {
    journal_read_run(fixture.subscription.ahead, fixture.world.session);
    subscription_ahead_done(&fixture.subscription);
}

static void a_driver_waits_for_the_frames_that_are_read_ahead(void **state) {
    (void)state;
    begin_ahead();
    step(16);
    assert_said("ahead ");
    step(16);
    assert_said("ahead ");
    end_ahead();
    uint64_t rows = store_session_rows_read(fixture.world.session);
    step(16);
    assert_said("frames(16,32]:16 ");
    assert_int_equal(store_session_rows_read(fixture.world.session), rows);
    fixture_close();
}

static void step_without_ahead(void *user) {
    struct subscription_sink sink = recording_sink;
    (void)user;
    sink.ahead = NULL;
    subscription_serve(&fixture.subscription, 16, BYTES_MAX, &sink);
}

static void a_sink_that_reads_ahead_must_take_the_answer(void **state) {
    (void)state;
    begin_ahead();
    assert_true(aborts(step_without_ahead, NULL));
    end_ahead();
    assert_false(aborts(step_without_ahead, NULL));
    fixture_close();
}

/* ---- a sink that steps again, as a poll does ---- */

struct gathered {
    size_t limit;
    size_t count;
    uint64_t last_seq;
    size_t restarts;
    bool wants_more;
    bool is_answered;
};

static struct gathered gathered;

static void gather_frames(struct subscription *subscription, struct delivery_batch *batch) {
    (void)subscription;
    for (size_t i = 0; i < batch->count; i++)
        gathered.last_seq = batch->frames[i]->content.seq;
    gathered.count += batch->count;
    delivery_batch_release(batch);
    gathered.is_answered = gathered.count == gathered.limit;
    gathered.wants_more = !gathered.is_answered;
}

static void gather_head(struct subscription *subscription) {
    (void)subscription;
    gathered.is_answered = true;
}

static void gather_read(struct subscription *subscription) {
    subscription_read_run(subscription, fixture.world.session);
    subscription_read_done(subscription, STATUS_OK);
    gathered.wants_more = true;
}

static void gather_stale(struct subscription *subscription) {
    subscription_restart(subscription);
    gathered.restarts++;
    gathered.wants_more = true;
}

static void gather_failed(struct subscription *subscription) {
    fail_msg("%s", status_code(subscription->status));
}

static const struct subscription_sink gathering_sink = {
    .frames = gather_frames,
    .at_head = gather_head,
    .read = gather_read,
    .stale = gather_stale,
    .failed = gather_failed,
};

static void gather(size_t limit) {
    gathered = (struct gathered){.limit = limit, .wants_more = true};
    while (gathered.wants_more) {
        gathered.wants_more = false;
        subscription_serve(&fixture.subscription, limit - gathered.count, BYTES_MAX,
                           &gathering_sink);
    }
    assert_true(gathered.is_answered);
}

static void a_sink_without_read_ahead_gathers_a_page_from_store_and_window(void **state) {
    (void)state;
    fixture_open(20, 8);
    fixture_drive(SUMMARIES, 3);
    gather(50);
    assert_int_equal(gathered.count, 17);
    assert_int_equal(gathered.last_seq, 20);
    commit(4);
    gather(3);
    assert_int_equal(gathered.count, 3);
    assert_int_equal(gathered.last_seq, 23);
    assert_int_equal(subscription_lag(&fixture.subscription), 1);
    fixture_close();
}

static void a_sink_may_restart_a_stale_driver_within_a_step(void **state) {
    (void)state;
    fixture_open(40, 8);
    prune(30);
    fixture_drive(SUMMARIES, 5);
    gather(50);
    assert_int_equal(gathered.restarts, 1);
    assert_int_equal(gathered.count, 11);
    assert_int_equal(gathered.last_seq, 40);
    fixture_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_at_the_head_takes_new_frames_from_the_window),
        cmocka_unit_test(a_driver_below_the_window_reads_the_store),
        cmocka_unit_test(a_replay_reaches_the_head_without_a_gap),
        cmocka_unit_test(a_step_respects_both_limits),
        cmocka_unit_test(a_bootstrap_begins_where_the_policy_of_the_topic_allows),
        cmocka_unit_test(a_commit_tells_the_member_of_its_topic),
        cmocka_unit_test(a_driver_keeps_a_copy_of_the_topic_name),
        cmocka_unit_test(a_closed_driver_receives_no_commits),
        cmocka_unit_test(a_driver_that_pruning_overtook_is_stale),
        cmocka_unit_test(a_driver_whose_read_could_not_run_fails),
        cmocka_unit_test(a_driver_whose_read_ran_and_failed_fails),
        cmocka_unit_test(a_driver_waits_for_the_frames_that_are_read_ahead),
        cmocka_unit_test(a_sink_that_reads_ahead_must_take_the_answer),
        cmocka_unit_test(a_sink_without_read_ahead_gathers_a_page_from_store_and_window),
        cmocka_unit_test(a_sink_may_restart_a_stale_driver_within_a_step),
    };
    return cmocka_run_group_tests_name("delivery/subscription_feed", tests, NULL, NULL);
}
