#include "delivery/consumers.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/map.h"
#include "base/metrics.h"

/* A topic that a principal polls, in any number of sessions. */
struct polled_topic {
    struct slice key;
    size_t principal_size;
    size_t session_count;
    uint64_t walk; /* the last count that included it */
    char text[];
};

struct consumer {
    struct list_node node; /* in consumers.recent */
    struct slice key;
    struct polled_topic *topic;
    uint64_t polled_at_ms;
    uint64_t interval_start_ms; /* when the last poll came that was not rejected */
    uint64_t lag;
    uint64_t through_seq; /* the position after the last page */
    uint64_t strikes;
    bool is_complete; /* the last page left nothing to fetch */
    char text[];
};

struct consumers {
    struct consumers_options options;
    pthread_mutex_t lock;
    struct map by_key;
    struct map topics;  /* polled_topic by key */
    struct list recent; /* the consumer that polled last comes first */
    uint64_t walk;
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
    map_init(&made->topics, options->capacity);
    list_init(&made->recent);
    *consumers = made;
    return STATUS_OK;
}

static void topic_unref(struct consumers *consumers, struct polled_topic *topic) {
    if (--topic->session_count > 0)
        return;
    (void)map_remove(&consumers->topics, topic->key);
    free(topic);
}

static void forget_oldest(struct consumers *consumers) {
    struct consumer *consumer = container_of(list_last(&consumers->recent), struct consumer, node);
    topic_unref(consumers, consumer->topic);
    (void)map_remove(&consumers->by_key, consumer->key);
    list_remove(&consumer->node);
    free(consumer);
}

void consumers_close(struct consumers *consumers) {
    while (!list_is_empty(&consumers->recent))
        forget_oldest(consumers);
    map_release(&consumers->by_key);
    map_release(&consumers->topics);
    pthread_mutex_destroy(&consumers->lock);
    free(consumers);
}

static void join_part(struct slice *joined, char *text, struct slice part) {
    assert(joined->size + part.size + 1 <= KEY_BYTES_MAX);
    memcpy(text + joined->size, part.data, part.size);
    text[joined->size + part.size] = '\0';
    joined->size += part.size + 1;
}

/* Principal, topic and session, each ended by a NUL, which no part has. */
static struct slice join(const struct consumer_key *key, char text[KEY_BYTES_MAX]) {
    struct slice joined = {text, 0};
    join_part(&joined, text, key->principal);
    join_part(&joined, text, key->topic);
    join_part(&joined, text, key->session.data ? key->session : SLICE(""));
    return joined;
}

/* The topic of that principal, which the joined key begins with. */
static struct polled_topic *topic_ref(struct consumers *consumers, const struct consumer_key *key,
                                      struct slice joined) {
    struct slice name = {joined.data, key->principal.size + 1 + key->topic.size + 1};
    struct polled_topic *topic = map_find(&consumers->topics, name);
    if (!topic) {
        topic = calloc(1, sizeof(*topic) + name.size);
        if (!topic)
            return NULL;
        memcpy(topic->text, name.data, name.size);
        topic->key = (struct slice){topic->text, name.size};
        topic->principal_size = key->principal.size;
        if (map_insert(&consumers->topics, topic->key, topic) != STATUS_OK) {
            free(topic);
            return NULL;
        }
    }
    topic->session_count++;
    return topic;
}

static struct consumer *add(struct consumers *consumers, const struct consumer_key *key,
                            struct slice joined) {
    if (consumers->by_key.count == consumers->options.capacity)
        forget_oldest(consumers);
    struct polled_topic *topic = topic_ref(consumers, key, joined);
    if (!topic)
        return NULL;
    struct consumer *made = calloc(1, sizeof(*made) + joined.size);
    if (made) {
        memcpy(made->text, joined.data, joined.size);
        made->key = (struct slice){made->text, joined.size};
        made->topic = topic;
    }
    if (!made || map_insert(&consumers->by_key, made->key, made) != STATUS_OK) {
        topic_unref(consumers, topic);
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

/* A topic that several sessions poll counts once. */
static size_t count_topics(struct consumers *consumers, struct slice principal,
                           uint64_t since_mono_ms) {
    size_t count = 0;
    consumers->walk++;
    for (const struct consumer *one = active_first(consumers, since_mono_ms); one;
         one = active_next(consumers, one, since_mono_ms)) {
        struct polled_topic *topic = one->topic;
        count += topic->walk != consumers->walk &&
                 slice_equal(principal, (struct slice){topic->text, topic->principal_size});
        topic->walk = consumers->walk;
    }
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
    if (consumer && consumer->is_complete && mono_ms - consumer->interval_start_ms < interval_ms) {
        state->retry_after_ms = interval_ms - (mono_ms - consumer->interval_start_ms);
        return STATUS_RATE_LIMITED;
    }
    uint64_t since_ms = active_since(mono_ms);
    if (!consumer)
        consumer = add(consumers, key, joined);
    if (!consumer)
        return STATUS_OUT_OF_MEMORY;
    state->interval_start_ms = consumer->interval_start_ms;
    consumer->polled_at_ms = consumer->interval_start_ms = mono_ms;
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

enum status consumers_served(struct consumers *consumers, const struct consumer_key *key,
                             const struct consumer_page *page, struct consumer_state *state) {
    char text[KEY_BYTES_MAX];
    enum status status = STATUS_OK;
    pthread_mutex_lock(&consumers->lock);
    struct consumer *consumer = map_find(&consumers->by_key, join(key, text));
    if (consumer) {
        /* A lag that was not counted to its end may rise while the consumer gets nearer to the
         * head. Its position then shows that it continues. */
        bool catches_up = consumer->lag == 0 || page->lag < consumer->lag ||
                          (page->lag_is_minimum && page->through_seq > consumer->through_seq);
        consumer->lag = page->lag;
        consumer->through_seq = page->through_seq;
        if (page->lag <= consumers->options.lag_max || page->lag <= page->lag_max ||
            page->is_bootstrap) {
            consumer->strikes = 0;
        } else if (!catches_up) {
            consumer->strikes++;
            metrics_add(METRIC_SYNC_SLOW_CONSUMER_STRIKES, METRIC_LABELS(LABEL_DIALECT_POLL), 1);
        }
        if (consumer->strikes >= consumers->options.strikes_max)
            status = STATUS_SLOW_CONSUMER_EVICTED;
        state->strikes = consumer->strikes;
        consumer->is_complete = status == STATUS_OK && page->is_complete;
    }
    if (status != STATUS_OK)
        consumer->lag = consumer->strikes = 0;
    pthread_mutex_unlock(&consumers->lock);
    return status;
}

void consumers_rejected(struct consumers *consumers, const struct consumer_key *key,
                        const struct consumer_state *state) {
    char text[KEY_BYTES_MAX];
    pthread_mutex_lock(&consumers->lock);
    struct consumer *consumer = map_find(&consumers->by_key, join(key, text));
    if (consumer)
        consumer->interval_start_ms = state->interval_start_ms;
    pthread_mutex_unlock(&consumers->lock);
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
