/* Subscriptions over a real store and the hub: where they begin, when they are stale, and which
 * frames they may see. */
#include "delivery/subscription_fixture.h"
#include "hub/frame.h"

static const struct policy frugal = {.replay_budget_events = 10};

static void a_subscription_resumes_right_after_its_cursor(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100);
    client_open(
        &fixture.client, fixture.publisher,
        &(struct client_options){.topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = 42});
    assert_int_equal(drain(&fixture.client, &given), 100);
    assert_int_equal(given, 58);
    publisher_commit(fixture.publisher, 3);
    assert_int_equal(drain(&fixture.client, &given), 103);
    assert_int_equal(given, 3);
    assert_false(fixture.client.subscription.is_bootstrap);
    fixture_close(&fixture);
}

/* The hub announces new events once, also to a subscription that is reading. A subscription that
 * knew only the head of its read would take itself to be caught up. */
static void events_committed_during_a_read_count_as_more(void **state) {
    (void)state;
    for (int after_read = 0; after_read < 2; after_read++) {
        struct fixture fixture;
        fixture_open(&fixture, 10);
        client_open(&fixture.client, fixture.publisher,
                    &(struct client_options){.topic = SLICE(SUMMARIES), .has_cursor = true});
        struct subscription *subscription = &fixture.client.subscription;
        assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_READ);
        journal_read_run(subscription->read, fixture.client.session);
        if (!after_read)
            publisher_commit(fixture.publisher, 2);
        subscription_read_done(subscription, STATUS_OK);
        if (after_read)
            publisher_commit(fixture.publisher, 2);
        assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_FRAMES);
        assert_int_equal(fixture.client.batch.through_seq, 10);
        assert_int_equal(subscription->head_seq, 12);
        delivery_batch_release(&fixture.client.batch);
        fixture_close(&fixture);
    }
}

static void a_topic_that_does_not_exist_yet_can_be_waited_for(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 0);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(RUN_TOPIC)});
    assert_int_equal(drain(&fixture.client, &given), 0);
    publisher_commit(fixture.publisher, 10);
    assert_int_equal(drain(&fixture.client, &given), 5);
    assert_int_equal(given, 5);
    fixture_close(&fixture);
}

static void a_bootstrap_begins_where_the_budget_allows_and_is_never_stale(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES), .policy = &frugal});
    assert_int_equal(drain(&fixture.client, &given), 100);
    assert_int_equal(given, 10);
    assert_true(fixture.client.subscription.is_bootstrap);
    assert_int_equal(fixture.client.subscription.start->bootstrap.from_seq, 91);
    assert_true(fixture.client.subscription.start->bootstrap.truncated);
    fixture_close(&fixture);
}

static void a_snapshot_later_than_the_known_head_raises_it(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 10);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES)});
    struct subscription *subscription = &fixture.client.subscription;
    assert_int_equal(drain(&fixture.client, &given), 10);
    const struct topic_epoch epoch = *subscription_epoch(subscription);
    subscription_place(subscription, 12, &epoch);
    assert_int_equal(subscription->head_seq, 12);
    fixture_close(&fixture);
}

static void a_cursor_beyond_the_budget_is_stale_and_recovers_by_a_restart(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 50);
    client_open(
        &fixture.client, fixture.publisher,
        &(struct client_options){
            .topic = SLICE(SUMMARIES), .policy = &frugal, .has_cursor = true, .after_seq = 1});
    assert_int_equal(client_next(&fixture.client), STEP_STALE);
    const struct continuity *why = subscription_continuity(&fixture.client.subscription);
    assert_int_equal(why->reason_count, 2);
    assert_int_equal(why->reasons[0], REASON_RETENTION_FLOOR_BREACH);
    assert_int_equal(why->reasons[1], REASON_REPLAY_BUDGET_EXCEEDED);
    assert_int_equal(why->oldest_available_cursor, 49);
    assert_int_equal(why->head_cursor, 100);
    subscription_restart(&fixture.client.subscription);
    assert_int_equal(drain(&fixture.client, &given), 100);
    assert_int_equal(given, 10);
    fixture_close(&fixture);
}

