/* Two rounds, one in the other. Shares stand in a ring; the one in front is served until it has
 * used up its credit and then goes to the back with new credit. In a share, the turns of a topic
 * stand in a lane, and the lanes of a tier in two queues: those with credit left in this round of
 * the share, and those that have used it up, whose next round begins when nobody of the first kind
 * is left. A lane keeps its credit while nobody of it is in line, so that coming back often does
 * not help it; what it is sent while no other topic waits costs it nothing. What is sent is known
 * only afterwards: credit may be overdrawn by one slice, which the next round pays for. */
#include "delivery/scheduler.h"

#include <assert.h>
#include <stdlib.h>

static const int64_t tier_weights[QOS_TIER_COUNT] = {
    [QOS_TIER_HOT] = 4,
    [QOS_TIER_WARM] = 2,
    [QOS_TIER_COLD] = 1,
};

struct lane_key {
    const void *share;
    const void *topic;
};

struct lane {
    struct lane *previous; /* in its queue */
    struct lane *next;
    struct turn *first;
    struct turn *last;
    int64_t credit;
    int64_t quantum;
    uint64_t round; /* of the share, that the credit is for */
    enum qos_tier tier;
    bool is_spent; /* in the queue of those */
    size_t member_count;
    struct lane_key key;
};

struct lane_queue {
    struct lane *first;
    struct lane *last;
};

struct share {
    struct share *previous; /* in the ring */
    struct share *next;
    int64_t credit;
    uint64_t round;
    size_t lane_count; /* in line */
    size_t member_count;
    struct lane_queue queues[2][QOS_TIER_COUNT];
    unsigned ready; /* which of the two is of those with credit */
    struct slice name;
    char text[];
};

void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options) {
    assert(options->slice_frames > 0 && options->slice_frames <= options->slice_frames_max);
    assert(options->slice_frames_max <= INT32_MAX);
    *scheduler = (struct scheduler){.options = *options};
    map_init(&scheduler->shares, MAP_COUNT_MAX);
    map_init(&scheduler->lanes, MAP_COUNT_MAX);
}

void scheduler_release(struct scheduler *scheduler) {
    assert(scheduler->shares.count == 0 && scheduler->lanes.count == 0);
    assert(!scheduler->next && scheduler->line_count == 0);
    map_release(&scheduler->shares);
    map_release(&scheduler->lanes);
}

/* ---- credit ---- */

/* Unused credit of the round before is lost, a debt is not. */
static void refill(int64_t *credit, int64_t quantum) {
    *credit = (*credit < 0 ? *credit : 0) + quantum;
}

/* A turn with nothing to send took its time too. A debt is always less than what comes in with the
 * next round: nobody waits for two. */
static void charge(int64_t *credit, int64_t quantum, size_t frames) {
    *credit -= frames > 0 ? (int64_t)frames : 1;
    if (*credit <= -quantum)
        *credit = 1 - quantum;
}

static int64_t share_quantum(const struct scheduler *scheduler) {
    return (int64_t)scheduler->options.slice_frames_max;
}

/* ---- the ring of shares ---- */

static void ring_add(struct scheduler *scheduler, struct share *share) {
    struct share *front = scheduler->next;
    refill(&share->credit, share_quantum(scheduler));
    if (!front) {
        share->previous = share->next = share;
        scheduler->next = share;
        return;
    }
    share->next = front;
    share->previous = front->previous;
    front->previous->next = share;
    front->previous = share;
}

static void ring_remove(struct scheduler *scheduler, struct share *share) {
    if (scheduler->next == share)
        scheduler->next = share->next == share ? NULL : share->next;
    share->previous->next = share->next;
    share->next->previous = share->previous;
}

/* ---- the lanes of a share ---- */

static struct lane_queue *queue_of(struct share *share, const struct lane *lane) {
    return &share->queues[lane->is_spent ? 1 - share->ready : share->ready][lane->tier];
}

static void queue_add(struct share *share, struct lane *lane) {
    if (lane->round != share->round) {
        lane->round = share->round;
        refill(&lane->credit, lane->quantum);
    }
    lane->is_spent = lane->credit <= 0;
    struct lane_queue *queue = queue_of(share, lane);
    lane->next = NULL;
    lane->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = lane;
    queue->last = lane;
    share->lane_count++;
}

static void queue_remove(struct share *share, struct lane *lane) {
    struct lane_queue *queue = queue_of(share, lane);
    *(lane->previous ? &lane->previous->next : &queue->first) = lane->next;
    *(lane->next ? &lane->next->previous : &queue->last) = lane->previous;
    share->lane_count--;
}

static struct lane *ready_lane(const struct share *share) {
    for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++)
        if (share->queues[share->ready][tier].first)
            return share->queues[share->ready][tier].first;
    return NULL;
}

/* All who wait have used up their credit: the queues change roles, and they get new. */
static void begin_round(struct share *share) {
    share->ready = 1 - share->ready;
    share->round++;
    for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++)
        for (struct lane *lane = share->queues[share->ready][tier].first; lane; lane = lane->next) {
            lane->is_spent = false;
            lane->round = share->round;
            refill(&lane->credit, lane->quantum);
        }
}

/* ---- joining and leaving ---- */

