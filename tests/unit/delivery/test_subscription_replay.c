/* Replays of subscriptions: pages read ahead, shared by several replays, and overtaken by
 * retention. */
#include "delivery/subscription_fixture.h"

static const struct hub_options roomy = {{1024, 4u << 20}, 256u << 20};
/* The window keeps four of the newest frames. What a replay has read beside them leaves with it. */
static const struct hub_options four_newest = {{4, 4u << 20}, 256u << 20};

/* Of the frames up to head_seq, the hub has only the newest four. */
static void assert_four_newest(struct hub_watch *watch, uint64_t head_seq) {
    for (uint64_t seq = 1; seq <= head_seq; seq++)
        assert_int_equal(hub_holds(watch, seq), seq + 4 > head_seq);
}

/* Begins as a session does: the position is compared with the store first. */
static void replay_open(struct client *client, struct publisher *publisher, uint64_t after_seq) {
    client_open(client, publisher,
                &(struct client_options){
                    .topic = SLICE(SUMMARIES), .has_cursor = true, .after_seq = after_seq});
    assert_ok(subscription_ask_position(&client->subscription));
    journal_read_run(client->subscription.read, client->session);
    subscription_read_done(&client->subscription, STATUS_OK);
}

/* Replays to the head and always reads ahead. Each read ahead runs when the replay waits for it.
 * Answers the number of frames. */
static size_t replay(struct client *client, size_t *aheads) {
    size_t given = 0;
    *aheads = 0;
    for (;;) {
        enum subscription_step step = client_next(client);
        if (step == STEP_AHEAD) {
            ahead_finish(client);
            continue;
        }
        if (step != STEP_FRAMES) {
            assert_int_equal(step, STEP_WAIT);
            return given;
        }
        given += client->batch.count;
        if (!client->subscription.ahead &&
            subscription_ask_ahead(&client->subscription, &client->batch))
            ++*aheads;
        delivery_batch_release(&client->batch);
    }
}

static void frames_are_read_ahead_once_for_all_replays_at_that_position(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 400, &four_newest);
    struct client *first = &fixture.client;
    replay_open(first, fixture.publisher, 0);
    replay_open(&other, fixture.publisher, 8);
    assert_int_equal(client_next(first), STEP_FRAMES);
    assert_int_equal(first->batch.through_seq, 16);
    assert_true(subscription_ask_ahead(&first->subscription, &first->batch));
    delivery_batch_release(&first->batch);
    /* One read ahead runs at a time, and only for frames that are not in memory. */
    uint64_t rows = store_session_rows_read(other.session);
    assert_int_equal(client_next(&other), STEP_FRAMES);
    assert_int_equal(other.batch.through_seq, 16);
    assert_false(subscription_ask_ahead(&other.subscription, &other.batch));
    delivery_batch_release(&other.batch);
    assert_int_equal(client_next(first), STEP_AHEAD);
    ahead_finish(first);
    size_t aheads;
    assert_int_equal(replay(&other, &aheads), 400 - 16);
    assert_int_equal(store_session_rows_read(other.session), rows);
    rows = store_session_rows_read(first->session);
    assert_int_equal(replay(first, &aheads), 400 - 16);
    assert_int_equal(store_session_rows_read(first->session), rows);
    /* No replay is left. */
    assert_four_newest(&other.watch, 400);
    client_close(&other);
    fixture_close(&fixture);
}

static void frames_that_another_replay_has_read_meanwhile_are_not_read_again(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 400, &roomy);
    replay_open(&fixture.client, fixture.publisher, 0);
    replay_open(&other, fixture.publisher, 0);
    assert_int_equal(subscription_next(&other.subscription, &other.batch), STEP_READ);
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    delivery_batch_release(&fixture.client.batch);
    uint64_t rows = store_session_rows_read(other.session);
    journal_read_run(other.subscription.read, other.session);
    subscription_read_done(&other.subscription, STATUS_OK);
    assert_int_equal(store_session_rows_read(other.session), rows);
    assert_int_equal(subscription_next(&other.subscription, &other.batch), STEP_FRAMES);
    assert_int_equal(other.batch.count, 16);
    assert_int_equal(other.batch.frames[0]->content.seq, 1);
    delivery_batch_release(&other.batch);
    client_close(&other);
    fixture_close(&fixture);
}

