/* Subscribers start anywhere and read from store, window and live frames, while events are appended
 * at full speed and the keeper prunes close to their positions. Each gets every frame or a stale
 * answer. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "delivery/subscription.h"
#include "retention/keeper.h"

#define READERS        2
#define ROUNDS_DEFAULT 150
#define RUN_TOPIC      "run:r:events"
#define SUMMARIES      "runtime.run_summaries"
#define NOTIFICATIONS  "runtime.notifications"

static const struct principal everybody = {.read_all = true};
static const struct policy policy = {.replay_budget_events = 1000000};

struct seam {
    struct keeper *keeper;
    size_t rounds;
};

struct follower {
    struct seam *seam;
    pthread_t thread;
    uint64_t seed;
    struct store_session *session;
    struct hub_listener listener;
    sem_t woken; /* posted when the topic advanced */
    struct hub_watch watch;
    struct feed_topic topic;
    struct subscription subscription;
    struct delivery_batch batch;
    uint64_t last; /* received, or skipped after a stale answer */
    bool is_placed;
    size_t told;
    size_t frames;
};

static void wake(void *user) {
    struct follower *me = user;
    sem_post(&me->woken);
}

/* Waits until the topic advances. */
static void await_frames(struct follower *me) {
    while (sem_wait(&me->woken) != 0)
        assert_int_equal(errno, EINTR);
    for (size_t count = hub_listener_begin(&me->listener); count > 0; count--)
        (void)hub_listener_next(&me->listener);
}

static void reader_open(struct follower *me) {
    assert_int_equal(sem_init(&me->woken, 0, 0), 0);
    assert_ok(store_session_open(me->seam->keeper->fixture->store, STORE_READ, &me->session));
    hub_listen(me->seam->keeper->hub, &me->listener, wake, me);
}

static void reader_close(struct follower *me) {
    hub_unlisten(&me->listener);
    store_session_close(me->session);
    sem_destroy(&me->woken);
}

static enum subscription_step next(struct follower *me) {
    for (;;) {
        enum subscription_step step = subscription_next(&me->subscription, &me->batch);
        if (step != STEP_READ)
            return step;
        journal_read_run(me->subscription.read, me->session);
        subscription_read_done(&me->subscription, STATUS_OK);
    }
}

static void check_batch(struct follower *me, bool is_run) {
    assert_int_equal(me->batch.after_seq, me->last);
    for (size_t i = 0; i < me->batch.count; i++) {
        const struct frame *frame = me->batch.frames[i];
        assert_int_equal(frame->content.seq, ++me->last);
        if (is_run && me->last > 1) {
            char wanted[32];
            int size =
                snprintf(wanted, sizeof(wanted), "{\"n\":%llu}", (unsigned long long)me->last);
            assert_int_equal(frame->content.payload.size, size);
            assert_memory_equal(frame->content.payload.data, wanted, (size_t)size);
        }
    }
    me->frames += me->batch.count;
    assert_int_equal(me->batch.through_seq, me->last);
    subscription_sent(&me->subscription, me->batch.through_seq);
    delivery_batch_release(&me->batch);
}

static void read_on(struct follower *me, uint64_t goal, bool is_run) {
    while (me->last < goal) {
        enum subscription_step step = next(me);
        if (step == STEP_STALE) {
            assert_true(subscription_continuity(&me->subscription)->reason_count > 0);
            assert_true(me->subscription.start->window.oldest_seq > me->last + 1);
            subscription_restart(&me->subscription);
            me->told++;
            me->is_placed = false;
            continue;
        }
        assert_true(step == STEP_FRAMES || step == STEP_WAIT);
        /* A cursor before the first frame may have become a bootstrap. */
        if (!me->is_placed || (me->last == 0 && me->subscription.is_bootstrap)) {
            assert_true(me->subscription.is_bootstrap);
            assert_true(me->subscription.start->bootstrap.from_seq > 0);
            me->last = me->subscription.start->bootstrap.from_seq - 1;
            me->is_placed = true;
        }
        if (step == STEP_FRAMES)
            check_batch(me, is_run);
        else
            await_frames(me);
    }
}

/* Behind me->last, or from the beginning. */
static void subscribe(struct follower *me, struct slice topic, bool has_cursor) {
    const struct subscription_options options = {.principal = &everybody,
                                                 .view = GRANT_VIEW_ALL,
                                                 .has_cursor = has_cursor,
                                                 .after_seq = me->last};
    me->topic = (struct feed_topic){.watch = &me->watch, .name = topic, .policy = &policy};
    assert_ok(subscription_init(&me->subscription, &me->topic, &options));
}

static void one_round(struct follower *me) {
    bool is_run = test_random(&me->seed) % 2 == 0;
    struct slice topic = is_run ? SLICE(RUN_TOPIC) : SLICE(SUMMARIES);
    struct arena arena;
    struct store_topic stored;
    arena_init(&arena, 65536);
    assert_ok(store_load_topic(me->session, topic, &arena, &stored));
    arena_release(&arena);
    uint64_t back = test_random(&me->seed) % 400;
    me->is_placed = test_random(&me->seed) % 8 != 0;
    me->last = stored.head_seq > back ? stored.head_seq - back : 0;
    assert_ok(hub_watch(&me->listener, topic, &me->watch));
    subscribe(me, topic, me->is_placed);
    me->batch.count_max = 1 + test_random(&me->seed) % 32;
    me->batch.bytes_max = 4096;
    read_on(me, stored.head_seq + test_random(&me->seed) % 40, is_run);
    subscription_release(&me->subscription);
    feed_topic_release(&me->topic);
    hub_unwatch(&me->watch);
}