/* Each topic would be stale for another reason. */
static void a_cursor_before_the_first_frame_is_a_bootstrap_where_it_is_stale(void **state) {
    (void)state;
    static const struct {
        const struct policy *policy;
        uint64_t pruned_below;
        const char *epoch;
        uint64_t from_seq; /* 0: it resumes */
    } rows[] = {{&frugal, 1, "", 91}, {NULL, 50, "", 50}, {NULL, 1, "another", 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client_options options = {
            .topic = SLICE(SUMMARIES), .policy = rows[i].policy, .has_cursor = true};
        struct fixture fixture;
        size_t given;
        snprintf(options.epoch.text, sizeof(options.epoch.text), "%s", rows[i].epoch);
        fixture_open(&fixture, 100);
        publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, rows[i].pruned_below);
        client_open(&fixture.client, fixture.publisher, &options);
        assert_int_equal(drain(&fixture.client, &given), 100);
        assert_int_equal(fixture.client.subscription.is_bootstrap, rows[i].from_seq > 0);
        assert_int_equal(given, rows[i].from_seq > 0 ? 101 - rows[i].from_seq : 100);
        assert_int_equal(fixture.client.subscription.start->bootstrap.from_seq, rows[i].from_seq);
        fixture_close(&fixture);
    }
}

static void a_cursor_beyond_the_head_is_of_another_history(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 10);
    client_open(
        &fixture.client, fixture.publisher,
        &(struct client_options){.topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = 11});
    assert_int_equal(client_next(&fixture.client), STEP_STALE);
    const struct continuity *why = subscription_continuity(&fixture.client.subscription);
    assert_int_equal(why->reason_count, 1);
    assert_int_equal(why->reasons[0], REASON_CURSOR_AHEAD_OF_HEAD);
    subscription_restart(&fixture.client.subscription);
    assert_int_equal(drain(&fixture.client, &given), 10);
    assert_int_equal(given, 10);
    fixture_close(&fixture);
}

/* Also where the first commit reaches the cursor: its frames are not those that the client saw. */
static void a_cursor_of_a_topic_that_appears_later_is_of_another_history(void **state) {
    (void)state;
    for (uint64_t after = 0; after <= 9; after += 3) {
        struct fixture fixture;
        size_t given;
        fixture_open(&fixture, 0);
        client_open(&fixture.client, fixture.publisher,
                    &(struct client_options){
                        .topic = SLICE(RUN_TOPIC), .has_cursor = true, .after_seq = after});
        assert_int_equal(drain(&fixture.client, &given), after);
        assert_int_equal(client_next(&fixture.client), STEP_WAIT);
        publisher_commit(fixture.publisher, 12);
        if (after > 0) {
            assert_int_equal(client_next(&fixture.client), STEP_STALE);
            assert_int_equal(subscription_continuity(&fixture.client.subscription)->reasons[0],
                             REASON_CURSOR_AHEAD_OF_HEAD);
            subscription_restart(&fixture.client.subscription);
        }
        assert_int_equal(drain(&fixture.client, &given), 6);
        assert_int_equal(given, 6);
        fixture_close(&fixture);
    }
}

static void a_cursor_below_the_floor_is_stale_and_one_at_the_floor_is_not(void **state) {
    (void)state;
    for (uint64_t after = 48; after <= 49; after++) {
        struct fixture fixture;
        fixture_open(&fixture, 100);
        publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 50);
        client_open(&fixture.client, fixture.publisher,
                    &(struct client_options){
                        .topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = after});
        assert_int_equal(client_next(&fixture.client), after == 48 ? STEP_STALE : STEP_FRAMES);
        delivery_batch_release(&fixture.client.batch);
        fixture_close(&fixture);
    }
}

static void a_client_that_retention_overtakes_is_stale(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 400);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES), .has_cursor = true});
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    assert_int_equal(fixture.client.batch.through_seq, 16);
    delivery_batch_release(&fixture.client.batch);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 18);
    assert_int_equal(client_next(&fixture.client), STEP_STALE);
    const struct continuity *why = subscription_continuity(&fixture.client.subscription);
    assert_int_equal(why->after_seq, 16);
    assert_int_equal(why->reasons[0], REASON_RETENTION_FLOOR_BREACH);
    fixture_close(&fixture);
}

