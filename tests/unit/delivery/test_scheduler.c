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
    const struct turn_place place = {slice_of(principal), &topics[topic], tier, NULL};
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
        } else if (client->turn.state != TURN_QUEUED) {
            client_give(scheduler, client, test_random(&seed) % 3 == 0 ? 1 : FLOOD);
            since[i] = now;
        }
        struct client *served = serve(scheduler);
        if (served)
            since[served - clients] = now;
        for (size_t j = 0; j < READERS; j++)
            assert_true(clients[j].turn.state != TURN_QUEUED || now - since[j] <= wait_max);
    }
    size_t queued = 0;
    for (size_t i = 0; i < READERS; i++)
        queued += clients[i].turn.state == TURN_QUEUED;
    assert_int_equal(scheduler->queued_count, queued);
    for (size_t i = 0; i < READERS; i++)
        scheduler_leave(scheduler, &clients[i].turn);
}

/* ---- connections with several topics ---- */

#define SOCKET_TOPICS_MAX 24
#define TRACE_MAX         6000

static const char socket_topics[SOCKET_TOPICS_MAX];
static const uint64_t weights[QOS_TIER_COUNT] = {4, 2, 1};

/* A topic of a socket. */
struct member {
    struct client client; /* first */
    struct socket *socket;
    enum qos_tier tier;
    size_t page_frames; /* the most that one turn sends: pages are also limited by bytes */
    size_t read_frames; /* that one read brings; 0: everything is in memory */
    size_t in_memory;
    bool finds_nothing; /* its reads do not hold the others */
};

/* A connection: what was sent on it, in order. */
struct socket {
    struct scheduler *scheduler;
    struct member members[SOCKET_TOPICS_MAX];
    size_t count;
    size_t room_frames; /* FLOOD: a client that takes everything */
    size_t room_left;
    size_t read_turns; /* how long a read takes */
    size_t read_left;
    struct turn *reading; /* the read under way */
    size_t trace_count;
    struct {
        size_t member;
        size_t frames;
    } trace[TRACE_MAX];
};

static void socket_open(struct scheduler *scheduler, struct socket *socket, const char *principal,
                        const enum qos_tier *tiers, size_t count) {
    *socket = (struct socket){.scheduler = scheduler, .count = count, .room_frames = SIZE_MAX};
    for (size_t i = 0; i < count; i++) {
        struct member *member = &socket->members[i];
        const struct turn_place place = {slice_of(principal), &socket_topics[i], tiers[i],
                                         i > 0 ? &socket->members[0].client.turn : NULL};
        *member = (struct member){.socket = socket, .tier = tiers[i], .page_frames = SIZE_MAX};
        assert_ok(scheduler_join(scheduler, &place, &member->client.turn));
    }
    socket->room_left = socket->room_frames;
}

static void socket_close(struct socket *socket) {
    for (size_t i = 0; i < socket->count; i++)
        scheduler_leave(socket->scheduler, &socket->members[i].client.turn);
}

static void socket_give(struct socket *socket, size_t i, uint64_t backlog) {
    client_give(socket->scheduler, &socket->members[i].client, backlog);
}

/* The socket has room again, and the read that waited longest goes on. */
static void socket_tick(struct socket *socket) {
    if (socket->room_left == 0) {
        socket->room_left = socket->room_frames;
        scheduler_unblock(socket->scheduler, &socket->members[socket->count - 1].client.turn);
    }
    if (!socket->reading) {
        socket->reading = turn_first_reading(&socket->members[0].client.turn);
        socket->read_left = socket->read_turns;
    } else if (socket->read_left-- == 0) {
        struct member *member = (struct member *)socket->reading;
        socket->reading = NULL;
        member->in_memory += member->read_frames;
        scheduler_add(socket->scheduler, &member->client.turn);
    }
}