static void a_lone_replay_is_read_in_pages_larger_than_its_batches(void **state) {
    (void)state;
    struct fixture fixture;
    size_t aheads;
    fixture_open_hub(&fixture, 3000, &roomy);
    replay_open(&fixture.client, fixture.publisher, 0);
    assert_int_equal(replay(&fixture.client, &aheads), 3000);
    assert_in_range(aheads, 3, 5);
    fixture_close(&fixture);
}

static void a_replay_without_room_in_the_window_continues_by_itself(void **state) {
    (void)state;
    const struct hub_options tight[] = {{{1024, 1u << 20}, HUB_SHARDS * 1024},
                                        {{1024, 2048}, 64u << 20}};
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture;
        size_t aheads;
        fixture_open_hub(&fixture, 400, &tight[i]);
        replay_open(&fixture.client, fixture.publisher, 0);
        assert_int_equal(replay(&fixture.client, &aheads), 400);
        assert_true(hub_stats(fixture.hub).bytes <= tight[i].bytes_max);
        fixture_close(&fixture);
    }
}

static void two_replays_at_distant_positions_each_get_their_frames(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 1200, &roomy);
    replay_open(&fixture.client, fixture.publisher, 0);
    replay_open(&other, fixture.publisher, 600);
    uint64_t last[2] = {0, 600};
    size_t aheads = 0;
    for (bool has_more = true; has_more;) {
        has_more = false;
        for (size_t i = 0; i < 2; i++) {
            struct client *client = i == 0 ? &fixture.client : &other;
            enum subscription_step step = client_next(client);
            /* At the head, the frames of a read ahead may have come by another replay. */
            if (step == STEP_AHEAD || (step == STEP_WAIT && client->subscription.ahead))
                ahead_finish(client);
            has_more = has_more || step != STEP_WAIT;
            if (step != STEP_FRAMES)
                continue;
            aheads += subscription_ask_ahead(&client->subscription, &client->batch) ? 1 : 0;
            for (size_t j = 0; j < client->batch.count; j++)
                assert_int_equal(frame_number(client->batch.frames[j]), ++last[i]);
            delivery_batch_release(&client->batch);
        }
    }
    assert_int_equal(last[0], 1200);
    assert_int_equal(last[1], 1200);
    assert_true(aheads > 0);
    client_close(&other);
    fixture_close(&fixture);
}

/* ---- several places ---- */

#define GROUPS        HUB_REPLAY_PLACES_MAX
#define GROUP_CLIENTS 3
#define GROUP_FRAMES  160
#define GROUP_GAP     400

struct groups {
    struct client clients[GROUPS][GROUP_CLIENTS];
    uint64_t last[GROUPS][GROUP_CLIENTS];
};

static struct groups *groups_open(struct publisher *publisher) {
    struct groups *groups = calloc(1, sizeof(*groups));
    for (size_t i = 0; i < GROUPS; i++)
        for (size_t j = 0; j < GROUP_CLIENTS; j++) {
            groups->last[i][j] = i * GROUP_GAP;
            replay_open(&groups->clients[i][j], publisher, groups->last[i][j]);
        }
    return groups;
}

static void groups_close(struct groups *groups) {
    for (size_t i = 0; i < GROUPS; i++)
        for (size_t j = 0; j < GROUP_CLIENTS; j++)
            client_close(&groups->clients[i][j]);
    free(groups);
}

static uint64_t groups_rows(const struct groups *groups) {
    uint64_t rows = 0;
    for (size_t i = 0; i < GROUPS; i++)
        for (size_t j = 0; j < GROUP_CLIENTS; j++)
            rows += store_session_rows_read(groups->clients[i][j].session);
    return rows;
}

/* Every client gets the next frames in its turn, in order and without a gap. */
static void groups_step(struct groups *groups) {
    for (size_t i = 0; i < GROUPS; i++)
        for (size_t j = 0; j < GROUP_CLIENTS; j++) {
            struct client *client = &groups->clients[i][j];
            assert_int_equal(client_next(client), STEP_FRAMES);
            for (size_t k = 0; k < client->batch.count; k++)
                assert_int_equal(frame_number(client->batch.frames[k]), ++groups->last[i][j]);
            delivery_batch_release(&client->batch);
        }
}