/* The start of a bootstrap rises with each event, above clients that replay slowly. */
static void a_replay_of_a_run_goes_on_below_the_floor_and_below_the_budget(void **state) {
    (void)state;
    const struct policy small = {.replay_budget_events = 100};
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 400);
    publisher_prune(fixture.publisher, RUN_TOPIC_REF, 190);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(RUN_TOPIC), .policy = &small});
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    const struct subscription *subscription = &fixture.client.subscription;
    assert_int_equal(subscription->start->bootstrap.from_seq, 101);
    assert_true(subscription->start->bootstrap.truncated);
    assert_int_equal(subscription->start->window.oldest_seq, 101);
    assert_int_equal(fixture.client.batch.after_seq, 100);
    size_t first = fixture.client.batch.count;
    delivery_batch_release(&fixture.client.batch);
    for (int i = 0; i < 4; i++)
        publisher_commit(fixture.publisher, 60);
    publisher_prune(fixture.publisher, RUN_TOPIC_REF, 300);
    assert_int_equal(drain(&fixture.client, &given), 320);
    assert_int_equal(first + given, 220);
    fixture_close(&fixture);
}

static void frames_of_other_owners_are_covered_and_not_given(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("u")};
    const struct principal guest = {.identity.guest_scope = SLICE("g")};
    const struct principal stranger = {.identity.user_id = SLICE("g"),
                                       .identity.org_id = SLICE("u")};
    const struct principal *const principals[] = {&user, &guest, &stranger};
    const size_t expected[] = {50, 50, 0};
    for (size_t i = 0; i < 3; i++) {
        struct fixture fixture;
        size_t given;
        fixture_open(&fixture, 40);
        client_open(
            &fixture.client, fixture.publisher,
            &(struct client_options){.topic = SLICE(SUMMARIES), .principal = principals[i]});
        size_t all = 0;
        assert_int_equal(drain(&fixture.client, &given), 40); /* from the store */
        all += given;
        publisher_commit(fixture.publisher, 60); /* from the window, or both */
        assert_int_equal(drain(&fixture.client, &given), 100);
        assert_int_equal(all + given, expected[i]);
        fixture_close(&fixture);
    }
}

static bool is_even(const void *user, const struct frame_content *content) {
    (void)user;
    return content->seq % 2 == 0;
}

static void filtered_events_are_covered_and_the_cursor_passes_them(void **state) {
    (void)state;
    static const struct uuid none;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 101);
    client_open(
        &fixture.client, fixture.publisher,
        &(struct client_options){.topic = SLICE(LOG_TOPIC), .wants = is_even, .has_cursor = true});
    assert_int_equal(uuid_compare(&fixture.client.subscription.log->cursor, &none), 0);
    assert_int_equal(drain(&fixture.client, &given), 101);
    assert_int_equal(given, 50);
    /* The last event is hidden, and its cursor is known. */
    struct event_cursor at = event_cursor_of(&fixture.client.subscription.log->cursor);
    assert_int_equal(at.timestamp_ms, cursor_behind(101).timestamp_ms);
    fixture_close(&fixture);
}

static void a_position_after_events_of_other_owners_names_none_of_them(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("u")};
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100); /* the last is g's, a millisecond after u's last */
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(LOG_TOPIC), .principal = &user});
    assert_int_equal(drain(&fixture.client, &given), 100);
    assert_int_equal(given, 50);
    struct uuid first = uuid7_first(1700000000000 + 100);
    assert_int_equal(uuid_compare(&fixture.client.subscription.log->cursor, &first), 0);
    fixture_close(&fixture);
}

static void a_client_may_begin_at_the_head(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100);
    client_open(
        &fixture.client, fixture.publisher,
        &(struct client_options){.topic = SLICE(SUMMARIES), .policy = &frugal, .from_head = true});
    assert_int_equal(drain(&fixture.client, &given), 0);
    assert_int_equal(given, 0);
    assert_int_equal(fixture.client.subscription.start->bootstrap.from_seq, 101);
    assert_true(fixture.client.subscription.start->bootstrap.truncated);
    publisher_commit(fixture.publisher, 3);
    assert_int_equal(drain(&fixture.client, &given), 103);
    assert_int_equal(given, 3);
    fixture_close(&fixture);
}

