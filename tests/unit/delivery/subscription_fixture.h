/* What the tests of subscriptions share: a store and a hub with committed events, and a client
 * whose store reads run at once on the calling thread. Belongs to the thread of the test. Memory:
 * the test's own structs. A failure fails the test. */
#ifndef DELIVERY_SUBSCRIPTION_FIXTURE_H
#define DELIVERY_SUBSCRIPTION_FIXTURE_H

#include "delivery/publisher.h"
#include "delivery/subscription.h"

static const struct principal operator_all = {.read_all = true};
static const struct policy policy = {.replay_budget_events = 1000000};

static inline void no_wake(void *user) {
    (void)user;
}

/* A client of one topic. */
struct client {
    struct hub_listener listener;
    struct hub_watch watch;
    struct feed_topic topic;
    struct store_session *session;
    struct subscription subscription;
    struct delivery_batch batch;
};

/* As the options of a subscription, and its topic. */
struct client_options {
    struct slice topic;
    const struct policy *policy;       /* NULL: the usual one */
    const struct principal *principal; /* NULL: one that reads everything */
    bool (*wants)(const void *user, const struct frame_content *content);
    uint64_t after_seq;
    struct topic_epoch epoch;
    struct event_cursor event_cursor;
    uint64_t since_ms;
    bool has_cursor;
    bool has_event_cursor;
    bool has_since;
    bool from_head;
    bool replay_all;
};

static inline void client_open(struct client *client, struct publisher *publisher,
                               const struct client_options *options) {
    assert_ok(store_session_open(publisher->store, STORE_READ, &client->session));
    hub_listen(publisher->hub, &client->listener, no_wake, NULL);
    assert_ok(hub_watch(&client->listener, options->topic, &client->watch));
    client->topic = (struct feed_topic){.watch = &client->watch,
                                        .name = options->topic,
                                        .policy = options->policy ? options->policy : &policy};
    const struct subscription_options given = {
        .principal = options->principal ? options->principal : &operator_all,
        .wants = options->wants,
        .after_seq = options->after_seq,
        .epoch = options->epoch,
        .event_cursor = options->event_cursor,
        .since_ms = options->since_ms,
        .view = GRANT_VIEW_OWN,
        .has_cursor = options->has_cursor,
        .has_event_cursor = options->has_event_cursor,
        .has_since = options->has_since,
        .from_head = options->from_head,
        .replay_all = options->replay_all,
    };
    assert_ok(subscription_init(&client->subscription, &client->topic, &given));
    client->batch.count_max = 16;
    client->batch.bytes_max = 4096;
}

static inline void client_close(struct client *client) {
    subscription_release(&client->subscription);
    feed_topic_release(&client->topic);
    hub_unwatch(&client->watch);
    hub_unlisten(&client->listener);
    store_session_close(client->session);
}

/* The next step other than a read; reads run at once. The client was sent the step before. */
static inline enum subscription_step client_next(struct client *client) {
    subscription_sent(&client->subscription, client->subscription.next_seq - 1);
    for (;;) {
        enum subscription_step step = subscription_next(&client->subscription, &client->batch);
        if (step != STEP_READ)
            return step;
        journal_read_run(client->subscription.read, client->session);
        subscription_read_done(&client->subscription, STATUS_OK);
    }
}

/* Takes all frames up to the head. given: their number. Answers the last sequence. */
static inline uint64_t drain(struct client *client, size_t *given) {
    uint64_t through = client->subscription.next_seq - 1;
    enum subscription_step step;
    *given = 0;
    while ((step = client_next(client)) == STEP_FRAMES) {
        if (client->batch.through_seq == client->batch.after_seq)
            continue;
        through = client->batch.through_seq;
        *given += client->batch.count;
        delivery_batch_release(&client->batch);
    }
    assert_int_equal(step, STEP_WAIT);
    return through;
}

struct fixture {
    struct hub *hub;
    struct publisher *publisher;
    struct client client;
};

static inline void fixture_open_hub(struct fixture *fixture, size_t committed,
                                    const struct hub_options *options) {
    memset(fixture, 0, sizeof(*fixture));
    assert_ok(hub_open(&fixture->hub, options));
    fixture->publisher = publisher_open(fixture->hub);
    while (committed > 0) {
        size_t count = committed > PUBLISHER_BATCH_MAX ? PUBLISHER_BATCH_MAX : committed;
        publisher_commit(fixture->publisher, count);
        committed -= count;
    }
}

static inline void fixture_open(struct fixture *fixture, size_t committed) {
    fixture_open_hub(fixture, committed, &(struct hub_options){{32, 1u << 20}, 64u << 20});
}

static inline void fixture_close(struct fixture *fixture) {
    client_close(&fixture->client);
    publisher_close(fixture->publisher);
    hub_close(fixture->hub);
}

/* After the event with that log id and before the next one. */
static inline struct event_cursor cursor_behind(uint64_t log_id) {
    struct event_cursor cursor = {.timestamp_ms = 1700000000000 + log_id};
    memset(cursor.uuid.bytes, 0xff, sizeof(cursor.uuid.bytes));
    return cursor;
}

/* Runs the read ahead that is under way. */
static inline void ahead_finish(struct client *client) {
    journal_read_run(client->subscription.ahead, client->session);
    subscription_ahead_done(&client->subscription);
}

#endif
