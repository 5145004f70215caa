#include "delivery/consumers.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/map.h"
#include "base/metrics.h"

struct consumer {
    struct list_node node; /* in consumers.recent */
    struct slice key;
    size_t principal_size;
    uint64_t polled_at_ms;
    uint64_t lag;
    uint64_t strikes;
    char text[];
};

struct consumers {
    struct consumers_options options;
    pthread_mutex_t lock;
    struct map by_key;
    struct list recent; /* the consumer that polled last comes first */
};

#define KEY_BYTES_MAX 2048

enum status consumers_open(struct consumers **consumers, const struct consumers_options *options) {
    assert(options->capacity > 0 && options->strikes_max > 0);
    struct consumers *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    pthread_mutex_init(&made->lock, NULL);
    map_init(&made->by_key, options->capacity);
    list_init(&made->recent);
    *consumers = made;
    return STATUS_OK;
}

static void forget(struct consumers *consumers, struct consumer *consumer) {
    (void)map_remove(&consumers->by_key, consumer->key);
    list_remove(&consumer->node);
    free(consumer);
}

static void forget_oldest(struct consumers *consumers) {
    forget(consumers, container_of(list_last(&consumers->recent), struct consumer, node));
}

void consumers_close(struct consumers *consumers) {
    while (!list_is_empty(&consumers->recent))
        forget_oldest(consumers);
    map_release(&consumers->by_key);
    pthread_mutex_destroy(&consumers->lock);
    free(consumers);
}

/* A NUL, which neither part has, keeps the parts apart. */
static struct slice join(const struct consumer_key *key, char text[KEY_BYTES_MAX]) {
    size_t size = key->principal.size;
    assert(size + 1 + key->topic.size <= KEY_BYTES_MAX);
    memcpy(text, key->principal.data, size);
    text[size] = '\0';
    memcpy(text + size + 1, key->topic.data, key->topic.size);
    return (struct slice){text, size + 1 + key->topic.size};
}

static struct consumer *add(struct consumers *consumers, struct slice key, size_t principal_size) {
    if (consumers->by_key.count == consumers->options.capacity)
        forget_oldest(consumers);
    struct consumer *made = calloc(1, sizeof(*made) + key.size);
    if (!made)
        return NULL;
    memcpy(made->text, key.data, key.size);
    made->key = (struct slice){made->text, key.size};
    made->principal_size = principal_size;
    if (map_insert(&consumers->by_key, made->key, made) != STATUS_OK) {
        free(made);
        return NULL;
    }
    list_push_front(&consumers->recent, &made->node);
    return made;
}

/* The consumer of the node if it polled since then, or NULL. */
static const struct consumer *active_at(struct list_node *node, uint64_t since_mono_ms) {
    const struct consumer *consumer = node ? container_of(node, struct consumer, node) : NULL;
    return consumer && consumer->polled_at_ms >= since_mono_ms ? consumer : NULL;
}

static const struct consumer *active_first(const struct consumers *consumers,
                                           uint64_t since_mono_ms) {
    return active_at(list_first(&consumers->recent), since_mono_ms);
}

static const struct consumer *active_next(const struct consumers *consumers,
                                          const struct consumer *consumer, uint64_t since_mono_ms) {
    return active_at(list_next(&consumers->recent, &consumer->node), since_mono_ms);
}

static size_t count_topics(const struct consumers *consumers, struct slice principal,
                           uint64_t since_mono_ms) {
    size_t count = 0;
    for (const struct consumer *one = active_first(consumers, since_mono_ms); one;
         one = active_next(consumers, one, since_mono_ms))
        count += slice_equal(principal, (struct slice){one->text, one->principal_size});
    return count;
}

static uint64_t active_since(uint64_t mono_ms) {
    return mono_ms > CONSUMER_ACTIVE_MS ? mono_ms - CONSUMER_ACTIVE_MS : 0;
}

static enum status admit(struct consumers *consumers, const struct consumer_key *key,
                         uint64_t mono_ms, struct consumer_state *state) {
    char text[KEY_BYTES_MAX];
    struct slice joined = join(key, text);
    struct consumer *consumer = map_find(&consumers->by_key, joined);
    uint64_t interval_ms = consumers->options.interval_ms_min;
    if (consumer && mono_ms - consumer->polled_at_ms < interval_ms) {
        state->retry_after_ms = interval_ms - (mono_ms - consumer->polled_at_ms);
        return STATUS_RATE_LIMITED;
    }
    uint64_t since_ms = active_since(mono_ms);
    if (!consumer)
        consumer = add(consumers, joined, key->principal.size);
    if (!consumer)
        return STATUS_OUT_OF_MEMORY;
    consumer->polled_at_ms = mono_ms;
    list_remove(&consumer->node);
    list_push_front(&consumers->recent, &consumer->node);
    state->active_topics = count_topics(consumers, key->principal, since_ms);
    state->strikes = consumer->strikes;
    return STATUS_OK;
}

enum status consumers_admit(struct consumers *consumers, const struct consumer_key *key,
                            uint64_t mono_ms, struct consumer_state *state) {
    pthread_mutex_lock(&consumers->lock);
    enum status status = admit(consumers, key, mono_ms, state);
    pthread_mutex_unlock(&consumers->lock);
    return status;
}

static enum status judge(struct consumers *consumers, struct consumer *consumer, uint64_t lag) {
    bool is_behind = lag > consumers->options.lag_max;
    bool catches_up = consumer->lag == 0 || lag < consumer->lag;
    consumer->lag = lag;
    if (!is_behind)
        consumer->strikes = 0;
    else if (!catches_up) {
        consumer->strikes++;
        metrics_add(METRIC_SYNC_SLOW_CONSUMER_STRIKES, METRIC_LABELS(LABEL_DIALECT_POLL), 1);
    }
    return consumer->strikes < consumers->options.strikes_max ? STATUS_OK
                                                              : STATUS_SLOW_CONSUMER_EVICTED;
}

enum status consumers_served(struct consumers *consumers, const struct consumer_key *key,
                             uint64_t lag, struct consumer_state *state) {
    char text[KEY_BYTES_MAX];
    enum status status = STATUS_OK;
    pthread_mutex_lock(&consumers->lock);
    struct consumer *consumer = map_find(&consumers->by_key, join(key, text));
    if (consumer) {
        status = judge(consumers, consumer, lag);
        state->strikes = consumer->strikes;
    }
    if (status != STATUS_OK)
        consumer->lag = consumer->strikes = 0;
    pthread_mutex_unlock(&consumers->lock);
    return status;
}

size_t consumers_active(struct consumers *consumers, uint64_t mono_ms) {
    size_t count = 0;
    uint64_t since_mono_ms = active_since(mono_ms);
    pthread_mutex_lock(&consumers->lock);
    for (const struct consumer *one = active_first(consumers, since_mono_ms); one;
         one = active_next(consumers, one, since_mono_ms))
        count++;
    pthread_mutex_unlock(&consumers->lock);
    return count;
}
