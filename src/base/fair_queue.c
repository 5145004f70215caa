#include "base/fair_queue.h"

#include <stdlib.h>
#include <sys/param.h>

struct fair_lane {
    struct list_node node; /* in the ring */
    struct fair_item *first;
    struct fair_item **end; /* the pointer that the next item goes to */
    size_t count;
    uint64_t bytes;
    uint64_t deficit; /* what it may still give */
    bool has_turn;    /* it got the quantum of this turn */
    struct slice key;
    char text[];
};

void fair_queue_init(struct fair_queue *queue, uint64_t quantum, size_t count_max,
                     uint64_t bytes_max) {
    assert(quantum > 0);
    *queue =
        (struct fair_queue){.quantum = quantum, .count_max = count_max, .bytes_max = bytes_max};
    map_init(&queue->lanes, MAP_COUNT_MAX);
    list_init(&queue->ring);
}

void fair_queue_release(struct fair_queue *queue) {
    assert(queue->count == 0 && queue->lanes.count == 0);
    map_release(&queue->lanes);
}

static struct fair_lane *first_lane(const struct fair_queue *queue) {
    struct list_node *node = list_first(&queue->ring);
    assert(node);
    return container_of(node, struct fair_lane, node);
}

static void append(struct fair_queue *queue, struct fair_lane *lane, struct fair_item *item) {
    item->next = NULL;
    item->lane = lane;
    *lane->end = item;
    lane->end = &item->next;
    lane->count++;
    lane->bytes += item->bytes;
    queue->count++;
    queue->bytes += item->bytes;
}

static bool has_room(const struct fair_queue *queue, const struct fair_lane *lane,
                     const struct fair_item *item) {
    if (!lane)
        return queue->count / 2 < queue->count_max;
    size_t parts = queue->lanes.count + 1;
    return queue->count < queue->count_max && lane->count < queue->count_max / parts &&
           queue->bytes + item->bytes <= queue->bytes_max &&
           lane->bytes + item->bytes <= queue->bytes_max / parts;
}

enum status fair_queue_add(struct fair_queue *queue, struct slice key, struct fair_item *item) {
    struct fair_lane *lane = map_find(&queue->lanes, key);
    if (!has_room(queue, lane, item))
        return STATUS_LIMIT_REACHED;
    if (!lane) {
        lane = calloc(1, sizeof(*lane) + key.size);
        if (!lane)
            return STATUS_OUT_OF_MEMORY;
        memcpy(lane->text, key.data, key.size);
        lane->key = (struct slice){lane->text, key.size};
        lane->end = &lane->first;
        enum status status = map_insert(&queue->lanes, lane->key, lane);
        if (status != STATUS_OK) {
            free(lane);
            return status;
        }
        list_push_back(&queue->ring, &lane->node);
    }
    append(queue, lane, item);
    return STATUS_OK;
}

void fair_queue_add_behind(struct fair_queue *queue, const struct fair_item *earlier,
                           struct fair_item *item) {
    assert(earlier->lane);
    append(queue, earlier->lane, item);
}

void fair_queue_begin_round(struct fair_queue *queue) {
    queue->turns_left = queue->lanes.count;
}

struct fair_item *fair_queue_peek(struct fair_queue *queue) {
    while (queue->turns_left > 0) {
        struct fair_lane *lane = first_lane(queue);
        if (!lane->has_turn)
            lane->deficit += queue->quantum;
        lane->has_turn = true;
        if (lane->first->cost <= lane->deficit)
            return lane->first;
        lane->has_turn = false;
        queue->turns_left--;
        list_remove(&lane->node);
        list_push_back(&queue->ring, &lane->node);
    }
    return NULL;
}

void fair_queue_take(struct fair_queue *queue, struct fair_item *item) {
    struct fair_lane *lane = item->lane;
    if (lane->has_turn && item == lane->first && item->cost <= lane->deficit)
        lane->deficit -= item->cost;
    struct fair_item **at = &lane->first;
    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    if (!*at)
        lane->end = at;
    lane->count--;
    lane->bytes -= item->bytes;
    queue->count--;
    queue->bytes -= item->bytes;
    item->next = NULL;
    item->lane = NULL;
    if (lane->first)
        return;
    (void)map_remove(&queue->lanes, lane->key);
    list_remove(&lane->node);
    queue->turns_left -= lane->has_turn;
    free(lane);
    /* The lane may have had a turn in this round, or not. */
    queue->turns_left = MIN(queue->turns_left, queue->lanes.count);
}