/* Serves one turn of any socket. False: there is none. */
static bool serve_member(struct scheduler *scheduler) {
    size_t frames_max = 0;
    struct member *member = (struct member *)scheduler_next(scheduler, &frames_max);
    if (!member)
        return false;
    struct client *client = &member->client;
    struct socket *socket = member->socket;
    assert_true(frames_max > 0 && frames_max <= SLICE_FRAMES_MAX);
    if (socket->room_left == 0) {
        scheduler_block(scheduler, &client->turn);
        return true;
    }
    if (member->read_frames > 0 && member->in_memory == 0 && client->backlog > 0) {
        scheduler_wait(scheduler, &client->turn, !member->finds_nothing);
        return true;
    }
    size_t frames = client->backlog < frames_max ? (size_t)client->backlog : frames_max;
    if (member->page_frames < frames)
        frames = member->page_frames;
    if (member->read_frames > 0 && member->in_memory < frames)
        frames = member->in_memory;
    member->in_memory -= member->read_frames > 0 ? frames : 0;
    socket->room_left -= frames < socket->room_left ? frames : socket->room_left;
    client->sent += frames;
    client->turns++;
    if (client->backlog != FLOOD)
        client->backlog -= frames;
    if (socket->trace_count < TRACE_MAX) {
        socket->trace[socket->trace_count].member = (size_t)(member - socket->members);
        socket->trace[socket->trace_count++].frames = frames;
    }
    client->cut_short +=
        scheduler_served(scheduler, &client->turn, frames, client->backlog > 0) ? 1 : 0;
    return true;
}

/* While every topic of the socket waits: its share of every window of 20 rounds is within a
 * quarter, and between two of its turns no other topic has three rounds. */
static void assert_shares(const struct socket *socket) {
    uint64_t sent[SOCKET_TOPICS_MAX] = {0};
    uint64_t since[SOCKET_TOPICS_MAX][SOCKET_TOPICS_MAX] = {{0}};
    uint64_t total = 0;
    uint64_t round = 0;
    size_t begin = 0;
    bool has_window = false;
    for (size_t i = 0; i < socket->count; i++)
        round += SLICE_FRAMES * weights[socket->members[i].tier];
    for (size_t end = 0; end < socket->trace_count; end++) {
        size_t served = socket->trace[end].member;
        sent[served] += socket->trace[end].frames;
        total += socket->trace[end].frames;
        for (size_t i = 0; i < socket->count; i++) {
            since[served][i] = 0;
            since[i][served] += i == served ? 0 : socket->trace[end].frames;
            assert_true(since[i][served] <
                        3 * SLICE_FRAMES * weights[socket->members[served].tier]);
        }
        for (; total - socket->trace[begin].frames >= 20 * round; begin++) {
            sent[socket->trace[begin].member] -= socket->trace[begin].frames;
            total -= socket->trace[begin].frames;
        }
        for (size_t i = 0; i < socket->count && total >= 20 * round; i++) {
            double share = (double)sent[i] / (double)total * (double)round /
                           (double)(SLICE_FRAMES * weights[socket->members[i].tier]);
            if (share < 0.75 || share > 1.25)
                fail_msg("topic %zu of %zu has %f of its share", i, socket->count, share);
            has_window = true;
        }
    }
    assert_true(has_window);
}

static void topics_of_one_socket_have_their_shares_of_every_window(void **state) {
    static struct socket socket;
    uint64_t seed = 5;
    for (size_t round = 0; round < 200; round++) {
        enum qos_tier tiers[SOCKET_TOPICS_MAX];
        size_t count = 2 + test_random(&seed) % (SOCKET_TOPICS_MAX - 1);
        for (size_t i = 0; i < count; i++)
            tiers[i] = (enum qos_tier)(test_random(&seed) % QOS_TIER_COUNT);
        socket_open(*state, &socket, "p", tiers, count);
        if (round % 4 > 0)
            socket.room_left = socket.room_frames = 1 + test_random(&seed) % 300;
        socket.read_turns = test_random(&seed) % 8;
        for (size_t i = 0; i < count; i++) {
            struct member *member = &socket.members[i];
            member->page_frames = 10 + test_random(&seed) % 240;
            member->read_frames = test_random(&seed) % 2 * (1 + test_random(&seed) % 500);
        }
        size_t first = test_random(&seed) % count;
        for (size_t i = 0; i < count; i++)
            socket_give(&socket, (first + i) % count, FLOOD);
        while (socket.trace_count < TRACE_MAX) {
            socket_tick(&socket);
            for (size_t turns = test_random(&seed) % 4; turns > 0; turns--)
                (void)serve_member(*state);
        }
        assert_shares(&socket);
        socket_close(&socket);
    }
}

