/* The scheduler by simulation: readers with a backlog each, served for many turns, and what each
 * got is compared. */
#include "delivery/scheduler.h"

#include "death.h"
#include "test.h"

#define SLICE_FRAMES     50
#define SLICE_FRAMES_MAX 256
#define FLOOD            UINT64_MAX

static const struct scheduler_options options = {SLICE_FRAMES, SLICE_FRAMES_MAX};
static const char topics[8];

struct reader {
    struct turn turn; /* first, so that a turn is its reader */
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
    /* A test that failed leaves its turns behind, and has said why. */
    if (scheduler->shares.count > 0)
        return -1;
    scheduler_release(scheduler);
    free(*state);
    return 0;
}

static void reader_join(struct scheduler *scheduler, struct reader *reader, const char *principal,
                        size_t topic, enum qos_tier tier) {
    *reader = (struct reader){.turn.topic = &topics[topic], .turn.tier = tier};
    assert_ok(scheduler_join(scheduler, slice_of(principal), &reader->turn));
}

static void reader_give(struct scheduler *scheduler, struct reader *reader, uint64_t backlog) {
    reader->backlog = backlog;
    scheduler_add(scheduler, &reader->turn);
}

static struct reader *serve(struct scheduler *scheduler) {
    size_t frames_max = 0;
    struct reader *reader = (struct reader *)scheduler_next(scheduler, &frames_max);
    if (!reader)
        return NULL;
    assert_true(frames_max > 0 && frames_max <= SLICE_FRAMES_MAX);
    size_t frames = reader->backlog < frames_max ? (size_t)reader->backlog : frames_max;
    reader->frames_max = frames_max;
    reader->sent += frames;
    reader->turns++;
    if (reader->backlog != FLOOD)
        reader->backlog -= frames;
    reader->cut_short +=
        scheduler_served(scheduler, &reader->turn, frames, reader->backlog > 0) ? 1 : 0;
    return reader;
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

static void nobody_in_line_is_nobodys_turn(void **state) {
    struct reader reader;
    size_t frames_max;
    assert_null(scheduler_next(*state, &frames_max));
    reader_join(*state, &reader, "p", 0, QOS_TIER_HOT);
    assert_null(scheduler_next(*state, &frames_max));
    reader_give(*state, &reader, 1);
    scheduler_add(*state, &reader.turn); /* once is enough */
    assert_int_equal(((struct scheduler *)*state)->line_count, 1);
    assert_ptr_equal(serve(*state), &reader);
    assert_null(serve(*state));
    assert_int_equal(((struct scheduler *)*state)->line_count, 0);
    scheduler_leave(*state, &reader.turn);
}

static void one_topic_is_sent_in_the_longest_slices_whatever_its_tier(void **state) {
    struct reader readers[3];
    for (size_t i = 0; i < 3; i++) {
        reader_join(*state, &readers[i], "p", 5, QOS_TIER_COLD);
        reader_give(*state, &readers[i], FLOOD);
    }
    serve_times(*state, 300);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(readers[i].sent, 100 * SLICE_FRAMES_MAX);
        assert_int_equal(readers[i].cut_short, 0);
        scheduler_leave(*state, &readers[i].turn);
    }
}

static void topics_of_a_principal_share_by_their_tiers_weight(void **state) {
    struct reader readers[QOS_TIER_COUNT];
    for (size_t i = 0; i < QOS_TIER_COUNT; i++) {
        reader_join(*state, &readers[i], "p", i, (enum qos_tier)i);
        reader_give(*state, &readers[i], FLOOD);
    }
    serve_times(*state, 9000);
    assert_ratio(readers[QOS_TIER_HOT].sent, readers[QOS_TIER_COLD].sent, 4);
    assert_ratio(readers[QOS_TIER_WARM].sent, readers[QOS_TIER_COLD].sent, 2);
    for (size_t i = 0; i < QOS_TIER_COUNT; i++) {
        assert_int_equal(readers[i].cut_short, readers[i].turns);
        scheduler_leave(*state, &readers[i].turn);
    }
    assert_int_equal(readers[QOS_TIER_HOT].frames_max, 4 * SLICE_FRAMES);
    assert_int_equal(readers[QOS_TIER_WARM].frames_max, 2 * SLICE_FRAMES);
    assert_int_equal(readers[QOS_TIER_COLD].frames_max, SLICE_FRAMES);
}

