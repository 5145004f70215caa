#include "io/deadline.h"

#include <assert.h>
#include <stddef.h>

void deadline_queue_init(struct deadline_queue *queue) {
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++) {
        list_init(&queue->kinds[kind].deadlines);
        deadline_queue_define(queue, (enum deadline_kind)kind, 0, NULL);
    }
}

void deadline_queue_define(struct deadline_queue *queue, enum deadline_kind kind, uint64_t delay_ms,
                           void (*expired)(struct deadline *deadline)) {
    queue->kinds[kind].delay_ms = delay_ms;
    queue->kinds[kind].expired = expired;
}

void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms) {
    assert(at_ms > 0);
    deadline_drop(deadline);
    struct list *deadlines = &queue->kinds[kind].deadlines;
    struct list_node *earlier = deadlines->head.previous;
    while (earlier != &deadlines->head &&
           container_of(earlier, struct deadline, node)->at_ms > at_ms)
        earlier = earlier->previous;
    deadline->kind = kind;
    deadline->at_ms = at_ms;
    list_insert_after(earlier, &deadline->node);
}

void deadline_drop(struct deadline *deadline) {
    if (deadline->at_ms == 0)
        return;
    list_remove(&deadline->node);
    deadline->at_ms = 0;
}

static struct deadline *first_of(const struct deadline_queue *queue, int kind) {
    struct list_node *node = list_first(&queue->kinds[kind].deadlines);
    return node ? container_of(node, struct deadline, node) : NULL;
}

struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms) {
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++) {
        struct deadline *first = first_of(queue, kind);
        if (first && first->at_ms <= now_ms) {
            deadline_drop(first);
            return first;
        }
    }
    return NULL;
}

uint64_t deadline_next_ms(const struct deadline_queue *queue) {
    uint64_t next_ms = UINT64_MAX;
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++) {
        const struct deadline *first = first_of(queue, kind);
        if (first && first->at_ms < next_ms)
            next_ms = first->at_ms;
    }
    return next_ms;
}