/* Two sockets with the same topics, and one with a topic of its own. */
static void a_slow_socket_and_a_fast_one_have_their_own_rounds(void **state) {
    static struct socket sockets[3];
    static const enum qos_tier tiers[] = {QOS_TIER_COLD, QOS_TIER_HOT, QOS_TIER_WARM,
                                          QOS_TIER_WARM};
    struct client single;
    uint64_t seed = 9;
    for (size_t i = 0; i < 3; i++) {
        socket_open(*state, &sockets[i], "p", tiers, 4);
        for (size_t topic = 0; topic < 4; topic++) {
            sockets[i].members[topic].read_frames = topic % 2 * 100;
            socket_give(&sockets[i], topic, FLOOD);
        }
    }
    sockets[1].room_left = sockets[1].room_frames = 64;
    sockets[2].room_left = sockets[2].room_frames = 7;
    client_join(*state, &single, "q", 0, QOS_TIER_COLD);
    for (size_t turn = 0; turn < 60000; turn++) {
        for (size_t i = 0; i < 3; i++)
            if (test_random(&seed) % 4 == 0)
                socket_tick(&sockets[i]);
        (void)serve_member(*state);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_shares(&sockets[i]);
        socket_close(&sockets[i]);
    }
    scheduler_leave(*state, &single.turn);
}

static void expect_next(struct socket *socket, size_t member, size_t frames) {
    size_t before = socket->trace_count;
    while (socket->trace_count == before && serve_member(socket->scheduler))
        ;
    assert_int_equal(socket->trace_count, before + 1);
    assert_int_equal(socket->trace[before].member, member);
    assert_int_equal(socket->trace[before].frames, frames);
}

static void a_turn_that_meets_a_full_socket_uses_up_nothing(void **state) {
    static struct socket socket;
    static const enum qos_tier tiers[] = {QOS_TIER_WARM, QOS_TIER_WARM, QOS_TIER_WARM};
    socket_open(*state, &socket, "p", tiers, 3);
    socket.room_left = socket.room_frames = 1;
    for (size_t i = 0; i < 3; i++)
        socket_give(&socket, i, FLOOD);
    for (size_t i = 0; i < 9; i++) {
        expect_next(&socket, i % 3, 2 * SLICE_FRAMES);
        while (serve_member(*state))
            assert_int_equal(socket.trace_count, i + 1);
        socket_give(&socket, i % 3, FLOOD); /* news of a waiting topic changes nothing */
        assert_int_equal(((struct scheduler *)*state)->queued_count, 0);
        socket_tick(&socket);
    }
    socket_close(&socket);
}

static void a_hotter_topic_overtakes_a_queued_one_of_its_socket(void **state) {
    static struct socket socket;
    static const enum qos_tier tiers[] = {QOS_TIER_COLD, QOS_TIER_HOT};
    socket_open(*state, &socket, "p", tiers, 2);
    socket_give(&socket, 0, 1);
    socket_give(&socket, 1, 1);
    expect_next(&socket, 1, 1);
    expect_next(&socket, 0, 1);
    socket_close(&socket);
}

/* The first topic reads; the second one is in memory, and live or not. */
static void turns_of_a_socket_that_reads(void **state, bool is_live, bool finds_nothing,
                                         size_t expected) {
    static struct socket socket;
    static const enum qos_tier tiers[] = {QOS_TIER_WARM, QOS_TIER_WARM};
    socket_open(*state, &socket, "p", tiers, 2);
    socket.members[0].read_frames = 100;
    socket.members[0].finds_nothing = finds_nothing;
    socket.members[1].client.turn.is_live = is_live;
    for (size_t i = 0; i < 2; i++)
        socket_give(&socket, i, FLOOD);
    socket.read_turns = SIZE_MAX;
    socket_tick(&socket);
    for (size_t i = 0; i < 10; i++)
        (void)serve_member(*state);
    assert_int_equal(socket.trace_count, expected);
    socket.reading = &socket.members[0].client.turn;
    socket.read_left = 0;
    socket_tick(&socket);
    if (finds_nothing)
        expect_next(&socket, 1, 2 * SLICE_FRAMES); /* it was queued before */
    expect_next(&socket, 0, 2 * SLICE_FRAMES);
    socket_close(&socket);
}

static void a_round_waits_for_a_read_except_for_live_topics(void **state) {
    turns_of_a_socket_that_reads(state, false, false, 1);
    turns_of_a_socket_that_reads(state, true, false, 9);
    turns_of_a_socket_that_reads(state, false, true, 9);
}

