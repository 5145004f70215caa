/* The scheduler by simulation: clients with a backlog each are served for many turns, and the
 * frames that each was sent are compared. */
#include "delivery/scheduler.h"

#include "death.h"
#include "test.h"

#define SLICE_FRAMES     50
#define SLICE_FRAMES_MAX 256
#define FLOOD            UINT64_MAX

static const struct scheduler_options options = {SLICE_FRAMES, SLICE_FRAMES_MAX};
static const char topics[8];

struct client {
    struct turn turn; /* first, so that a turn casts to its client */
    uint64_t backlog;
    uint64_t sent;
    uint64_t turns;
    uint64_t cut_short;
    size_t frames_max; /* of its last turn */
};

static int setup(void **state) {
    struct scheduler *scheduler = malloc(sizeof(*scheduler));
    scheduler_init(scheduler, &options);
    *state = scheduler;
    return 0;
}

static int teardown(void **state) {
    struct scheduler *scheduler = *state;
    /* A failed test has reported why, and leaves its turns joined. */
    if (scheduler->shares.count > 0)
        return -1;
    scheduler_release(scheduler);
    free(*state);
    return 0;
}

static void client_join(struct scheduler *scheduler, struct client *client, const char *principal,
                        size_t topic, enum qos_tier tier) {
    const struct turn_place place = {slice_of(principal), &topics[topic], tier};
    *client = (struct client){0};
    assert_ok(scheduler_join(scheduler, &place, &client->turn));
}

static void client_give(struct scheduler *scheduler, struct client *client, uint64_t backlog) {
    client->backlog = backlog;
    scheduler_add(scheduler, &client->turn);
}

static struct client *serve(struct scheduler *scheduler) {
    size_t frames_max = 0;
    struct client *client = (struct client *)scheduler_next(scheduler, &frames_max);
    if (!client)
        return NULL;
    assert_true(frames_max > 0 && frames_max <= SLICE_FRAMES_MAX);
    size_t frames = client->backlog < frames_max ? (size_t)client->backlog : frames_max;
    client->frames_max = frames_max;
    client->sent += frames;
    client->turns++;
    if (client->backlog != FLOOD)
        client->backlog -= frames;
    client->cut_short +=
        scheduler_served(scheduler, &client->turn, frames, client->backlog > 0) ? 1 : 0;
    return client;
}

static void serve_times(struct scheduler *scheduler, size_t times) {
    while (times-- > 0)
        assert_non_null(serve(scheduler));
}

static void assert_ratio(uint64_t a, uint64_t b, double expected) {
    double ratio = (double)a / (double)b;
    if (ratio < expected * 0.97 || ratio > expected * 1.03)
        fail_msg("%f, not %f", ratio, expected);
}

static void an_empty_queue_has_no_next_turn(void **state) {
    struct client client;
    size_t frames_max;
    assert_null(scheduler_next(*state, &frames_max));
    client_join(*state, &client, "p", 0, QOS_TIER_HOT);
    assert_null(scheduler_next(*state, &frames_max));
    client_give(*state, &client, 1);
    scheduler_add(*state, &client.turn); /* queued already: no effect */
    assert_int_equal(((struct scheduler *)*state)->queued_count, 1);
    assert_ptr_equal(serve(*state), &client);
    assert_null(serve(*state));
    assert_int_equal(((struct scheduler *)*state)->queued_count, 0);
    scheduler_leave(*state, &client.turn);
}

static void a_single_topic_gets_the_longest_slices_in_any_tier(void **state) {
    struct client clients[3];
    for (size_t i = 0; i < 3; i++) {
        client_join(*state, &clients[i], "p", 5, QOS_TIER_COLD);
        client_give(*state, &clients[i], FLOOD);
    }
    serve_times(*state, 300);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(clients[i].sent, 100 * SLICE_FRAMES_MAX);
        assert_int_equal(clients[i].cut_short, 0);
        scheduler_leave(*state, &clients[i].turn);
    }
}