static void groups_of_replays_at_several_places_each_share_their_reads(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, GROUPS * GROUP_GAP, &roomy);
    struct groups *groups = groups_open(fixture.publisher);
    struct hub_watch *watch = &groups->clients[0][0].watch;
    uint64_t rows = groups_rows(groups);
    while (groups->last[GROUPS - 1][GROUP_CLIENTS - 1] % GROUP_GAP < GROUP_FRAMES)
        groups_step(groups);
    /* The frames of each group once, and the state of the topic for each page. */
    assert_in_range(groups_rows(groups) - rows, GROUPS * GROUP_FRAMES,
                    GROUPS * GROUP_FRAMES * 3 / 2);
    /* A place ends with the last subscriber that is there, and no other place does. */
    for (size_t i = GROUPS; i > 0; i--)
        for (size_t j = GROUP_CLIENTS; j > 0; j--) {
            for (size_t k = 0; k < GROUPS; k++)
                assert_int_equal(hub_holds(watch, k * GROUP_GAP + GROUP_FRAMES), k < i);
            if (i > 1 || j > 1)
                client_close(&groups->clients[i - 1][j - 1]);
        }
    subscription_idle(&groups->clients[0][0].subscription);
    assert_false(hub_holds(watch, GROUP_FRAMES));
    client_close(&groups->clients[0][0]);
    assert_int_equal(hub_stats(fixture.hub).bytes, 0);
    free(groups);
    replay_open(&fixture.client, fixture.publisher, 0);
    fixture_close(&fixture);
}

static void a_replay_beyond_the_last_place_reads_by_itself(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, (GROUPS + 1) * GROUP_GAP, &roomy);
    struct groups *groups = groups_open(fixture.publisher);
    replay_open(&fixture.client, fixture.publisher, GROUPS * GROUP_GAP);
    uint64_t last = GROUPS * GROUP_GAP;
    for (size_t i = 0; i < 5; i++) {
        groups_step(groups);
        assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
        for (size_t j = 0; j < fixture.client.batch.count; j++)
            assert_int_equal(frame_number(fixture.client.batch.frames[j]), ++last);
        delivery_batch_release(&fixture.client.batch);
        assert_false(hub_holds(&fixture.client.watch, last));
        for (size_t j = 0; j < GROUPS; j++)
            assert_true(hub_holds(&fixture.client.watch, groups->last[j][0]));
    }
    /* A place that its subscribers do not use any more is given to another replay. */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
        last = fixture.client.batch.through_seq;
        delivery_batch_release(&fixture.client.batch);
    }
    assert_true(hub_holds(&fixture.client.watch, last));
    groups_step(groups);
    groups_close(groups);
    fixture_close(&fixture);
}

static void the_places_of_a_topic_stay_within_its_memory(void **state) {
    (void)state;
    const struct hub_options small = {{1, 24u << 10}, 64u << 20};
    struct fixture fixture;
    fixture_open_hub(&fixture, GROUPS * GROUP_GAP, &small);
    struct groups *groups = groups_open(fixture.publisher);
    size_t bytes = hub_stats(fixture.hub).bytes;
    size_t most = 0;
    while (groups->last[GROUPS - 1][GROUP_CLIENTS - 1] % GROUP_GAP < GROUP_FRAMES) {
        groups_step(groups);
        size_t used = hub_stats(fixture.hub).bytes - bytes;
        assert_true(used <= 2 * small.window.bytes_max);
        most = used > most ? used : most;
    }
    assert_true(most > small.window.bytes_max);
    groups_close(groups);
    replay_open(&fixture.client, fixture.publisher, 0);
    fixture_close(&fixture);
}

static void an_idle_replay_holds_no_frames_and_resumes_at_its_position(void **state) {
    (void)state;
    struct fixture fixture;
    size_t aheads;
    fixture_open_hub(&fixture, 400, &four_newest);
    replay_open(&fixture.client, fixture.publisher, 0);
    struct subscription *subscription = &fixture.client.subscription;
    size_t bytes = hub_stats(fixture.hub).bytes;
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    assert_true(subscription_ask_ahead(subscription, &fixture.client.batch));
    delivery_batch_release(&fixture.client.batch);
    assert_true(hub_stats(fixture.hub).bytes > bytes);
    subscription_idle(subscription);
    assert_int_equal(hub_stats(fixture.hub).bytes, bytes);
    /* Of the read ahead that was under way, only the newest frames stay: no replay waits for the
     * others. */
    ahead_finish(&fixture.client);
    assert_four_newest(&fixture.client.watch, 400);
    assert_null(subscription->read);
    assert_int_equal(replay(&fixture.client, &aheads), 400 - 16);
    fixture_close(&fixture);
}

