/* Which subscriber is served next: deficit round robin over principals, so that a principal with
 * many connections does not crowd out one with few; then over the topics of a principal by their
 * QoS tier, hot before warm before cold, and none is starved.
 * Belongs to its loop's thread.
 * Memory: a turn is a member of its subscriber; a share belongs to one principal and lives while it
 * has a turn.
 * STATUS_OUT_OF_MEMORY for a share that cannot be made.
 * A turn is in line at most once, and is served after a bounded number of others. */
#ifndef DELIVERY_SCHEDULER_H
#define DELIVERY_SCHEDULER_H

#include "base/map.h"
#include "topic/topic_class.h"

struct share;
struct lane;

/* topic and tier are set before it joins, and stay; a topic has one tier. */
struct turn {
    struct share *share;
    struct lane *lane;     /* its principal's turns of that topic */
    struct turn *previous; /* in line */
    struct turn *next;
    const void *topic; /* identified by its address */
    enum qos_tier tier;
    bool in_line;
};

struct scheduler_options {
    size_t slice_frames;     /* of a cold topic, where a principal has several topics in line */
    size_t slice_frames_max; /* where it has one */
};

struct scheduler {
    struct scheduler_options options;
    struct map shares;  /* by the principal's name */
    struct map lanes;   /* by share and topic */
    struct share *next; /* a ring of the shares with a turn in line */
    size_t line_count;
};

void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options);
/* When every turn has left. */
void scheduler_release(struct scheduler *scheduler);

/* principal: the same text for all connections of one. Copies it. */
MUST_CHECK enum status scheduler_join(struct scheduler *scheduler, struct slice principal,
                                      struct turn *turn);
/* Also out of the line. A turn that never joined may leave. */
void scheduler_leave(struct scheduler *scheduler, struct turn *turn);

/* Adds the turn at the end of the line; a turn in line stays where it is. */
void scheduler_add(struct scheduler *scheduler, struct turn *turn);
/* Takes the next turn out of the line, and says how many frames it may be sent; NULL: none. */
struct turn *scheduler_next(struct scheduler *scheduler, size_t *frames_max);
/* It was sent that many; nothing to do for one that left meanwhile. has_more: it was cut short by
 * frames_max and gets in line again. Answers whether fairness cut it short: it has more, and others
 * of its principal's topics wait too. */
bool scheduler_served(struct scheduler *scheduler, struct turn *turn, size_t frames, bool has_more);

#endif
