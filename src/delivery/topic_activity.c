/* A clock: when an entry is needed, the least busy of the few entries after the hand is evicted.
 * Then the activity of the entry under the hand is halved, and the hand moves on. So the topics of
 * a flood evict one another, and a topic that was busy long ago is evicted in time. */
#include "delivery/topic_activity.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"
#include "topic/topic_name.h"

#define HAND_SPAN          8
#define COMMIT_LOOKUPS_MAX 64
#define VIOLATION_ACTIVITY 16
#define ACTIVITY_MAX       (UINT64_MAX / 2)

struct entry {
    struct topic_counts counts;
    char name[];
};

struct topic_activity {
    pthread_mutex_t lock;
    struct map by_name;
    struct arena names; /* the writer's */
    size_t capacity;
    size_t count;
    size_t hand;
    struct entry *entries[];
};

enum status topic_activity_open(struct topic_activity **activity, size_t capacity) {
    assert(capacity > 0);
    struct topic_activity *made = calloc(1, sizeof(*made) + capacity * sizeof(void *));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->capacity = capacity;
    pthread_mutex_init(&made->lock, NULL);
    map_init(&made->by_name, capacity);
    arena_init(&made->names, TOPIC_ACTIVITY_NAMES_BYTES_MAX);
    *activity = made;
    return STATUS_OK;
}

void topic_activity_close(struct topic_activity *activity) {
    if (!activity)
        return;
    for (size_t i = 0; i < activity->count; i++)
        free(activity->entries[i]);
    map_release(&activity->by_name);
    arena_release(&activity->names);
    pthread_mutex_destroy(&activity->lock);
    free(activity);
}

/* ---- entries ---- */

static size_t quietest_index(struct topic_activity *activity) {
    size_t quietest = activity->hand;
    for (size_t i = 1; i < HAND_SPAN; i++) {
        size_t index = (activity->hand + i) % activity->capacity;
        if (activity->entries[index]->counts.activity <
            activity->entries[quietest]->counts.activity)
            quietest = index;
    }
    activity->entries[activity->hand]->counts.activity /= 2;
    activity->hand = (activity->hand + 1) % activity->capacity;
    return quietest;
}

/* With the lock held. Without memory the topic is not counted. */
static void add(struct topic_activity *activity, struct slice topic, uint64_t count) {
    struct entry *entry = map_find(&activity->by_name, topic);
    if (!entry && topic.size <= TOPIC_NAME_BYTES_MAX) {
        entry = calloc(1, sizeof(*entry) + topic.size);
        if (!entry)
            return;
        memcpy(entry->name, topic.data, topic.size);
        entry->counts.topic = (struct slice){entry->name, topic.size};
        bool is_full = activity->count == activity->capacity;
        size_t index = is_full ? quietest_index(activity) : activity->count;
        if (is_full) {
            (void)map_remove(&activity->by_name, activity->entries[index]->counts.topic);
            free(activity->entries[index]);
            activity->entries[index] = activity->entries[--activity->count];
            index = activity->count;
        }
        if (map_insert(&activity->by_name, entry->counts.topic, entry) != STATUS_OK) {
            free(entry);
            return;
        }
        activity->entries[index] = entry;
        activity->count++;
    }
    if (entry && entry->counts.activity < ACTIVITY_MAX)
        entry->counts.activity += count;
}

/* ---- counting ---- */

static const char *violation_reason(enum topic_violation violation) {
    switch (violation) {
    case VIOLATION_PUBLISH_RATE:
        return status_code(STATUS_KHALA_PUBLISH_RATE_LIMITED);
    case VIOLATION_FRAME_SIZE:
        return status_code(STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE);
    case VIOLATION_REPLAY_BUDGET:
        return reason_code(REASON_REPLAY_BUDGET_EXCEEDED);
    case VIOLATION_RETENTION_FLOOR:
        return reason_code(REASON_RETENTION_FLOOR_BREACH);
    case VIOLATION_COUNT:
        break;
    }
    assert(0 && "a violation of the enum");
    return "";
}