static void a_replay_that_reaches_the_head_by_pages_of_another_ends(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 32, &four_newest);
    replay_open(&fixture.client, fixture.publisher, 0);
    replay_open(&other, fixture.publisher, 0);
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    delivery_batch_release(&fixture.client.batch);
    assert_int_equal(client_next(&other), STEP_FRAMES);
    delivery_batch_release(&other.batch);
    subscription_sent(&other.subscription, other.batch.through_seq);
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    assert_true(hub_holds(&other.watch, 17));
    assert_true(subscription_is_at(&other.subscription, fixture.client.batch.after_seq));
    subscription_pass(&other.subscription, &fixture.client.batch, 32);
    subscription_sent(&other.subscription, fixture.client.batch.through_seq);
    assert_four_newest(&other.watch, 32);
    delivery_batch_release(&fixture.client.batch);
    client_close(&other);
    fixture_close(&fixture);
}

static void pages_that_overlap_are_kept_as_one(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 400, &roomy);
    replay_open(&fixture.client, fixture.publisher, 0);
    replay_open(&other, fixture.publisher, 8);
    assert_int_equal(subscription_next(&other.subscription, &other.batch), STEP_READ);
    journal_read_run(other.subscription.read, other.session);
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    delivery_batch_release(&fixture.client.batch);
    subscription_read_done(&other.subscription, STATUS_OK);
    for (uint64_t seq = 1; seq <= 24; seq++)
        assert_true(hub_holds(&other.watch, seq));
    assert_false(hub_holds(&other.watch, 25));
    client_close(&other);
    fixture_close(&fixture);
}

static uint64_t rows_of_a_return(struct publisher *publisher, uint64_t after_seq, size_t expected) {
    struct client client = {0};
    size_t given;
    replay_open(&client, publisher, after_seq);
    uint64_t rows = store_session_rows_read(client.session);
    (void)drain(&client, &given);
    assert_int_equal(given, expected);
    rows = store_session_rows_read(client.session) - rows;
    client_close(&client);
    return rows;
}

static void clients_that_come_back_share_the_newest_frames(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, 400, &roomy);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES)});
    assert_true(rows_of_a_return(fixture.publisher, 300, 100) >= 100);
    assert_int_equal(rows_of_a_return(fixture.publisher, 300, 100), 0);
    assert_int_equal(rows_of_a_return(fixture.publisher, 350, 50), 0);
    /* The frames before those that are in memory are added to them. */
    assert_in_range(rows_of_a_return(fixture.publisher, 200, 200), 100, 150);
    assert_int_equal(rows_of_a_return(fixture.publisher, 200, 200), 0);
    /* New frames follow them. */
    publisher_commit(fixture.publisher, 10);
    assert_int_equal(rows_of_a_return(fixture.publisher, 200, 210), 0);
    assert_int_equal(hub_first_seq(&fixture.client.watch), 201);
    fixture_close(&fixture);
}

/* Otherwise the writer would make a frame of each later event, for no client. */
static void a_topic_that_was_only_read_leaves_the_hub(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, 40, &roomy);
    assert_true(rows_of_a_return(fixture.publisher, 0, 40) >= 40);
    assert_true(hub_is_empty(fixture.hub));
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES)});
    fixture_close(&fixture);
}

static void read_before_the_announcement(struct publisher *publisher) {
    assert_in_range(rows_of_a_return(publisher, 0, 21), 21, 40);
}

static void frames_that_are_announced_after_they_were_read_stay_in_memory(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, 20, &roomy);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES)});
    fixture.publisher->committed = read_before_the_announcement;
    publisher_commit(fixture.publisher, 1);
    fixture.publisher->committed = NULL;
    assert_int_equal(rows_of_a_return(fixture.publisher, 0, 21), 0);
    fixture_close(&fixture);
}

static void a_page_that_was_read_before_a_prune_is_not_kept_after_it(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 20, &roomy);
    replay_open(&fixture.client, fixture.publisher, 8);
    struct subscription *subscription = &fixture.client.subscription;
    assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_READ);
    /* The rows are read before they are pruned, and the frames reach the hub after it was told. */
    hub_prune(fixture.hub, SLICE(SUMMARIES), 15);
    journal_read_run(subscription->read, fixture.client.session);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 15);
    subscription_read_done(subscription, STATUS_OK);
    for (uint64_t seq = 1; seq <= 20; seq++)
        assert_false(hub_holds(&fixture.client.watch, seq));
    /* The reader itself has the frames. A client that comes later does not get them. */
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    assert_int_equal(fixture.client.batch.count, 12);
    delivery_batch_release(&fixture.client.batch);
    replay_open(&other, fixture.publisher, 8);
    assert_int_equal(client_next(&other), STEP_STALE);
    client_close(&other);
    fixture_close(&fixture);
}