static void a_frame_is_the_same_from_the_store_and_from_the_window(void **state) {
    (void)state;
    const char *const topics[] = {SUMMARIES, RUN_TOPIC, LOG_TOPIC};
    for (size_t i = 0; i < 3; i++) {
        struct fixture fixture;
        struct client warm = {0};
        fixture_open(&fixture, 0);
        const struct client_options options = {.topic = slice_of(topics[i])};
        client_open(&warm, fixture.publisher, &options);
        assert_int_equal(client_next(&warm), STEP_WAIT);
        publisher_commit(fixture.publisher, 1);
        assert_int_equal(client_next(&warm), STEP_FRAMES);
        for (int j = 0; j < 2; j++) /* pushes the first frame out of the window */
            publisher_commit(fixture.publisher, 64);
        client_open(&fixture.client, fixture.publisher, &options);
        assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
        struct frame *a = warm.batch.frames[0];
        struct frame *b = fixture.client.batch.frames[0];
        assert_ptr_not_equal(a, b);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->texts, b->texts, a->bytes - sizeof(*a));
        assert_int_equal(a->content.published_at_ms, b->content.published_at_ms);
        assert_int_equal(uuid_compare(&a->content.cursor, &b->content.cursor), 0);
        assert_true(slice_equal(a->content.document_key, b->content.document_key));
        assert_true(slice_equal(a->content.payload, b->content.payload));
        assert_true(slice_equal(a->content.kind, b->content.kind));
        if (i < 2)
            assert_slice(a->content.document_key,
                         i == 0 ? "runtime/run_summary:r" : "runtime/run_event:r:1");
        assert_slice(b->content.owner.user_id, "u");
        delivery_batch_release(&warm.batch);
        delivery_batch_release(&fixture.client.batch);
        client_close(&warm);
        fixture_close(&fixture);
    }
}

/* ---- the log ---- */

static void the_log_without_a_cursor_is_replayed_whole_and_then_live(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(LOG_TOPIC), .policy = &frugal});
    assert_int_equal(drain(&fixture.client, &given), 100);
    assert_int_equal(given, 100);
    assert_false(fixture.client.subscription.start->bootstrap.truncated);
    assert_true(fixture.client.subscription.start->window.replay_budget_events > 100);
    publisher_commit(fixture.publisher, 3);
    assert_int_equal(drain(&fixture.client, &given), 103);
    assert_int_equal(given, 3);
    fixture_close(&fixture);
}

static void the_log_by_event_cursor_opens_with_one_read(void **state) {
    (void)state;
    struct fixture fixture;
    size_t given;
    fixture_open(&fixture, 100);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(LOG_TOPIC),
                                         .has_event_cursor = true,
                                         .event_cursor = cursor_behind(90)});
    struct subscription *subscription = &fixture.client.subscription;
    fixture.client.batch.bytes_max = 65536;
    assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_READ);
    journal_read_run(subscription->read, fixture.client.session);
    subscription_read_done(subscription, STATUS_OK);
    assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_FRAMES);
    assert_int_equal(fixture.client.batch.after_seq, 90);
    assert_int_equal(fixture.client.batch.count, 10);
    assert_false(subscription->is_bootstrap);
    delivery_batch_release(&fixture.client.batch);
    publisher_commit(fixture.publisher, 3);
    assert_int_equal(drain(&fixture.client, &given), 103);
    fixture_close(&fixture);
}

static void a_cursor_at_the_head_waits_for_the_next_event(void **state) {
    (void)state;
    struct fixture fixture;
    struct store_state stored;
    size_t given;
    fixture_open(&fixture, 100);
    assert_ok(store_read_state(fixture.publisher->session, &stored));
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(LOG_TOPIC),
                                         .has_event_cursor = true,
                                         .event_cursor = event_cursor_of(&stored.cursor)});
    assert_int_equal(client_next(&fixture.client), STEP_WAIT);
    assert_int_equal(fixture.client.subscription.next_seq, 101);
    publisher_commit(fixture.publisher, 1);
    assert_int_equal(drain(&fixture.client, &given), 101);
    assert_int_equal(given, 1);
    fixture_close(&fixture);
}

static void a_principal_sees_only_its_own_events_of_the_log(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("u")};
    const struct principal stranger = {.identity.user_id = SLICE("g")};
    const struct principal *const principals[] = {&user, &stranger};
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;
        size_t stored;
        size_t live;
        fixture_open(&fixture, 40);
        client_open(
            &fixture.client, fixture.publisher,
            &(struct client_options){.topic = SLICE(LOG_TOPIC), .principal = principals[i]});
        assert_int_equal(drain(&fixture.client, &stored), 40);
        publisher_commit(fixture.publisher, 20);
        assert_int_equal(drain(&fixture.client, &live), 60);
        assert_int_equal(stored, i == 0 ? 20 : 0);
        assert_int_equal(live, i == 0 ? 10 : 0);
        fixture_close(&fixture);
    }
}