static void *reader_main(void *user) {
    struct follower *me = user;
    reader_open(me);
    for (size_t i = 0; i < me->seam->rounds; i++)
        one_round(me);
    reader_close(me);
    return NULL;
}

/* Events of the run r, or notifications. */
static void append_to(struct keeper *keeper, bool is_run, uint64_t *seq, size_t count) {
    struct asked *asked[32];
    for (size_t i = 0; i < count; i++) {
        char body[64];
        snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"payload\":{\"n\":%llu}}",
                 (unsigned long long)++*seq);
        asked[i] = post(keeper->fixture, is_run ? APPEND_RUN_EVENT : APPEND_NOTIFICATION,
                        is_run ? "r" : NULL, body);
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(wait_for(asked[i])->event.seq, *seq - count + 1 + i);
}

static void subscribers_get_every_frame_or_a_stale_answer_while_the_job_prunes(void **state) {
    (void)state;
    const char *rounds = getenv("KHALA_SEAM_ROUNDS");
    struct keeper *keeper = keeper_open_with(10, 1);
    struct seam seam = {.keeper = keeper,
                        .rounds = rounds ? strtoul(rounds, NULL, 10) : ROUNDS_DEFAULT};
    static struct follower readers[READERS];
    uint64_t seq = 1;
    uint64_t seed = 9;
    new_run(keeper, "r");
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = (struct follower){.seam = &seam, .seed = 77 + i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]), 0);
    }
    for (size_t done = 0; done < READERS;) {
        append_to(keeper, true, &seq, 1 + test_random(&seed) % 32);
        /* From a retention that keeps all frames to one that keeps none. */
        keeper_advance(keeper, test_random(&seed) % 8 == 0 ? 2000 : test_random(&seed) % 60);
        while (done < READERS && pthread_tryjoin_np(readers[done].thread, NULL) == 0)
            done++;
    }
    size_t told = 0;
    size_t frames = 0;
    for (size_t i = 0; i < READERS; i++) {
        told += readers[i].told;
        frames += readers[i].frames;
    }
    assert_true(told > 0 && frames > 0);
    assert_true(retention_stats(keeper->retention).classes[TOPIC_CLASS_RUN_EVENTS].deleted > 0);
    assert_true(retention_stats(keeper->retention).classes[TOPIC_CLASS_DURABLE_SUMMARY].deleted >
                0);
    keeper_close(keeper);
}

/* Reads 4 of 10 frames from the window, and the keeper prunes all 10 before the rest is read. */
static void read_and_prune(struct follower *me, struct keeper *keeper, struct slice topic) {
    bool is_run = slice_equal(topic, SLICE(RUN_TOPIC));
    uint64_t seq = is_run;
    *me = (struct follower){.seam = &(struct seam){.keeper = keeper}, .is_placed = true};
    reader_open(me);
    assert_ok(hub_watch(&me->listener, topic, &me->watch));
    new_run(keeper, "r");
    append_to(keeper, is_run, &seq, 10 - seq);
    keeper_advance(keeper, 1000);
    append_to(keeper, is_run, &seq, 10);
    subscribe(me, topic, true);
    me->batch.count_max = 4;
    me->batch.bytes_max = 4096;
    assert_int_equal(next(me), STEP_FRAMES); /* 1 to 4: in the middle of the window */
    check_batch(me, false);
    assert_int_equal(hub_first_seq(&me->watch), 1);
    keeper_advance(keeper, DAY_MS - 999);
    assert_true(run_deleted(keeper) >= 10);
    assert_int_equal(hub_first_seq(&me->watch), 11);
}

static void close_all(struct follower *me, struct keeper *keeper) {
    subscription_release(&me->subscription);
    feed_topic_release(&me->topic);
    hub_unwatch(&me->watch);
    reader_close(me);
    keeper_close(keeper);
}

/* A position below the floor gets the same answer from the window and from the store. */
static void a_subscriber_in_the_window_gets_the_same_answer_as_from_the_store(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open_with(86400000, DAY_MS / 1000);
    static struct follower me;
    read_and_prune(&me, keeper, SLICE(NOTIFICATIONS));
    assert_int_equal(next(&me), STEP_STALE);
    assert_int_equal(subscription_continuity(&me.subscription)->reasons[0],
                     REASON_RETENTION_FLOOR_BREACH);
    assert_int_equal(me.subscription.start->window.oldest_seq, 11);
    subscription_restart(&me.subscription);
    me.is_placed = false;
    read_on(&me, 20, false);
    close_all(&me, keeper);
}

/* The log has the events of a run below the floor too. */
static void a_subscriber_of_a_run_goes_on_below_the_floor(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(86400000);
    static struct follower me;
    read_and_prune(&me, keeper, SLICE(RUN_TOPIC));
    read_on(&me, 20, true);
    assert_int_equal(me.told, 0);
    assert_int_equal(me.frames, 20);
    close_all(&me, keeper);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subscribers_get_every_frame_or_a_stale_answer_while_the_job_prunes),
        cmocka_unit_test(a_subscriber_in_the_window_gets_the_same_answer_as_from_the_store),
        cmocka_unit_test(a_subscriber_of_a_run_goes_on_below_the_floor),
    };
    return cmocka_run_group_tests_name("seam", tests, NULL, NULL);
}
