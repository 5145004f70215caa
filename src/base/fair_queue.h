/* A fair queue: items wait in lanes, one for each key, and the lanes take turns in deficit round
 * robin by the cost of their items. Within a lane items leave in the order in which they came.
 * Owned by one thread at a time. Memory: one lane for each key with waiting items; the items are
 * members of the caller's objects. A lane is freed with its last item.
 * STATUS_LIMIT_REACHED for a lane that holds its share, STATUS_OUT_OF_MEMORY.
 *
 * A round gives each lane that has items one turn. In its turn a lane gets the quantum and gives
 * items while the next one costs no more than it has. What is left carries over to its next turn
 * while the lane has items. So an item that costs no more than the quantum waits, besides what is
 * before it in its lane, for at most one turn of each other lane. Every step takes constant time if
 * no item costs more than the quantum; a dearer one takes several rounds.
 *
 * The shares. A lane with items takes another only while it holds less than its share: count_max
 * and bytes_max divided by the number of lanes and one more, so that a newcomer finds a share. A
 * key without items may always add one, until twice count_max are waiting: lanes that grew while
 * shares were larger do not keep it out. */
#ifndef BASE_FAIR_QUEUE_H
#define BASE_FAIR_QUEUE_H

#include "base/list.h"
#include "base/map.h"

struct fair_lane;

struct fair_item {
    struct fair_item *next; /* in its lane */
    struct fair_lane *lane; /* while it waits */
    uint64_t cost;          /* the caller sets both before it adds the item */
    uint64_t bytes;
};

struct fair_queue {
    uint64_t quantum;
    size_t count_max;
    uint64_t bytes_max;
    struct map lanes;  /* by key */
    struct list ring;  /* of lanes; the first one has the next turn */
    size_t turns_left; /* of the round */
    size_t count;      /* items */
    uint64_t bytes;    /* of them */
};

/* The queue may not move. */
void fair_queue_init(struct fair_queue *queue, uint64_t quantum, size_t count_max,
                     uint64_t bytes_max);
/* The queue is empty. */
void fair_queue_release(struct fair_queue *queue);
/* Copies the key. */
MUST_CHECK enum status fair_queue_add(struct fair_queue *queue, struct slice key,
                                      struct fair_item *item);
/* Adds an item to the lane of one that still waits, whatever its share. */
void fair_queue_add_behind(struct fair_queue *queue, const struct fair_item *earlier,
                           struct fair_item *item);
/* Lanes that have items from now on wait for the next round. A lane in the middle of its turn
 * continues that turn first. */
void fair_queue_begin_round(struct fair_queue *queue);
/* The item that leaves next; it stays in the queue. NULL: the round is over. */
struct fair_item *fair_queue_peek(struct fair_queue *queue);
/* Removes an item. Its lane pays for one that fair_queue_peek has returned. Looking for another one
 * takes a step for each item before it in its lane. */
void fair_queue_take(struct fair_queue *queue, struct fair_item *item);

static inline size_t fair_queue_lanes(const struct fair_queue *queue) {
    return queue->lanes.count;
}

#endif
