/* The topics that are busy, and what went wrong with each: limits that publishers ran into, cursors
 * that were too old.
 * Thread: any, under one lock held for a few lookups; topic_activity_committed is the writer's.
 * Memory: at most capacity topics, allocated when needed. When all are used, a quiet topic
 * and its counts are evicted for a new one, so that the busiest stay.
 * Errors: STATUS_OUT_OF_MEMORY at opening; afterwards a topic without memory is not counted.
 * Invariant: a commit costs a bounded number of lookups, however many topics it advanced. */
#ifndef DELIVERY_TOPIC_ACTIVITY_H
#define DELIVERY_TOPIC_ACTIVITY_H

#include "store/store.h"
#include "topic/continuity.h"

enum topic_violation {
    VIOLATION_PUBLISH_RATE,
    VIOLATION_FRAME_SIZE,
    VIOLATION_REPLAY_BUDGET,
    VIOLATION_RETENTION_FLOOR,
    VIOLATION_COUNT,
};

struct topic_counts {
    struct slice topic;
    uint64_t activity; /* fades as new topics come */
    uint64_t violations[VIOLATION_COUNT];
    const char *last_violation_reason; /* static; NULL: none */
};

struct topic_activity;

MUST_CHECK enum status topic_activity_open(struct topic_activity **activity, size_t capacity);
void topic_activity_close(struct topic_activity *activity);

void topic_activity_violated(struct topic_activity *activity, struct slice topic,
                             enum topic_violation violation);
/* A cursor that cannot resume, by its reasons. */
void topic_activity_stale(struct topic_activity *activity, struct slice topic,
                          const struct continuity *continuity);
/* On the writer's thread, after a commit. */
void topic_activity_committed(struct topic_activity *activity, const struct store_batch *batch);

/* The busiest, at most count_max of them, busiest first; names are copied to the arena. */
MUST_CHECK enum status topic_activity_top(struct topic_activity *activity, struct arena *arena,
                                          size_t count_max, struct topic_counts **counts,
                                          size_t *count);

#endif
