/* Rounds inside rounds. The shares with queued turns wait in a list. The first share is served
 * until it has used its credit; then it moves to the end with new credit. Within a share, the turns
 * of a topic wait in a lane, and the lanes in a round: by tier, lanes that have credit before lanes
 * that have used it. The next round begins when no lane of the first kind is left. A lane keeps its
 * credit while it has no queued turn, so that it gains nothing by coming back often. Frames that
 * are sent while no other topic waits cost the lane nothing. The number of frames is known only
 * after they were sent, so credit may be overdrawn, which is subtracted from the next round.
 *
 * Turns of one connection share a socket, so a line has a round of its own over them, and only one
 * of them is in its lane at a time. While the socket is full, none is, and the round stands still.
 * A turn that waits for a read keeps its credit and its place in front, and no round begins before
 * it was served: otherwise topics that are in memory would have many rounds while one reads. Two
 * exceptions keep a slow store from stopping others: turns whose frames are in memory are then
 * served beyond their credit, up to one round of debt; and a turn that found nothing for its client
 * holds no round. */
#include "delivery/scheduler.h"

#include <assert.h>
#include <stdlib.h>

static const int32_t tier_weights[QOS_TIER_COUNT] = {
    [QOS_TIER_HOT] = 4,
    [QOS_TIER_WARM] = 2,
    [QOS_TIER_COLD] = 1,
};

/* The queues of a round. */
enum {
    ROUND_A, /* one of these two has credit, the other has used it; they change roles */
    ROUND_B,
    ROUND_LIVE, /* has used its credit, and is not held up by the reads of others */
    ROUND_QUEUES,
};

struct round {
    struct list queues[ROUND_QUEUES][QOS_TIER_COUNT]; /* lists of allowances */
    unsigned ready;                                   /* the index of the queues with credit */
    uint32_t number;
    size_t count; /* in the queues */
};

struct lane_key {
    struct share *share;
    const void *topic;
};

struct lane {
    struct allowance allowance; /* in the round of its share, while it has turns */
    struct list turns;
    enum qos_tier tier;
    size_t member_count;
    struct lane_key key;
};

struct line {
    struct round round;  /* over its turns */
    struct turn *first;  /* queued in its lane, or being served; NULL: none */
    struct list reading; /* turns, the one that has waited longest first */
    size_t held_count;   /* the round waits for so many of these */
    size_t member_count;
    bool is_blocked; /* the socket is full */
};

struct share {
    struct list_node node; /* in scheduler.waiting, while it has queued lanes */
    int32_t credit;
    size_t member_count;
    struct round round; /* over its lanes */
    struct slice name;
    char text[];
};

void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options) {
    assert(options->slice_frames > 0 && options->slice_frames <= options->slice_frames_max);
    assert(options->slice_frames_max <= INT16_MAX);
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
static void refill(int32_t *credit, int32_t quantum) {
    *credit = (*credit < 0 ? *credit : 0) + quantum;
}

/* A turn without frames takes time too, and costs one. A debt of more than a round is forgiven, so
 * that nothing is skipped for two rounds. */
static void charge(int32_t *credit, int32_t quantum, size_t frames) {
    *credit -= frames > 0 ? (int32_t)frames : 1;
    if (*credit < -quantum)
        *credit = -quantum;
}

static int32_t share_quantum(const struct scheduler *scheduler) {
    return (int32_t)scheduler->options.slice_frames_max;
}

static int32_t tier_quantum(const struct scheduler *scheduler, enum qos_tier tier) {
    return (int32_t)scheduler->options.slice_frames * tier_weights[tier];
}

/* ---- rounds ---- */

static void round_init(struct round *round) {
    *round = (struct round){.number = 1};
    for (size_t queue = 0; queue < ROUND_QUEUES; queue++)
        for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++)
            list_init(&round->queues[queue][tier]);
}

static void renew(struct allowance *allowance, const struct round *round, int32_t quantum) {
    if (allowance->round == round->number)
        return;
    allowance->round = round->number;
    refill(&allowance->credit, quantum);
}

struct round_place {
    enum qos_tier tier;
    int32_t quantum;
    bool is_live;
    bool in_front;
};