/* Weighs more than a frame, because operators look for violations. */
void topic_activity_violated(struct topic_activity *activity, struct slice topic,
                             enum topic_violation violation) {
    const char *reason = violation_reason(violation);
    pthread_mutex_lock(&activity->lock);
    add(activity, topic, VIOLATION_ACTIVITY);
    struct entry *entry = map_find(&activity->by_name, topic);
    if (entry) {
        entry->counts.violations[violation]++;
        entry->counts.last_violation_reason = reason;
    }
    pthread_mutex_unlock(&activity->lock);
}

void topic_activity_stale(struct topic_activity *activity, struct slice topic,
                          const struct continuity *continuity) {
    for (size_t i = 0; i < continuity->reason_count; i++) {
        if (continuity->reasons[i] == REASON_RETENTION_FLOOR_BREACH)
            topic_activity_violated(activity, topic, VIOLATION_RETENTION_FLOOR);
        else if (continuity->reasons[i] == REASON_REPLAY_BUDGET_EXCEEDED)
            topic_activity_violated(activity, topic, VIOLATION_REPLAY_BUDGET);
    }
}

void topic_activity_committed(struct topic_activity *activity, const struct store_batch *batch) {
    size_t lookups = 0;
    pthread_mutex_lock(&activity->lock);
    for (size_t i = 0; i < batch->topic_count && lookups < COMMIT_LOOKUPS_MAX; i++) {
        if (batch->topics[i].entity_ref != 0)
            continue;
        add(activity, batch->topics[i].name, 1);
        lookups++;
    }
    /* Consecutive events of one entity take one lookup. */
    for (size_t i = 0, end; i < batch->event_count && lookups < COMMIT_LOOKUPS_MAX; i = end) {
        const struct store_event *first = &batch->events[i];
        struct slice name;
        for (end = i + 1; end < batch->event_count; end++)
            if (batch->events[end].entity_ref != first->entity_ref)
                break;
        arena_reset(&activity->names);
        if (topic_name_of_entity(&activity->names, first->entity_kind, first->entity_id, &name) ==
            STATUS_OK)
            add(activity, name, end - i);
        lookups++;
    }
    pthread_mutex_unlock(&activity->lock);
}

/* ---- reading ---- */

static int compare(const void *a, const void *b) {
    const struct topic_counts *one = a;
    const struct topic_counts *other = b;
    if (one->activity != other->activity)
        return one->activity > other->activity ? -1 : 1;
    size_t size = one->topic.size < other->topic.size ? one->topic.size : other->topic.size;
    int order = memcmp(one->topic.data, other->topic.data, size);
    return order != 0
               ? order
               : (one->topic.size > other->topic.size) - (one->topic.size < other->topic.size);
}

/* Names are valid only under the lock, so the whole copy runs under it; it is rare and bounded. */
static enum status take_top(struct topic_activity *activity, struct arena *arena, size_t count_max,
                            struct topic_counts **counts, size_t *count) {
    struct topic_counts *all = arena_alloc(arena, activity->count * sizeof(*all));
    if (!all)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < activity->count; i++)
        all[i] = activity->entries[i]->counts;
    qsort(all, activity->count, sizeof(*all), compare);
    *count = activity->count < count_max ? activity->count : count_max;
    *counts = all;
    for (size_t i = 0; i < *count; i++) {
        all[i].topic = arena_copy(arena, all[i].topic);
        if (!all[i].topic.data)
            return STATUS_OUT_OF_MEMORY;
    }
    return STATUS_OK;
}

enum status topic_activity_top(struct topic_activity *activity, struct arena *arena,
                               size_t count_max, struct topic_counts **counts, size_t *count) {
    pthread_mutex_lock(&activity->lock);
    enum status status = take_top(activity, arena, count_max, counts, count);
    pthread_mutex_unlock(&activity->lock);
    return status;
}