static void a_second_topic_joins_whatever_the_first_one_does(void **state) {
    static const enum qos_tier tiers[] = {QOS_TIER_WARM, QOS_TIER_WARM};
    static struct socket socket;
    struct scheduler *scheduler = *state;
    for (size_t step = 0; step < 5; step++) {
        size_t frames_max;
        socket_open(scheduler, &socket, "p", tiers, 1);
        struct turn *first = &socket.members[0].client.turn;
        if (step > 0)
            socket_give(&socket, 0, FLOOD);
        if (step > 1)
            assert_ptr_equal(scheduler_next(scheduler, &frames_max), first);
        if (step == 2)
            scheduler_wait(scheduler, first, true);
        if (step == 3)
            scheduler_block(scheduler, first);
        const struct turn_place place = {slice_of("p"), &socket_topics[1], QOS_TIER_WARM, first};
        struct member *second = &socket.members[1];
        *second = (struct member){.socket = &socket, .page_frames = SIZE_MAX};
        assert_ok(scheduler_join(scheduler, &place, &second->client.turn));
        socket.count = 2;
        socket_give(&socket, 1, FLOOD);
        if (step == 2)
            scheduler_add(scheduler, first);
        if (step == 3) {
            assert_null(scheduler_next(scheduler, &frames_max));
            scheduler_unblock(scheduler, &second->client.turn);
        }
        if (step == 4)
            assert_true(scheduler_served(scheduler, first, 2 * SLICE_FRAMES, true));
        size_t next = step % 2 == 0;
        for (size_t i = 0; i < 6; i++, next = step == 0 ? 1 : 1 - next)
            expect_next(&socket, next, step == 0 ? SLICE_FRAMES_MAX : 2 * SLICE_FRAMES);
        socket_close(&socket);
    }
}

/* Anything may happen in any order. Afterwards every topic that has frames is served. */
static void no_turn_is_lost_under_random_events(void **state) {
    enum { SOCKETS = 5, TOPICS = 6, STEPS = 100000 };
    static struct socket sockets[SOCKETS];
    struct scheduler *scheduler = *state;
    enum qos_tier tiers[TOPICS];
    uint64_t seed = 17;
    for (size_t i = 0; i < TOPICS; i++)
        tiers[i] = (enum qos_tier)(i % QOS_TIER_COUNT);
    for (size_t i = 0; i < SOCKETS; i++) {
        socket_open(scheduler, &sockets[i], i % 2 ? "p" : "q", tiers, TOPICS);
        sockets[i].room_left = sockets[i].room_frames = 50 * i + 1;
    }
    for (size_t step = 0; step < STEPS; step++) {
        struct socket *socket = &sockets[test_random(&seed) % SOCKETS];
        size_t topic = test_random(&seed) % TOPICS;
        struct member *member = &socket->members[topic];
        struct turn *turn = &member->client.turn;
        member->read_frames = test_random(&seed) % 3 * 40;
        member->finds_nothing = test_random(&seed) % 4 == 0;
        turn->is_live = test_random(&seed) % 2;
        if (test_random(&seed) % 50 == 0 && turn != socket->reading) {
            size_t beside = (topic + 1) % TOPICS;
            const struct turn_place place = {slice_of((socket - sockets) % 2 ? "p" : "q"),
                                             &socket_topics[topic], tiers[topic],
                                             &socket->members[beside].client.turn};
            scheduler_leave(scheduler, turn);
            assert_ok(scheduler_join(scheduler, &place, turn));
            member->client.backlog = 0;
        } else if (turn->state != TURN_READING) {
            socket_give(socket, topic, member->client.backlog + test_random(&seed) % 200);
        }
        if (test_random(&seed) % 2)
            socket_tick(socket);
        (void)serve_member(scheduler);
    }
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < SOCKETS; i++)
            socket_tick(&sockets[i]);
        (void)serve_member(scheduler);
    }
    assert_int_equal(scheduler->queued_count, 0);
    for (size_t i = 0; i < SOCKETS; i++) {
        for (size_t topic = 0; topic < TOPICS; topic++)
            assert_int_equal(sockets[i].members[topic].client.backlog, 0);
        socket_close(&sockets[i]);
    }
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
        SCHEDULER_TEST(topics_of_one_socket_have_their_shares_of_every_window),
        SCHEDULER_TEST(a_slow_socket_and_a_fast_one_have_their_own_rounds),
        SCHEDULER_TEST(a_turn_that_meets_a_full_socket_uses_up_nothing),
        SCHEDULER_TEST(a_hotter_topic_overtakes_a_queued_one_of_its_socket),
        SCHEDULER_TEST(a_round_waits_for_a_read_except_for_live_topics),
        SCHEDULER_TEST(a_second_topic_joins_whatever_the_first_one_does),
        SCHEDULER_TEST(no_turn_is_lost_under_random_events),
        cmocka_unit_test(misuse_is_caught),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