static void topics_of_a_principal_share_by_their_tiers_weight(void **state) {
    struct client clients[QOS_TIER_COUNT];
    for (size_t i = 0; i < QOS_TIER_COUNT; i++) {
        client_join(*state, &clients[i], "p", i, (enum qos_tier)i);
        client_give(*state, &clients[i], FLOOD);
    }
    serve_times(*state, 9000);
    assert_ratio(clients[QOS_TIER_HOT].sent, clients[QOS_TIER_COLD].sent, 4);
    assert_ratio(clients[QOS_TIER_WARM].sent, clients[QOS_TIER_COLD].sent, 2);
    for (size_t i = 0; i < QOS_TIER_COUNT; i++) {
        assert_int_equal(clients[i].cut_short, clients[i].turns);
        scheduler_leave(*state, &clients[i].turn);
    }
    assert_int_equal(clients[QOS_TIER_HOT].frames_max, 4 * SLICE_FRAMES);
    assert_int_equal(clients[QOS_TIER_WARM].frames_max, 2 * SLICE_FRAMES);
    assert_int_equal(clients[QOS_TIER_COLD].frames_max, SLICE_FRAMES);
}

static void the_hotter_tier_is_served_first_in_each_round(void **state) {
    struct client clients[QOS_TIER_COUNT];
    for (size_t i = 0; i < QOS_TIER_COUNT; i++)
        client_join(*state, &clients[i], "p", i, (enum qos_tier)i);
    for (size_t i = QOS_TIER_COUNT; i-- > 0;)
        client_give(*state, &clients[i], FLOOD);
    for (size_t i = 0; i < 4 * QOS_TIER_COUNT; i++)
        assert_ptr_equal(serve(*state), &clients[i % QOS_TIER_COUNT]);
    for (size_t i = 0; i < QOS_TIER_COUNT; i++)
        scheduler_leave(*state, &clients[i].turn);
}

/* The hot topic empties its lane at each turn and comes back, which must not give it new credit. */
static void a_quiet_cold_topic_waits_for_few_slices_of_a_flooded_hot_one(void **state) {
    struct client hot;
    struct client cold;
    uint64_t seed = 7;
    uint64_t waited_twice = 0;
    client_join(*state, &hot, "p", 0, QOS_TIER_HOT);
    client_join(*state, &cold, "p", 1, QOS_TIER_COLD);
    client_give(*state, &hot, FLOOD);
    for (uint64_t i = 1; i <= 1000; i++) {
        serve_times(*state, test_random(&seed) % 5);
        uint64_t hot_turns = hot.turns;
        client_give(*state, &cold, 1);
        while (cold.sent < i)
            assert_non_null(serve(*state));
        /* The remainder of this round; and the next round, if the cold topic has used its credit.
         */
        uint64_t waited = hot.turns - hot_turns;
        assert_true(waited <= 2);
        waited_twice += waited == 2;
    }
    assert_true(waited_twice <= 1000 / SLICE_FRAMES);
    assert_true(hot.cut_short > 0 && hot.cut_short <= 1000);
    assert_int_equal(cold.cut_short, 0);
    scheduler_leave(*state, &hot.turn);
    scheduler_leave(*state, &cold.turn);
}

static void many_connections_on_one_topic_do_not_crowd_out_another_topic(void **state) {
    struct client crowd[500];
    struct client single;
    for (size_t i = 0; i < 500; i++) {
        client_join(*state, &crowd[i], "p", 0, QOS_TIER_WARM);
        client_give(*state, &crowd[i], FLOOD);
    }
    client_join(*state, &single, "p", 1, QOS_TIER_WARM);
    client_give(*state, &single, FLOOD);
    serve_times(*state, 10000);
    uint64_t sent = 0;
    for (size_t i = 0; i < 500; i++) {
        sent += crowd[i].sent;
        assert_true(crowd[i].turns >= 9 && crowd[i].turns <= 11);
        scheduler_leave(*state, &crowd[i].turn);
    }
    assert_ratio(single.sent, sent, 1);
    scheduler_leave(*state, &single.turn);
}

