/* The seam between store, window and live frames: clients that begin at random positions while
 * events are committed and pruned, by seed. */
#include <pthread.h>

#include "delivery/subscription_fixture.h"

#define SEAM_ROUNDS_DEFAULT 150
#define SEAM_CLIENTS        2

struct seam {
    struct publisher *publisher;
    atomic_uint_fast64_t head; /* of the summaries, as committed */
    size_t rounds;
};

struct seam_client {
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

static struct client_options seam_options(struct seam_client *thread, enum seam_topic topic,
                                          uint64_t head) {
    const char *const names[SEAM_TOPICS] = {RUN_TOPIC, SUMMARIES, LOG_TOPIC, LOG_TOPIC};
    /* A cursor behind the last event would be stale. */
    uint64_t back = test_random(&thread->seed) % 600 + (topic == SEAM_LOG_BY_EVENT);
    uint64_t after_seq = head > back ? head - back : 0;
    struct event_cursor event_cursor = {0};
    if (after_seq > 0)
        event_cursor = cursor_behind(after_seq);
    /* A replay of the whole log would make the round long. */
    bool has_cursor = topic >= SEAM_LOG || test_random(&thread->seed) % 8 != 0;
    return (struct client_options){.topic = slice_of(names[topic]),
                                   .has_cursor = has_cursor && topic != SEAM_LOG_BY_EVENT,
                                   .after_seq = after_seq,
                                   .has_event_cursor = topic == SEAM_LOG_BY_EVENT,
                                   .event_cursor = event_cursor};
}

/* One client: begins at a random position. It must see every sequence from there on, or be stale
 * and begin again. */
static void seam_round(struct seam_client *thread) {
    struct seam *seam = thread->seam;
    struct client client = {0};
    enum seam_topic topic = (enum seam_topic)(test_random(&thread->seed) % SEAM_TOPICS);
    uint64_t head = seam_goal(seam, topic);
    uint64_t goal = head + test_random(&thread->seed) % 100;
    struct client_options options = seam_options(thread, topic, head);
    client_open(&client, seam->publisher, &options);
    client.batch.count_max = 1 + test_random(&thread->seed) % 64;
    uint64_t last = options.after_seq;
    bool is_placed = options.has_cursor || options.has_event_cursor;
    while (last < goal) {
        enum subscription_step step = client_next(&client);
        bool is_late = test_random(&thread->seed) % 2 == 0;
        if (client.subscription.ahead && (step == STEP_AHEAD || !is_late))
            ahead_finish(&client);
        if (step == STEP_AHEAD)
            continue;
        if (test_random(&thread->seed) % 64 == 0)
            subscription_idle(&client.subscription);
        if (step == STEP_STALE) {
            assert_true(topic < SEAM_LOG);
            thread->stale++;
            assert_true(subscription_continuity(&client.subscription)->reason_count > 0);
            subscription_restart(&client.subscription);
            is_placed = false;
            continue;
        }
        assert_true(step == STEP_FRAMES || step == STEP_WAIT);
        /* A cursor before the first frame may have become a bootstrap. */
        if (!is_placed || (last == 0 && client.subscription.is_bootstrap)) {
            assert_true(client.subscription.is_bootstrap);
            last = client.subscription.start->bootstrap.from_seq - 1;
            is_placed = true;
        }
        assert_int_equal(client.batch.after_seq, last);
        for (size_t i = 0; step == STEP_FRAMES && i < client.batch.count; i++) {
            assert_int_equal(client.batch.frames[i]->content.seq, last + 1);
            if (topic < SEAM_LOG)
                assert_int_equal(frame_number(client.batch.frames[i]), last + 1);
            last++;
        }
        thread->frames += client.batch.count;
        if (step == STEP_FRAMES && subscription_ask_ahead(&client.subscription, &client.batch))
            thread->aheads++;
        if (step == STEP_FRAMES)
            delivery_batch_release(&client.batch);
        assert_int_equal(client.batch.through_seq, last);
    }
    thread->resumed++;
    if (client.subscription.ahead)
        ahead_finish(&client);
    client_close(&client);
}

static void *seam_thread(void *user) {
    struct seam_client *thread = user;
    for (size_t i = 0; i < thread->seam->rounds; i++)
        seam_round(thread);
    return NULL;
}

static void seam_prune(struct seam *seam, uint64_t topic_ref, struct slice topic,
                       uint64_t below_seq) {
    publisher_prune(seam->publisher, topic_ref, below_seq);
    hub_prune(seam->publisher->hub, topic, below_seq);
}

static void clients_at_random_positions_see_every_frame_or_are_stale(void **state) {
    (void)state;
    const struct hub_options options = {{64, 1u << 20}, HUB_SHARDS * 16384};
    const char *rounds = getenv("KHALA_SEAM_ROUNDS");
    struct seam seam = {.rounds = rounds ? strtoul(rounds, NULL, 10) : SEAM_ROUNDS_DEFAULT};
    struct seam_client clients[SEAM_CLIENTS];
    struct hub *hub;
    uint64_t seed = 4;
    assert_ok(hub_open(&hub, &options));
    seam.publisher = publisher_open(hub);
    publisher_commit(seam.publisher, 64);
    atomic_store(&seam.head, 64);
    for (size_t i = 0; i < SEAM_CLIENTS; i++) {
        clients[i] = (struct seam_client){.seam = &seam, .seed = 100 + i};
        pthread_create(&clients[i].thread, NULL, seam_thread, &clients[i]);
    }
    /* Commits until all rounds are done, because every client waits for a later head. */
    for (size_t done = 0; done < SEAM_CLIENTS;) {
        size_t count = 1 + test_random(&seed) % 32;
        publisher_commit(seam.publisher, count);
        uint64_t head = seam.publisher->log_id;
        atomic_store(&seam.head, head);
        uint64_t kept = test_random(&seed) % 500;
        if (test_random(&seed) % 4 == 0 && head > kept)
            seam_prune(&seam, seam.publisher->summaries_ref, SLICE(SUMMARIES), head - kept);
        if (test_random(&seed) % 4 == 0 && head / 2 > kept)
            seam_prune(&seam, RUN_TOPIC_REF, SLICE(RUN_TOPIC), head / 2 - kept);
        while (done < SEAM_CLIENTS && pthread_tryjoin_np(clients[done].thread, NULL) == 0)
            done++;
    }
    for (size_t i = 0; i < SEAM_CLIENTS; i++) {
        assert_int_equal(clients[i].resumed, seam.rounds);
        assert_true(clients[i].stale > 0);
        assert_true(clients[i].frames > 0);
        assert_true(clients[i].aheads > 0);
    }
    publisher_close(seam.publisher);
    hub_close(hub);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_at_random_positions_see_every_frame_or_are_stale),
    };
    return cmocka_run_group_tests_name("subscription seam", tests, NULL, NULL);
}
