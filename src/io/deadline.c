#include "io/deadline.h"

#include <assert.h>
#include <stddef.h>

void deadline_queue_init(struct deadline_queue *queue) {
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++) {
        struct deadline *head = &queue->kinds[kind].head;
        head->previous = head->next = head;
        deadline_queue_define(queue, (enum deadline_kind)kind, 0, NULL);
    }
}

void deadline_queue_define(struct deadline_queue *queue, enum deadline_kind kind, uint64_t delay_ms,
                           void (*expired)(struct deadline *deadline)) {
    queue->kinds[kind].delay_ms = delay_ms;
    queue->kinds[kind].expired = expired;
}

void deadline_set(struct deadline_queue *queue, struct deadline *deadline, enum deadline_kind kind,
                  uint64_t now_ms) {
    assert(queue->kinds[kind].delay_ms > 0);
    deadline_set_at(queue, deadline, kind, now_ms + queue->kinds[kind].delay_ms);
}

void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms) {
    assert(at_ms > 0);
    deadline_drop(deadline);
    struct deadline *head = &queue->kinds[kind].head;
    struct deadline *before = head->previous;
    while (before != head && before->at_ms > at_ms)
        before = before->previous;
    deadline->kind = kind;
    deadline->at_ms = at_ms;
    deadline->previous = before;
    deadline->next = before->next;
    before->next->previous = deadline;
    before->next = deadline;
}

void deadline_drop(struct deadline *deadline) {
    if (deadline->at_ms == 0)
        return;
    deadline->previous->next = deadline->next;
    deadline->next->previous = deadline->previous;
    deadline->at_ms = 0;
}

struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms) {
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++) {
        struct deadline *head = &queue->kinds[kind].head;
        if (head->next != head && head->next->at_ms <= now_ms) {
            struct deadline *first = head->next;
            deadline_drop(first);
            return first;
        }
    }
    return NULL;
}

uint64_t deadline_next_ms(const struct deadline_queue *queue) {
    uint64_t next_ms = UINT64_MAX;
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++) {
        const struct deadline *first = queue->kinds[kind].head.next;
        if (first != &queue->kinds[kind].head && first->at_ms < next_ms)
            next_ms = first->at_ms;
    }
    return next_ms;
}