static void the_hotter_goes_first_in_each_round(void **state) {
    struct reader readers[QOS_TIER_COUNT];
    for (size_t i = 0; i < QOS_TIER_COUNT; i++)
        reader_join(*state, &readers[i], "p", i, (enum qos_tier)i);
    for (size_t i = QOS_TIER_COUNT; i-- > 0;)
        reader_give(*state, &readers[i], FLOOD);
    for (size_t i = 0; i < 4 * QOS_TIER_COUNT; i++)
        assert_ptr_equal(serve(*state), &readers[i % QOS_TIER_COUNT]);
    for (size_t i = 0; i < QOS_TIER_COUNT; i++)
        scheduler_leave(*state, &readers[i].turn);
}

/* The hot one empties its lane at each turn and comes back: that must not be a new beginning. */
static void a_quiet_cold_topic_waits_for_few_slices_of_a_flooded_hot_one(void **state) {
    struct reader hot;
    struct reader cold;
    uint64_t seed = 7;
    uint64_t waited_twice = 0;
    reader_join(*state, &hot, "p", 0, QOS_TIER_HOT);
    reader_join(*state, &cold, "p", 1, QOS_TIER_COLD);
    reader_give(*state, &hot, FLOOD);
    for (uint64_t i = 1; i <= 1000; i++) {
        serve_times(*state, test_random(&seed) % 5);
        uint64_t hot_turns = hot.turns;
        reader_give(*state, &cold, 1);
        while (cold.sent < i)
            assert_non_null(serve(*state));
        /* What is left of this round, and where the cold one has had its part, the next. */
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
    struct reader crowd[500];
    struct reader single;
    for (size_t i = 0; i < 500; i++) {
        reader_join(*state, &crowd[i], "p", 0, QOS_TIER_WARM);
        reader_give(*state, &crowd[i], FLOOD);
    }
    reader_join(*state, &single, "p", 1, QOS_TIER_WARM);
    reader_give(*state, &single, FLOOD);
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
    struct reader crowd[500];
    struct reader single;
    for (size_t i = 0; i < 500; i++) {
        reader_join(*state, &crowd[i], "crowd", i % 4, QOS_TIER_HOT);
        reader_give(*state, &crowd[i], FLOOD);
    }
    reader_join(*state, &single, "single", 7, QOS_TIER_COLD);
    reader_give(*state, &single, FLOOD);
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

/* A live frame for everybody of a big principal: one of another waits for a slice of turns, even
 * where those turns send nothing. */
static void small_turns_count_too(void **state) {
    static struct reader crowd[2000];
    for (size_t backlog = 0; backlog < 2; backlog++) {
        struct reader single;
        size_t before = 0;
        for (size_t i = 0; i < 2000; i++) {
            reader_join(*state, &crowd[i], "crowd", 0, QOS_TIER_HOT);
            reader_give(*state, &crowd[i], backlog);
        }
        reader_join(*state, &single, "single", 1, QOS_TIER_COLD);
        reader_give(*state, &single, 1);
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

static void who_sent_alone_for_long_owes_the_other_topics_nothing(void **state) {
    struct reader cold;
    struct reader other;
    reader_join(*state, &cold, "p", 0, QOS_TIER_COLD);
    reader_join(*state, &other, "p", 1, QOS_TIER_COLD);
    reader_give(*state, &cold, FLOOD);
    serve_times(*state, 1000);
    cold.sent = 0;
    reader_give(*state, &other, FLOOD);
    serve_times(*state, 4);
    assert_int_equal(cold.sent, 2 * SLICE_FRAMES);
    assert_int_equal(other.sent, 2 * SLICE_FRAMES);
    scheduler_leave(*state, &cold.turn);
    scheduler_leave(*state, &other.turn);
}

static void leaving_while_in_line_leaves_the_others_in_their_order(void **state) {
    struct reader readers[5];
    for (size_t i = 0; i < 5; i++) {
        reader_join(*state, &readers[i], "p", 0, QOS_TIER_HOT);
        reader_give(*state, &readers[i], 1);
    }
    scheduler_leave(*state, &readers[0].turn);
    scheduler_leave(*state, &readers[2].turn);
    scheduler_leave(*state, &readers[4].turn);
    assert_ptr_equal(serve(*state), &readers[1]);
    assert_ptr_equal(serve(*state), &readers[3]);
    assert_null(serve(*state));
    scheduler_leave(*state, &readers[2].turn); /* again */
    scheduler_leave(*state, &readers[1].turn);
    scheduler_leave(*state, &readers[3].turn);
}

static void who_leaves_during_its_turn_is_not_seen_again(void **state) {
    struct reader reader;
    size_t frames_max;
    reader_join(*state, &reader, "p", 0, QOS_TIER_HOT);
    reader_give(*state, &reader, FLOOD);
    assert_ptr_equal(scheduler_next(*state, &frames_max), &reader.turn);
    scheduler_leave(*state, &reader.turn);
    assert_false(scheduler_served(*state, &reader.turn, frames_max, true));
    assert_null(serve(*state));
}

static void a_turn_that_never_joined_may_leave(void **state) {
    struct turn turn = {0};
    scheduler_leave(*state, &turn);
}

static void principals_are_told_apart_by_all_of_their_name(void **state) {
    struct reader a;
    struct reader b;
    struct reader nameless;
    reader_join(*state, &a, "user:1", 0, QOS_TIER_HOT);
    reader_join(*state, &b, "user:10", 1, QOS_TIER_COLD);
    reader_join(*state, &nameless, "", 2, QOS_TIER_WARM);
    assert_int_equal(((struct scheduler *)*state)->shares.count, 3);
    reader_give(*state, &a, FLOOD);
    reader_give(*state, &b, FLOOD);
    reader_give(*state, &nameless, FLOOD);
    serve_times(*state, 300);
    assert_int_equal(a.sent, b.sent);
    assert_int_equal(a.sent, nameless.sent);
    assert_int_equal(a.cut_short + b.cut_short + nameless.cut_short, 0);
    scheduler_leave(*state, &a.turn);
    scheduler_leave(*state, &b.turn);
    scheduler_leave(*state, &nameless.turn);
}

/* Everybody comes and goes at random. Whoever is in line is served before a bound that follows
 * from the quanta alone. */
static void nobody_starves_whatever_the_others_do(void **state) {
    enum { READERS = 60, PRINCIPALS = 5 };
    struct scheduler *scheduler = *state;
    static const char *const names[PRINCIPALS] = {"a", "b", "c", "d", "e"};
    struct reader readers[READERS] = {0};
    uint64_t since[READERS] = {0};
    /* A round of a share is its eight topics' credit and one slice beyond each, and it comes once
     * for each round of the ring. */
    const uint64_t wait_max = 2 * READERS + 2 * PRINCIPALS * SLICE_FRAMES_MAX * 8;
    uint64_t seed = 11;
    for (uint64_t now = 1; now < 200000; now++) {
        size_t i = test_random(&seed) % READERS;
        struct reader *reader = &readers[i];
        if (!reader->turn.share) {
            size_t topic = test_random(&seed) % 8;
            reader_join(scheduler, reader, names[test_random(&seed) % PRINCIPALS], topic,
                        (enum qos_tier)(topic % QOS_TIER_COUNT));
        } else if (test_random(&seed) % 64 == 0) {
            scheduler_leave(scheduler, &reader->turn);
        } else if (!reader->turn.in_line) {
            reader_give(scheduler, reader, test_random(&seed) % 3 == 0 ? 1 : FLOOD);
            since[i] = now;
        }
        struct reader *served = serve(scheduler);
        if (served)
            since[served - readers] = now;
        for (size_t j = 0; j < READERS; j++)
            assert_true(!readers[j].turn.in_line || now - since[j] <= wait_max);
    }
    size_t in_line = 0;
    for (size_t i = 0; i < READERS; i++)
        in_line += readers[i].turn.in_line;
    assert_int_equal(scheduler->line_count, in_line);
    for (size_t i = 0; i < READERS; i++)
        scheduler_leave(scheduler, &readers[i].turn);
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
        SCHEDULER_TEST(nobody_in_line_is_nobodys_turn),
        SCHEDULER_TEST(one_topic_is_sent_in_the_longest_slices_whatever_its_tier),
        SCHEDULER_TEST(topics_of_a_principal_share_by_their_tiers_weight),
        SCHEDULER_TEST(the_hotter_goes_first_in_each_round),
        SCHEDULER_TEST(a_quiet_cold_topic_waits_for_few_slices_of_a_flooded_hot_one),
        SCHEDULER_TEST(many_connections_on_one_topic_do_not_crowd_out_another_topic),
        SCHEDULER_TEST(many_connections_of_a_principal_do_not_crowd_out_another_principal),
        SCHEDULER_TEST(small_turns_count_too),
        SCHEDULER_TEST(who_sent_alone_for_long_owes_the_other_topics_nothing),
        SCHEDULER_TEST(leaving_while_in_line_leaves_the_others_in_their_order),
        SCHEDULER_TEST(who_leaves_during_its_turn_is_not_seen_again),
        SCHEDULER_TEST(a_turn_that_never_joined_may_leave),
        SCHEDULER_TEST(principals_are_told_apart_by_all_of_their_name),
        SCHEDULER_TEST(nobody_starves_whatever_the_others_do),
        cmocka_unit_test(misuse_is_caught),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
