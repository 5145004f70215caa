/* Which subscriber is served next: deficit round robin over principals, so that a principal with
 * many connections does not crowd out one with few; then over the topics of a principal; and over
 * the topics of a connection, because they share its socket. A topic's share follows its QoS tier,
 * 4:2:1, hot before warm before cold.
 * Thread: the loop's.
 * Memory: a turn is a member of its subscriber; a share belongs to one principal and lives while it
 * has a turn; a line belongs to a connection that had two.
 * Errors: STATUS_OUT_OF_MEMORY for a share or a line that cannot be made.
 * Invariant: a turn is queued at most once, and is served after a bounded number of others. */
#ifndef DELIVERY_SCHEDULER_H
#define DELIVERY_SCHEDULER_H

#include "base/list.h"
#include "base/map.h"
#include "topic/policy.h"

struct share;
struct lane;
struct line;

/* What is left of the frames that a member of a round may be sent in it. */
struct allowance {
    struct list_node node;
    int32_t credit;
    uint32_t round; /* the round that the credit is for */
};

enum turn_state {
    TURN_IDLE,    /* nothing to send */
    TURN_QUEUED,  /* in its lane */
    TURN_SERVED,  /* scheduler_next returned it */
    TURN_BEHIND,  /* in its line, behind another turn of its connection or a full socket */
    TURN_READING, /* its frames are being read, or wait for that */
    TURN_BLOCKED, /* it met a full socket, and its connection has no other turn */
};

/* Every idle subscriber has one. */
struct turn {
    struct lane *lane;          /* its principal's turns of its topic; NULL: it has not joined */
    struct line *line;          /* its connection's turns; NULL: there was never another one */
    struct allowance allowance; /* in the line; the node is in the lane while it is queued */
    uint8_t state;              /* enum turn_state */
    bool holds;                 /* reading: the round of its line waits for it */
    bool is_live;               /* its next frames are in memory, and its client was at the head */
};

/* Where a turn waits. A topic has one tier. */
struct turn_place {
    struct slice principal; /* its principal_key, the same for all its connections */
    const void *topic;      /* identified by its address */
    enum qos_tier tier;
    struct turn *beside; /* another turn of its connection; NULL: none has joined */
};

struct scheduler_options {
    size_t slice_frames;     /* for a cold topic in a round, if its principal has several topics */
    size_t slice_frames_max; /* in one turn */
};

struct scheduler {
    struct scheduler_options options;
    struct map shares;   /* by principal_key */
    struct map lanes;    /* by share and topic */
    struct list waiting; /* the shares with a queued turn; the first one is served next */
    size_t queued_count; /* turns that may be served now */
};

/* The scheduler may not move afterwards. */
void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options);
/* When every turn has left. */
void scheduler_release(struct scheduler *scheduler);

/* Copies the principal. */
MUST_CHECK enum status scheduler_join(struct scheduler *scheduler, const struct turn_place *place,
                                      struct turn *turn);
/* Also removes it from the queue. A turn that never joined, or has left, may leave. */
void scheduler_leave(struct scheduler *scheduler, struct turn *turn);

/* Adds the turn at the end of the queue; a turn that waits already stays where it is. */
void scheduler_add(struct scheduler *scheduler, struct turn *turn);
/* Removes the next turn from the queue; frames_max: how many frames it may be sent. NULL: none. One
 * of the next three functions must follow, unless the turn leaves. */
struct turn *scheduler_next(struct scheduler *scheduler, size_t *frames_max);
/* The turn was sent that many frames. Ignores a turn that left meanwhile. has_more: frames_max cut
 * it short, and it is queued again. Answers whether fairness cut it short: it has more, and other
 * topics of its principal wait too. */
bool scheduler_served(struct scheduler *scheduler, struct turn *turn, size_t frames, bool has_more);
/* The turn needs frames that must be read: scheduler_add follows when they are there. holds: until
 * then, only turns with frames in memory may exceed their share of the connection's socket. */
void scheduler_wait(struct scheduler *scheduler, struct turn *turn, bool holds);
/* The turn met a full socket: it keeps its place and its credit, and no turn of its connection is
 * served before scheduler_unblock. */
void scheduler_block(struct scheduler *scheduler, struct turn *turn);
/* turn: any turn of the connection. */
void scheduler_unblock(struct scheduler *scheduler, struct turn *turn);

/* The reading turn of a connection that has waited longest, and the one after it; NULL: none. */
struct turn *turn_first_reading(struct turn *turn);
struct turn *turn_next_reading(struct turn *turn);

#endif
