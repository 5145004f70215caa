/* Two rounds, one inside the other. The shares with queued turns wait in a list. The first share is
 * served until it has used its credit; then it moves to the end with new credit. Within a share,
 * the turns of a topic wait in a lane, and the lanes of a tier in two queues: lanes that have
 * credit in this round of the share, and lanes that have used it. The next round begins when no
 * lane of the first kind is left. A lane keeps its credit while it has no queued turn, so that it
 * gains nothing by coming back often. Frames that are sent while no other topic waits cost the lane
 * nothing. The number of frames is known only after they were sent, so credit may be overdrawn by
 * one slice, which is subtracted from the next round. */
#include "delivery/scheduler.h"

#include <assert.h>
#include <stdlib.h>

static const int64_t tier_weights[QOS_TIER_COUNT] = {
    [QOS_TIER_HOT] = 4,
    [QOS_TIER_WARM] = 2,
    [QOS_TIER_COLD] = 1,
};

struct lane_key {
    struct share *share;
    const void *topic;
};

struct lane {
    struct list_node node; /* in a queue of its share, while it has turns */
    struct list turns;
    int64_t credit;
    int64_t quantum;
    uint64_t round; /* of the share, that the credit is for */
    enum qos_tier tier;
    size_t member_count;
    struct lane_key key;
};

struct share {
    struct list_node node; /* in scheduler.waiting, while it has queued lanes */
    int64_t credit;
    uint64_t round;
    size_t lane_count; /* queued */
    size_t member_count;
    struct list queues[2][QOS_TIER_COUNT]; /* of lanes */
    unsigned ready;                        /* the index of the queues with credit */
    struct slice name;
    char text[];
};

void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options) {
    assert(options->slice_frames > 0 && options->slice_frames <= options->slice_frames_max);
    assert(options->slice_frames_max <= INT32_MAX);
    *scheduler = (struct scheduler){.options = *options};
    map_init(&scheduler->shares, MAP_COUNT_MAX);
    map_init(&scheduler->lanes, MAP_COUNT_MAX);
    list_init(&scheduler->waiting);
}

void scheduler_release(struct scheduler *scheduler) {
    assert(scheduler->shares.count == 0 && scheduler->lanes.count == 0);
    assert(list_is_empty(&scheduler->waiting) && scheduler->queued_count == 0);
    map_release(&scheduler->shares);
    map_release(&scheduler->lanes);
}

/* ---- credit ---- */

/* Unused credit of the last round is lost; a debt is kept. */
static void refill(int64_t *credit, int64_t quantum) {
    *credit = (*credit < 0 ? *credit : 0) + quantum;
}

/* A turn without frames takes time too, and costs one. A debt stays below the quantum, so that the
 * next round pays it: no lane and no share is skipped for two rounds. */
static void charge(int64_t *credit, int64_t quantum, size_t frames) {
    *credit -= frames > 0 ? (int64_t)frames : 1;
    if (*credit <= -quantum)
        *credit = 1 - quantum;
}

static int64_t share_quantum(const struct scheduler *scheduler) {
    return (int64_t)scheduler->options.slice_frames_max;
}

/* ---- the lanes of a share ---- */

static void lane_enqueue(struct share *share, struct lane *lane) {
    if (lane->round != share->round) {
        lane->round = share->round;
        refill(&lane->credit, lane->quantum);
    }
    unsigned which = lane->credit > 0 ? share->ready : 1 - share->ready;
    list_push_back(&share->queues[which][lane->tier], &lane->node);
    share->lane_count++;
}

static void lane_dequeue(struct share *share, struct lane *lane) {
    list_remove(&lane->node);
    share->lane_count--;
}

static struct lane *ready_lane(const struct share *share) {
    for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++) {
        struct list_node *node = list_first(&share->queues[share->ready][tier]);
        if (node)
            return container_of(node, struct lane, node);
    }
    return NULL;
}

/* All queued lanes have used their credit: the queues change roles, and the lanes get new credit.
 */
static void begin_round(struct share *share) {
    share->ready = 1 - share->ready;
    share->round++;
    for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++) {
        const struct list *queue = &share->queues[share->ready][tier];
        for (struct list_node *node = list_first(queue); node; node = list_next(queue, node)) {
            struct lane *lane = container_of(node, struct lane, node);
            lane->round = share->round;
            refill(&lane->credit, lane->quantum);
        }
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
    for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++) {
        list_init(&share->queues[0][tier]);
        list_init(&share->queues[1][tier]);
    }
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
    list_init(&lane->turns);
    lane->quantum = (int64_t)scheduler->options.slice_frames * tier_weights[tier];
    if (lane->quantum > share_quantum(scheduler))
        lane->quantum = share_quantum(scheduler);
    if (map_insert(&scheduler->lanes, key_slice(&lane->key), lane) != STATUS_OK) {
        free(lane);
        return NULL;
    }
    return lane;
}