static void reads_that_wait_find_the_frames_of_the_first(void **state) {
    (void)state;
    struct fixture fixture;
    struct client other = {0};
    fixture_open_hub(&fixture, 20, &roomy);
    replay_open(&fixture.client, fixture.publisher, 0);
    replay_open(&other, fixture.publisher, 0);
    struct subscription *first = &fixture.client.subscription;
    struct subscription *second = &other.subscription;
    assert_int_equal(subscription_next(first, &fixture.client.batch), STEP_READ);
    assert_int_equal(subscription_next(second, &other.batch), STEP_READ);
    journal_read_run(first->read, fixture.client.session);
    journal_read_run(second->read, other.session);
    assert_true(first->read->is_kept);
    assert_true(second->read->state == JOURNAL_IN_MEMORY);
    subscription_read_done(first, STATUS_OK);
    subscription_read_done(second, STATUS_OK);
    assert_int_equal(client_next(&other), STEP_FRAMES);
    delivery_batch_release(&other.batch);
    client_close(&other);
    fixture_close(&fixture);
}

static void frames_that_were_read_ahead_are_pruned_too(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, 400, &roomy);
    replay_open(&fixture.client, fixture.publisher, 0);
    assert_int_equal(client_next(&fixture.client), STEP_FRAMES);
    assert_true(subscription_ask_ahead(&fixture.client.subscription, &fixture.client.batch));
    delivery_batch_release(&fixture.client.batch);
    ahead_finish(&fixture.client);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 100);
    hub_prune(fixture.hub, SLICE(SUMMARIES), 100);
    assert_int_equal(client_next(&fixture.client), STEP_STALE);
    assert_int_equal(subscription_continuity(&fixture.client.subscription)->after_seq, 16);
    fixture_close(&fixture);
}

static void frames_that_were_read_are_given_though_retention_prunes_them(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open_hub(&fixture, 400, &roomy);
    client_open(&fixture.client, fixture.publisher,
                &(struct client_options){.topic = SLICE(SUMMARIES)});
    struct subscription *subscription = &fixture.client.subscription;
    assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_READ);
    journal_read_run(subscription->read, fixture.client.session);
    subscription_read_done(subscription, STATUS_OK);
    publisher_prune(fixture.publisher, fixture.publisher->summaries_ref, 100);
    hub_prune(fixture.hub, SLICE(SUMMARIES), 100);
    /* A bootstrap is never stale. */
    assert_int_equal(subscription_next(subscription, &fixture.client.batch), STEP_FRAMES);
    assert_int_equal(fixture.client.batch.count, 16);
    delivery_batch_release(&fixture.client.batch);
    assert_int_equal(client_next(&fixture.client), STEP_STALE);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_read_ahead_once_for_all_replays_at_that_position),
        cmocka_unit_test(frames_that_another_replay_has_read_meanwhile_are_not_read_again),
        cmocka_unit_test(a_lone_replay_is_read_in_pages_larger_than_its_batches),
        cmocka_unit_test(a_replay_without_room_in_the_window_continues_by_itself),
        cmocka_unit_test(two_replays_at_distant_positions_each_get_their_frames),
        cmocka_unit_test(groups_of_replays_at_several_places_each_share_their_reads),
        cmocka_unit_test(a_replay_beyond_the_last_place_reads_by_itself),
        cmocka_unit_test(the_places_of_a_topic_stay_within_its_memory),
        cmocka_unit_test(an_idle_replay_holds_no_frames_and_resumes_at_its_position),
        cmocka_unit_test(a_replay_that_reaches_the_head_by_pages_of_another_ends),
        cmocka_unit_test(pages_that_overlap_are_kept_as_one),
        cmocka_unit_test(clients_that_come_back_share_the_newest_frames),
        cmocka_unit_test(a_topic_that_was_only_read_leaves_the_hub),
        cmocka_unit_test(frames_that_are_announced_after_they_were_read_stay_in_memory),
        cmocka_unit_test(a_page_that_was_read_before_a_prune_is_not_kept_after_it),
        cmocka_unit_test(reads_that_wait_find_the_frames_of_the_first),
        cmocka_unit_test(frames_that_were_read_ahead_are_pruned_too),
        cmocka_unit_test(frames_that_were_read_are_given_though_retention_prunes_them),
    };
    return cmocka_run_group_tests_name("subscription replay", tests, NULL, NULL);
}