static void round_add(struct round *round, struct allowance *allowance,
                      const struct round_place *place) {
    renew(allowance, round, place->quantum);
    unsigned which = round->ready;
    if (allowance->credit <= 0)
        which = place->is_live ? ROUND_LIVE : 1 - round->ready;
    struct list *queue = &round->queues[which][place->tier];
    if (place->in_front)
        list_push_front(queue, &allowance->node);
    else
        list_push_back(queue, &allowance->node);
    round->count++;
}

static void round_remove(struct round *round, struct allowance *allowance) {
    list_remove(&allowance->node);
    round->count--;
}

static struct allowance *first_of(const struct round *round, unsigned which) {
    for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++) {
        struct list_node *node = list_first(&round->queues[which][tier]);
        if (node)
            return container_of(node, struct allowance, node);
    }
    return NULL;
}

/* The first one with credit; without any, a round begins. A debt may need two. */
static struct allowance *round_first(const struct scheduler *scheduler, struct round *round) {
    struct allowance *first;
    while (!(first = first_of(round, round->ready)) && round->count > 0) {
        unsigned used = round->ready;
        round->ready = 1 - used;
        round->number++;
        for (size_t tier = 0; tier < QOS_TIER_COUNT; tier++) {
            struct list *queue = &round->queues[round->ready][tier];
            struct list_node *node;
            while ((node = list_pop_front(&round->queues[ROUND_LIVE][tier])))
                list_push_back(queue, node);
            for (struct list_node *next = list_first(queue); (node = next);) {
                struct allowance *allowance = container_of(node, struct allowance, node);
                next = list_next(queue, node);
                renew(allowance, round, tier_quantum(scheduler, (enum qos_tier)tier));
                if (allowance->credit > 0)
                    continue;
                list_remove(node);
                list_push_back(&round->queues[used][tier], node);
            }
        }
    }
    return first;
}

/* ---- turns in lanes ---- */

static void turn_queue(struct scheduler *scheduler, struct turn *turn) {
    struct lane *lane = turn->lane;
    struct share *share = lane->key.share;
    if (list_is_empty(&lane->turns)) {
        const struct round_place place = {lane->tier, tier_quantum(scheduler, lane->tier), false,
                                          false};
        if (share->round.count == 0) {
            refill(&share->credit, share_quantum(scheduler));
            list_push_back(&scheduler->waiting, &share->node);
        }
        round_add(&share->round, &lane->allowance, &place);
    }
    list_push_back(&lane->turns, &turn->allowance.node);
    turn->state = TURN_QUEUED;
    scheduler->queued_count++;
}

static void turn_dequeue(struct scheduler *scheduler, struct turn *turn) {
    struct lane *lane = turn->lane;
    struct share *share = lane->key.share;
    list_remove(&turn->allowance.node);
    turn->state = TURN_IDLE;
    scheduler->queued_count--;
    if (!list_is_empty(&lane->turns))
        return;
    round_remove(&share->round, &lane->allowance);
    if (share->round.count == 0)
        list_remove(&share->node);
}

/* ---- turns in lines ---- */

static void line_add(const struct scheduler *scheduler, struct turn *turn, bool in_front) {
    enum qos_tier tier = turn->lane->tier;
    const struct round_place place = {tier, tier_quantum(scheduler, tier), turn->is_live, in_front};
    round_add(&turn->line->round, &turn->allowance, &place);
    turn->state = TURN_BEHIND;
}

static bool line_has_others(const struct line *line) {
    return line && (line->round.count > 0 || !list_is_empty(&line->reading));
}

/* Queues the next turn of the line, unless one is queued or being served. */
static void line_advance(struct scheduler *scheduler, struct line *line) {
    if (line->first || line->is_blocked)
        return;
    struct allowance *next = first_of(&line->round, line->round.ready);
    if (!next && line->held_count > 0)
        next = first_of(&line->round, ROUND_LIVE);
    else if (!next)
        next = round_first(scheduler, &line->round);
    if (!next)
        return;
    round_remove(&line->round, next);
    line->first = container_of(next, struct turn, allowance);
    turn_queue(scheduler, line->first);
}