static void many_connections_of_a_principal_do_not_crowd_out_another_principal(void **state) {
    struct client crowd[500];
    struct client single;
    for (size_t i = 0; i < 500; i++) {
        client_join(*state, &crowd[i], "crowd", i % 4, QOS_TIER_HOT);
        client_give(*state, &crowd[i], FLOOD);
    }
    client_join(*state, &single, "single", 7, QOS_TIER_COLD);
    client_give(*state, &single, FLOOD);
    serve_times(*state, 10000);
    uint64_t sent = 0;
    for (size_t i = 0; i < 500; i++) {
        sent += crowd[i].sent;
        scheduler_leave(*state, &crowd[i].turn);
    }
    assert_ratio(single.sent, sent, 1);
    assert_int_equal(single.cut_short, 0);
    scheduler_leave(*state, &single.turn);
}

/* One live frame for every connection of a big principal: a connection of another principal waits
 * for one slice of turns, even if those turns send nothing. */
static void small_turns_count_too(void **state) {
    static struct client crowd[2000];
    for (size_t backlog = 0; backlog < 2; backlog++) {
        struct client single;
        size_t before = 0;
        for (size_t i = 0; i < 2000; i++) {
            client_join(*state, &crowd[i], "crowd", 0, QOS_TIER_HOT);
            client_give(*state, &crowd[i], backlog);
        }
        client_join(*state, &single, "single", 1, QOS_TIER_COLD);
        client_give(*state, &single, 1);
        while (serve(*state) != &single)
            before++;
        assert_int_equal(before, SLICE_FRAMES_MAX);
        serve_times(*state, 2000 - before);
        assert_null(serve(*state));
        for (size_t i = 0; i < 2000; i++) {
            assert_int_equal(crowd[i].turns, 1);
            scheduler_leave(*state, &crowd[i].turn);
        }
        scheduler_leave(*state, &single.turn);
    }
}

static void a_topic_that_was_alone_for_long_owes_the_other_topics_nothing(void **state) {
    struct client cold;
    struct client other;
    client_join(*state, &cold, "p", 0, QOS_TIER_COLD);
    client_join(*state, &other, "p", 1, QOS_TIER_COLD);
    client_give(*state, &cold, FLOOD);
    serve_times(*state, 1000);
    cold.sent = 0;
    client_give(*state, &other, FLOOD);
    serve_times(*state, 4);
    assert_int_equal(cold.sent, 2 * SLICE_FRAMES);
    assert_int_equal(other.sent, 2 * SLICE_FRAMES);
    scheduler_leave(*state, &cold.turn);
    scheduler_leave(*state, &other.turn);
}

static void a_queued_turn_that_leaves_keeps_the_order_of_the_others(void **state) {
    struct client clients[5];
    for (size_t i = 0; i < 5; i++) {
        client_join(*state, &clients[i], "p", 0, QOS_TIER_HOT);
        client_give(*state, &clients[i], 1);
    }
    scheduler_leave(*state, &clients[0].turn);
    scheduler_leave(*state, &clients[2].turn);
    scheduler_leave(*state, &clients[4].turn);
    assert_ptr_equal(serve(*state), &clients[1]);
    assert_ptr_equal(serve(*state), &clients[3]);
    assert_null(serve(*state));
    scheduler_leave(*state, &clients[2].turn); /* again */
    scheduler_leave(*state, &clients[1].turn);
    scheduler_leave(*state, &clients[3].turn);
}

static void a_subscriber_that_leaves_during_its_turn_is_not_served_again(void **state) {
    struct client client;
    size_t frames_max;
    client_join(*state, &client, "p", 0, QOS_TIER_HOT);
    client_give(*state, &client, FLOOD);
    assert_ptr_equal(scheduler_next(*state, &frames_max), &client.turn);
    scheduler_leave(*state, &client.turn);
    assert_false(scheduler_served(*state, &client.turn, frames_max, true));
    assert_null(serve(*state));
}

static void a_turn_that_never_joined_may_leave(void **state) {
    struct turn turn = {0};
    scheduler_leave(*state, &turn);
}