static void a_cursor_of_another_epoch_is_stale_and_a_restart_forgets_it(void **state) {
    (void)state;
    const char *const topics[] = {SUMMARIES, "nothing", LOG_TOPIC};
    for (size_t i = 0; i < 3; i++) {
        struct fixture fixture;
        size_t given;
        fixture_open(&fixture, 40);
        client_open(&fixture.client, fixture.publisher,
                    &(struct client_options){.topic = slice_of(topics[i]),
                                             .has_cursor = i < 2,
                                             .after_seq = 7,
                                             .epoch = {"another"},
                                             .has_event_cursor = i == 2,
                                             .event_cursor = cursor_behind(7)});
        assert_int_equal(client_next(&fixture.client), STEP_STALE);
        assert_int_equal(subscription_continuity(&fixture.client.subscription)->reasons[0],
                         REASON_EPOCH_MISMATCH);
        subscription_restart(&fixture.client.subscription);
        (void)drain(&fixture.client, &given);
        assert_int_equal(given, i == 1 ? 0 : 40);
        fixture_close(&fixture);
    }
}

static void the_head_of_the_log_is_its_last_event(void **state) {
    (void)state;
    const enum grant_view views[] = {GRANT_VIEW_ALL, GRANT_VIEW_OWN};
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;
        struct store_state stored;
        fixture_open(&fixture, 40);
        assert_ok(store_read_state(fixture.publisher->session, &stored));
        client_open(&fixture.client, fixture.publisher,
                    &(struct client_options){.topic = SLICE(LOG_TOPIC), .from_head = true});
        fixture.client.subscription.view = (uint8_t)views[i];
        assert_int_equal(client_next(&fixture.client), STEP_WAIT);
        /* A principal that does not see everything gets no id. */
        struct uuid first = uuid7_first(uuid7_timestamp_ms(&stored.cursor));
        const struct uuid *expected = i == 0 ? &stored.cursor : &first;
        assert_memory_equal(&fixture.client.subscription.log->cursor, expected, sizeof(*expected));
        fixture_close(&fixture);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_subscription_resumes_right_after_its_cursor),
        cmocka_unit_test(events_committed_during_a_read_count_as_more),
        cmocka_unit_test(a_topic_that_does_not_exist_yet_can_be_waited_for),
        cmocka_unit_test(a_bootstrap_begins_where_the_budget_allows_and_is_never_stale),
        cmocka_unit_test(a_snapshot_later_than_the_known_head_raises_it),
        cmocka_unit_test(a_cursor_beyond_the_budget_is_stale_and_recovers_by_a_restart),
        cmocka_unit_test(a_cursor_before_the_first_frame_is_a_bootstrap_where_it_is_stale),
        cmocka_unit_test(a_cursor_beyond_the_head_is_of_another_history),
        cmocka_unit_test(a_cursor_of_a_topic_that_appears_later_is_of_another_history),
        cmocka_unit_test(a_cursor_below_the_floor_is_stale_and_one_at_the_floor_is_not),
        cmocka_unit_test(a_client_that_retention_overtakes_is_stale),
        cmocka_unit_test(a_replay_of_a_run_goes_on_below_the_floor_and_below_the_budget),
        cmocka_unit_test(frames_of_other_owners_are_covered_and_not_given),
        cmocka_unit_test(filtered_events_are_covered_and_the_cursor_passes_them),
        cmocka_unit_test(a_position_after_events_of_other_owners_names_none_of_them),
        cmocka_unit_test(a_client_may_begin_at_the_head),
        cmocka_unit_test(a_frame_is_the_same_from_the_store_and_from_the_window),
        cmocka_unit_test(the_log_without_a_cursor_is_replayed_whole_and_then_live),
        cmocka_unit_test(the_log_by_event_cursor_opens_with_one_read),
        cmocka_unit_test(a_cursor_at_the_head_waits_for_the_next_event),
        cmocka_unit_test(the_head_of_the_log_is_its_last_event),
        cmocka_unit_test(a_principal_sees_only_its_own_events_of_the_log),
        cmocka_unit_test(a_cursor_of_another_epoch_is_stale_and_a_restart_forgets_it),
    };
    return cmocka_run_group_tests_name("subscription", tests, NULL, NULL);
}