/* The turn is queued in front of one that has less right to the socket. */
static void line_yield(struct scheduler *scheduler, struct turn *turn) {
    struct turn *first = turn->line->first;
    bool is_hotter = first && turn->lane->tier < first->lane->tier;
    if (!first || first->state != TURN_QUEUED || turn->allowance.credit <= 0 ||
        (!is_hotter && first->allowance.credit > 0))
        return;
    turn_dequeue(scheduler, first);
    turn->line->first = NULL;
    line_add(scheduler, first, true);
}

static void stop_reading(struct turn *turn) {
    if (turn->line) {
        list_remove(&turn->allowance.node);
        turn->line->held_count -= turn->holds;
    }
    turn->holds = false;
    turn->state = TURN_IDLE;
}

static void start_reading(struct turn *turn, bool holds) {
    turn->state = TURN_READING;
    if (!turn->line)
        return;
    list_push_back(&turn->line->reading, &turn->allowance.node);
    turn->holds = holds && turn->allowance.credit > 0;
    turn->line->held_count += turn->holds;
}

struct turn *turn_first_reading(struct turn *turn) {
    if (!turn->line)
        return turn->state == TURN_READING ? turn : NULL;
    struct list_node *node = list_first(&turn->line->reading);
    return node ? container_of(node, struct turn, allowance.node) : NULL;
}

struct turn *turn_next_reading(struct turn *turn) {
    struct list_node *node =
        turn->line ? list_next(&turn->line->reading, &turn->allowance.node) : NULL;
    return node ? container_of(node, struct turn, allowance.node) : NULL;
}

/* ---- joining and leaving ---- */

static struct share *share_make(struct scheduler *scheduler, struct slice principal) {
    struct share *share = calloc(1, sizeof(*share) + principal.size);
    if (!share)
        return NULL;
    if (principal.size > 0)
        memcpy(share->text, principal.data, principal.size);
    share->name = (struct slice){share->text, principal.size};
    round_init(&share->round);
    if (map_insert(&scheduler->shares, share->name, share) != STATUS_OK) {
        free(share);
        return NULL;
    }
    return share;
}

static void share_free(struct scheduler *scheduler, struct share *share) {
    assert(share->round.count == 0);
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
    if (map_insert(&scheduler->lanes, key_slice(&lane->key), lane) != STATUS_OK) {
        free(lane);
        return NULL;
    }
    return lane;
}

/* The line of the connection of a turn; it is made for the second turn. NULL: there is no memory.
 */
static struct line *line_of(const struct scheduler *scheduler, struct turn *turn) {
    if (turn->line)
        return turn->line;
    struct line *line = turn->line = calloc(1, sizeof(*line));
    if (!line)
        return NULL;
    round_init(&line->round);
    list_init(&line->reading);
    line->member_count = 1;
    turn->allowance.credit = 0;
    renew(&turn->allowance, &line->round, tier_quantum(scheduler, turn->lane->tier));
    if (turn->state == TURN_QUEUED || turn->state == TURN_SERVED)
        line->first = turn;
    else if (turn->state == TURN_READING)
        start_reading(turn, true);
    line->is_blocked = turn->state == TURN_BLOCKED;
    if (line->is_blocked)
        line_add(scheduler, turn, true);
    return line;
}

enum status scheduler_join(struct scheduler *scheduler, const struct turn_place *place,
                           struct turn *turn) {
    assert(!turn->lane && turn->state == TURN_IDLE);
    assert(place->tier < QOS_TIER_COUNT);
    struct line *line = place->beside ? line_of(scheduler, place->beside) : NULL;
    if (place->beside && !line)
        return STATUS_OUT_OF_MEMORY;
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
    turn->line = line;
    if (line)
        line->member_count++;
    return STATUS_OK;
}

void scheduler_leave(struct scheduler *scheduler, struct turn *turn) {
    struct lane *lane = turn->lane;
    struct line *line = turn->line;
    if (!lane)
        return;
    struct share *share = lane->key.share;
    if (turn->state == TURN_QUEUED)
        turn_dequeue(scheduler, turn);
    else if (turn->state == TURN_BEHIND)
        round_remove(&line->round, &turn->allowance);
    else if (turn->state == TURN_READING)
        stop_reading(turn);
    *turn = (struct turn){0};
    if (line && line->first == turn)
        line->first = NULL;
    if (line && --line->member_count == 0)
        free(line);
    else if (line)
        line_advance(scheduler, line);
    if (--lane->member_count == 0) {
        (void)map_remove(&scheduler->lanes, key_slice(&lane->key));
        free(lane);
    }
    if (--share->member_count == 0)
        share_free(scheduler, share);
}