static void principals_are_distinguished_by_their_whole_name(void **state) {
    struct client a;
    struct client b;
    struct client nameless;
    client_join(*state, &a, "user:1", 0, QOS_TIER_HOT);
    client_join(*state, &b, "user:10", 1, QOS_TIER_COLD);
    client_join(*state, &nameless, "", 2, QOS_TIER_WARM);
    assert_int_equal(((struct scheduler *)*state)->shares.count, 3);
    client_give(*state, &a, FLOOD);
    client_give(*state, &b, FLOOD);
    client_give(*state, &nameless, FLOOD);
    serve_times(*state, 300);
    assert_int_equal(a.sent, b.sent);
    assert_int_equal(a.sent, nameless.sent);
    assert_int_equal(a.cut_short + b.cut_short + nameless.cut_short, 0);
    scheduler_leave(*state, &a.turn);
    scheduler_leave(*state, &b.turn);
    scheduler_leave(*state, &nameless.turn);
}

/* Clients come and go at random. A queued client is served within a bound that follows from the
 * quanta alone. */
static void no_turn_starves_under_random_load(void **state) {
    enum { READERS = 60, PRINCIPALS = 5 };
    struct scheduler *scheduler = *state;
    static const char *const names[PRINCIPALS] = {"a", "b", "c", "d", "e"};
    struct client clients[READERS] = {0};
    uint64_t since[READERS] = {0};
    /* A round of a share is its eight topics' credit and one slice beyond each, and it comes once
     * for each round of the ring. */
    const uint64_t wait_max = 2 * READERS + 2 * PRINCIPALS * SLICE_FRAMES_MAX * 8;
    uint64_t seed = 11;
    for (uint64_t now = 1; now < 200000; now++) {
        size_t i = test_random(&seed) % READERS;
        struct client *client = &clients[i];
        if (!client->turn.lane) {
            size_t topic = test_random(&seed) % 8;
            client_join(scheduler, client, names[test_random(&seed) % PRINCIPALS], topic,
                        (enum qos_tier)(topic % QOS_TIER_COUNT));
        } else if (test_random(&seed) % 64 == 0) {
            scheduler_leave(scheduler, &client->turn);
        } else if (!turn_is_queued(&client->turn)) {
            client_give(scheduler, client, test_random(&seed) % 3 == 0 ? 1 : FLOOD);
            since[i] = now;
        }
        struct client *served = serve(scheduler);
        if (served)
            since[served - clients] = now;
        for (size_t j = 0; j < READERS; j++)
            assert_true(!turn_is_queued(&clients[j].turn) || now - since[j] <= wait_max);
    }
    size_t queued = 0;
    for (size_t i = 0; i < READERS; i++)
        queued += turn_is_queued(&clients[i].turn);
    assert_int_equal(scheduler->queued_count, queued);
    for (size_t i = 0; i < READERS; i++)
        scheduler_leave(scheduler, &clients[i].turn);
}

static void add_without_joining(void *user) {
    (void)user;
    struct scheduler scheduler;
    struct turn turn = {0};
    scheduler_init(&scheduler, &options);
    scheduler_add(&scheduler, &turn);
}

static void misuse_is_caught(void **state) {
    (void)state;
    assert_true(aborts(add_without_joining, NULL));
}

#define SCHEDULER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        SCHEDULER_TEST(an_empty_queue_has_no_next_turn),
        SCHEDULER_TEST(a_single_topic_gets_the_longest_slices_in_any_tier),
        SCHEDULER_TEST(topics_of_a_principal_share_by_their_tiers_weight),
        SCHEDULER_TEST(the_hotter_tier_is_served_first_in_each_round),
        SCHEDULER_TEST(a_quiet_cold_topic_waits_for_few_slices_of_a_flooded_hot_one),
        SCHEDULER_TEST(many_connections_on_one_topic_do_not_crowd_out_another_topic),
        SCHEDULER_TEST(many_connections_of_a_principal_do_not_crowd_out_another_principal),
        SCHEDULER_TEST(small_turns_count_too),
        SCHEDULER_TEST(a_topic_that_was_alone_for_long_owes_the_other_topics_nothing),
        SCHEDULER_TEST(a_queued_turn_that_leaves_keeps_the_order_of_the_others),
        SCHEDULER_TEST(a_subscriber_that_leaves_during_its_turn_is_not_served_again),
        SCHEDULER_TEST(a_turn_that_never_joined_may_leave),
        SCHEDULER_TEST(principals_are_distinguished_by_their_whole_name),
        SCHEDULER_TEST(no_turn_starves_under_random_load),
        cmocka_unit_test(misuse_is_caught),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