static struct share *share_make(struct scheduler *scheduler, struct slice principal) {
    struct share *share = calloc(1, sizeof(*share) + principal.size);
    if (!share)
        return NULL;
    if (principal.size > 0)
        memcpy(share->text, principal.data, principal.size);
    share->name = (struct slice){share->text, principal.size};
    share->round = 1;
    if (map_insert(&scheduler->shares, share->name, share) != STATUS_OK) {
        free(share);
        return NULL;
    }
    return share;
}

static void share_free(struct scheduler *scheduler, struct share *share) {
    assert(share->lane_count == 0);
    (void)map_remove(&scheduler->shares, share->name);
    free(share);
}

static struct slice key_slice(const struct lane_key *key) {
    return (struct slice){(const char *)key, sizeof(*key)};
}

static struct lane *lane_make(struct scheduler *scheduler, const struct lane_key *key,
                              enum qos_tier tier) {
    struct lane *lane = calloc(1, sizeof(*lane));
    if (!lane)
        return NULL;
    lane->key = *key;
    lane->tier = tier;
    lane->quantum = (int64_t)scheduler->options.slice_frames * tier_weights[tier];
    if (lane->quantum > share_quantum(scheduler))
        lane->quantum = share_quantum(scheduler);
    if (map_insert(&scheduler->lanes, key_slice(&lane->key), lane) != STATUS_OK) {
        free(lane);
        return NULL;
    }
    return lane;
}

enum status scheduler_join(struct scheduler *scheduler, struct slice principal, struct turn *turn) {
    assert(!turn->share && !turn->in_line);
    assert(turn->tier < QOS_TIER_COUNT);
    struct share *share = map_find(&scheduler->shares, principal);
    if (!share)
        share = share_make(scheduler, principal);
    if (!share)
        return STATUS_OUT_OF_MEMORY;
    const struct lane_key key = {share, turn->topic};
    struct lane *lane = map_find(&scheduler->lanes, key_slice(&key));
    if (!lane)
        lane = lane_make(scheduler, &key, turn->tier);
    if (!lane) {
        if (share->member_count == 0)
            share_free(scheduler, share);
        return STATUS_OUT_OF_MEMORY;
    }
    assert(lane->tier == turn->tier);
    lane->member_count++;
    share->member_count++;
    turn->share = share;
    turn->lane = lane;
    return STATUS_OK;
}

static void line_remove(struct scheduler *scheduler, struct turn *turn) {
    struct share *share = turn->share;
    struct lane *lane = turn->lane;
    *(turn->previous ? &turn->previous->next : &lane->first) = turn->next;
    *(turn->next ? &turn->next->previous : &lane->last) = turn->previous;
    turn->in_line = false;
    scheduler->line_count--;
    if (lane->first)
        return;
    queue_remove(share, lane);
    if (share->lane_count == 0)
        ring_remove(scheduler, share);
}

void scheduler_leave(struct scheduler *scheduler, struct turn *turn) {
    struct share *share = turn->share;
    struct lane *lane = turn->lane;
    if (!share)
        return;
    if (turn->in_line)
        line_remove(scheduler, turn);
    turn->share = NULL;
    turn->lane = NULL;
    if (--lane->member_count == 0) {
        (void)map_remove(&scheduler->lanes, key_slice(&lane->key));
        free(lane);
    }
    if (--share->member_count == 0)
        share_free(scheduler, share);
}

/* ---- the line ---- */

void scheduler_add(struct scheduler *scheduler, struct turn *turn) {
    struct share *share = turn->share;
    struct lane *lane = turn->lane;
    assert(share);
    if (turn->in_line)
        return;
    if (!lane->first) {
        if (share->lane_count == 0)
            ring_add(scheduler, share);
        queue_add(share, lane);
    }
    turn->next = NULL;
    turn->previous = lane->last;
    *(lane->last ? &lane->last->next : &lane->first) = turn;
    lane->last = turn;
    turn->in_line = true;
    scheduler->line_count++;
}

static struct share *next_share(struct scheduler *scheduler) {
    while (scheduler->next && scheduler->next->credit <= 0) {
        refill(&scheduler->next->credit, share_quantum(scheduler));
        scheduler->next = scheduler->next->next;
    }
    return scheduler->next;
}

/* Those without credit that are still among the ready step back as they are met. */
static struct lane *next_lane(struct share *share) {
    for (;;) {
        struct lane *lane = ready_lane(share);
        if (!lane) {
            begin_round(share);
        } else if (lane->credit <= 0) {
            queue_remove(share, lane);
            queue_add(share, lane);
        } else {
            return lane;
        }
    }
}

struct turn *scheduler_next(struct scheduler *scheduler, size_t *frames_max) {
    struct share *share = next_share(scheduler);
    if (!share)
        return NULL;
    struct lane *lane = next_lane(share);
    struct turn *turn = lane->first;
    *frames_max =
        share->lane_count == 1 ? scheduler->options.slice_frames_max : (size_t)lane->quantum;
    line_remove(scheduler, turn);
    return turn;
}

bool scheduler_served(struct scheduler *scheduler, struct turn *turn, size_t frames,
                      bool has_more) {
    struct share *share = turn->share;
    struct lane *lane = turn->lane;
    if (!share)
        return false;
    assert(frames <= scheduler->options.slice_frames_max);
    bool others_wait = share->lane_count > (lane->first ? 1 : 0);
    charge(&share->credit, share_quantum(scheduler), frames);
    if (others_wait)
        charge(&lane->credit, lane->quantum, frames);
    if (has_more)
        scheduler_add(scheduler, turn);
    return has_more && others_wait;
}
