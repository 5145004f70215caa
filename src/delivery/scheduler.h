/* Which subscriber is served next: deficit round robin over principals, so that a principal with
 * many connections does not crowd out one with few; then over the topics of a principal by their
 * QoS tier, hot before warm before cold. No topic is starved.
 * Belongs to its loop's thread.
 * Memory: a turn is a member of its subscriber; a share belongs to one principal and lives while it
 * has a turn.
 * STATUS_OUT_OF_MEMORY for a share that cannot be made.
 * A turn is queued at most once, and is served after a bounded number of others. */
#ifndef DELIVERY_SCHEDULER_H
#define DELIVERY_SCHEDULER_H

#include "base/list.h"
#include "base/map.h"
#include "topic/topic_class.h"

struct share;
struct lane;

/* Every idle subscriber has one. */
struct turn {
    struct lane *lane;     /* its principal's turns of its topic; NULL: it has not joined */
    struct list_node node; /* in the lane, while it is queued */
};

/* Where a turn waits. A topic has one tier. */
struct turn_place {
    struct slice principal; /* its principal_key, the same for all its connections */
    const void *topic;      /* identified by its address */
    enum qos_tier tier;
};

struct scheduler_options {
    size_t slice_frames;     /* of a cold topic, if its principal has several topics queued */
    size_t slice_frames_max; /* if its principal has one */
};

struct scheduler {
    struct scheduler_options options;
    struct map shares;   /* by principal_key */
    struct map lanes;    /* by share and topic */
    struct list waiting; /* the shares with a queued turn; the first one is served next */
    size_t queued_count; /* turns */
};

/* The scheduler may not move afterwards. */
void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options);
/* When every turn has left. */
void scheduler_release(struct scheduler *scheduler);

/* Copies the principal. */
MUST_CHECK enum status scheduler_join(struct scheduler *scheduler, const struct turn_place *place,
                                      struct turn *turn);
/* Also removes it from the queue. A turn that never joined may leave. */
void scheduler_leave(struct scheduler *scheduler, struct turn *turn);

static inline bool turn_is_queued(const struct turn *turn) {
    return list_node_is_linked(&turn->node);
}
/* Adds the turn at the end of the queue; a queued turn stays where it is. */
void scheduler_add(struct scheduler *scheduler, struct turn *turn);
/* Removes the next turn from the queue; frames_max: how many frames it may be sent. NULL: none. */
struct turn *scheduler_next(struct scheduler *scheduler, size_t *frames_max);
/* The turn was sent that many frames. Ignores a turn that left meanwhile. has_more: frames_max cut
 * it short, and it is queued again. Answers whether fairness cut it short: it has more, and other
 * topics of its principal wait too. */
bool scheduler_served(struct scheduler *scheduler, struct turn *turn, size_t frames, bool has_more);

#endif