enum status scheduler_join(struct scheduler *scheduler, const struct turn_place *place,
                           struct turn *turn) {
    assert(!turn->lane && !turn_is_queued(turn));
    assert(place->tier < QOS_TIER_COUNT);
    struct share *share = map_find(&scheduler->shares, place->principal);
    if (!share)
        share = share_make(scheduler, place->principal);
    if (!share)
        return STATUS_OUT_OF_MEMORY;
    const struct lane_key key = {share, place->topic};
    struct lane *lane = map_find(&scheduler->lanes, key_slice(&key));
    if (!lane)
        lane = lane_make(scheduler, &key, place->tier);
    if (!lane) {
        if (share->member_count == 0)
            share_free(scheduler, share);
        return STATUS_OUT_OF_MEMORY;
    }
    assert(lane->tier == place->tier);
    lane->member_count++;
    share->member_count++;
    turn->lane = lane;
    return STATUS_OK;
}

static void turn_dequeue(struct scheduler *scheduler, struct turn *turn) {
    struct lane *lane = turn->lane;
    struct share *share = lane->key.share;
    list_remove(&turn->node);
    scheduler->queued_count--;
    if (!list_is_empty(&lane->turns))
        return;
    lane_dequeue(share, lane);
    if (share->lane_count == 0)
        list_remove(&share->node);
}

void scheduler_leave(struct scheduler *scheduler, struct turn *turn) {
    struct lane *lane = turn->lane;
    if (!lane)
        return;
    struct share *share = lane->key.share;
    if (turn_is_queued(turn))
        turn_dequeue(scheduler, turn);
    turn->lane = NULL;
    if (--lane->member_count == 0) {
        (void)map_remove(&scheduler->lanes, key_slice(&lane->key));
        free(lane);
    }
    if (--share->member_count == 0)
        share_free(scheduler, share);
}

/* ---- the queue ---- */

void scheduler_add(struct scheduler *scheduler, struct turn *turn) {
    struct lane *lane = turn->lane;
    assert(lane);
    if (turn_is_queued(turn))
        return;
    struct share *share = lane->key.share;
    if (list_is_empty(&lane->turns)) {
        if (share->lane_count == 0) {
            refill(&share->credit, share_quantum(scheduler));
            list_push_back(&scheduler->waiting, &share->node);
        }
        lane_enqueue(share, lane);
    }
    list_push_back(&lane->turns, &turn->node);
    scheduler->queued_count++;
}

static struct share *next_share(struct scheduler *scheduler) {
    struct list_node *node;
    while ((node = list_first(&scheduler->waiting))) {
        struct share *share = container_of(node, struct share, node);
        if (share->credit > 0)
            return share;
        refill(&share->credit, share_quantum(scheduler));
        list_remove(node);
        list_push_back(&scheduler->waiting, node);
    }
    return NULL;
}

/* Lanes that used their credit while they were ready move to the other queues here. */
static struct lane *next_lane(struct share *share) {
    for (;;) {
        struct lane *lane = ready_lane(share);
        if (!lane) {
            begin_round(share);
        } else if (lane->credit <= 0) {
            lane_dequeue(share, lane);
            lane_enqueue(share, lane);
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
    struct turn *turn = container_of(list_first(&lane->turns), struct turn, node);
    *frames_max =
        share->lane_count == 1 ? scheduler->options.slice_frames_max : (size_t)lane->quantum;
    turn_dequeue(scheduler, turn);
    return turn;
}

bool scheduler_served(struct scheduler *scheduler, struct turn *turn, size_t frames,
                      bool has_more) {
    struct lane *lane = turn->lane;
    if (!lane)
        return false;
    struct share *share = lane->key.share;
    assert(frames <= scheduler->options.slice_frames_max);
    bool others_wait = share->lane_count > (list_is_empty(&lane->turns) ? 0 : 1);
    charge(&share->credit, share_quantum(scheduler), frames);
    if (others_wait)
        charge(&lane->credit, lane->quantum, frames);
    if (has_more)
        scheduler_add(scheduler, turn);
    return has_more && others_wait;
}