/* ---- the queue ---- */

void scheduler_add(struct scheduler *scheduler, struct turn *turn) {
    assert(turn->lane && turn->state != TURN_SERVED);
    bool was_held = turn->holds;
    if (turn->state == TURN_READING)
        stop_reading(turn);
    if (turn->state != TURN_IDLE)
        return;
    if (!turn->line) {
        turn_queue(scheduler, turn);
        return;
    }
    line_add(scheduler, turn, was_held);
    line_yield(scheduler, turn);
    line_advance(scheduler, turn->line);
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
static struct lane *next_lane(const struct scheduler *scheduler, struct share *share) {
    for (;;) {
        struct allowance *first = round_first(scheduler, &share->round);
        struct lane *lane = container_of(first, struct lane, allowance);
        if (first->credit > 0)
            return lane;
        const struct round_place place = {lane->tier, tier_quantum(scheduler, lane->tier), false,
                                          false};
        round_remove(&share->round, first);
        round_add(&share->round, first, &place);
    }
}

struct turn *scheduler_next(struct scheduler *scheduler, size_t *frames_max) {
    struct share *share = next_share(scheduler);
    if (!share)
        return NULL;
    struct lane *lane = next_lane(scheduler, share);
    struct turn *turn = container_of(list_first(&lane->turns), struct turn, allowance.node);
    size_t quantum = (size_t)tier_quantum(scheduler, lane->tier);
    bool is_alone = share->round.count == 1 && !line_has_others(turn->line);
    *frames_max = scheduler->options.slice_frames_max;
    if (!is_alone && quantum < *frames_max)
        *frames_max = quantum;
    turn_dequeue(scheduler, turn);
    turn->state = TURN_SERVED;
    return turn;
}

/* The turn was served. False: it has left. */
static bool end_served(struct turn *turn) {
    if (!turn->lane)
        return false;
    assert(turn->state == TURN_SERVED);
    turn->state = TURN_IDLE;
    if (turn->line)
        turn->line->first = NULL;
    return true;
}

bool scheduler_served(struct scheduler *scheduler, struct turn *turn, size_t frames,
                      bool has_more) {
    if (!end_served(turn))
        return false;
    struct lane *lane = turn->lane;
    struct share *share = lane->key.share;
    int32_t quantum = tier_quantum(scheduler, lane->tier);
    bool others_share_line = line_has_others(turn->line);
    bool others_wait =
        others_share_line || share->round.count > (list_is_empty(&lane->turns) ? 0 : 1);
    assert(frames <= scheduler->options.slice_frames_max);
    charge(&share->credit, share_quantum(scheduler), frames);
    if (others_wait)
        charge(&lane->allowance.credit, quantum, frames);
    if (others_share_line)
        charge(&turn->allowance.credit, quantum, frames);
    if (has_more)
        scheduler_add(scheduler, turn);
    else if (turn->line)
        line_advance(scheduler, turn->line);
    return has_more && others_wait;
}

void scheduler_wait(struct scheduler *scheduler, struct turn *turn, bool holds) {
    if (!end_served(turn))
        return;
    charge(&turn->lane->key.share->credit, share_quantum(scheduler), 0);
    start_reading(turn, holds);
    if (turn->line)
        line_advance(scheduler, turn->line);
}

void scheduler_block(struct scheduler *scheduler, struct turn *turn) {
    if (!end_served(turn))
        return;
    turn->state = TURN_BLOCKED;
    if (!turn->line)
        return;
    turn->line->is_blocked = true;
    line_add(scheduler, turn, true);
}

void scheduler_unblock(struct scheduler *scheduler, struct turn *turn) {
    if (turn->line) {
        turn->line->is_blocked = false;
        line_advance(scheduler, turn->line);
    } else if (turn->state == TURN_BLOCKED) {
        turn_queue(scheduler, turn);
    }
}
