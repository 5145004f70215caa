#include "net/deadline.h"

#include <assert.h>
#include <stddef.h>

#define AT_MS_MAX ((UINT64_C(1) << 56) - 1)

/* ---- the heap ---- */

/* Makes the two trees one. The root of the result has no pointer to it yet. */
static struct deadline *meld(struct deadline *one, struct deadline *other) {
    if (other->at_ms < one->at_ms) {
        struct deadline *earlier = other;
        other = one;
        one = earlier;
    }
    other->sibling = one->child;
    if (one->child)
        one->child->pointer = &other->sibling;
    one->child = other;
    other->pointer = &one->child;
    return one;
}

/* Makes a list of siblings one tree, or NULL. Melding them in pairs first, then the pairs from the
 * last to the first, is what keeps later calls short. */
static struct deadline *meld_siblings(struct deadline *first) {
    struct deadline *pairs = NULL;
    while (first) {
        struct deadline *second = first->sibling;
        struct deadline *later = second ? second->sibling : NULL;
        struct deadline *pair = second ? meld(first, second) : first;
        pair->sibling = pairs;
        pairs = pair;
        first = later;
    }
    struct deadline *tree = NULL;
    while (pairs) {
        struct deadline *next = pairs->sibling;
        tree = tree ? meld(tree, pairs) : pairs;
        pairs = next;
    }
    return tree;
}

/* Puts the deadline, or NULL, where the pointer points. */
static void place_at(struct deadline **pointer, struct deadline *deadline) {
    *pointer = deadline;
    if (deadline)
        deadline->pointer = pointer;
}

/* ---- deadlines ---- */

void deadline_queue_init(struct deadline_queue *queue) {
    *queue = (struct deadline_queue){.earliest = NULL};
}

void deadline_queue_define(struct deadline_queue *queue, enum deadline_kind kind, uint64_t delay_ms,
                           void (*expired)(struct deadline *deadline)) {
    queue->kinds[kind].delay_ms = delay_ms;
    queue->kinds[kind].expired = expired;
}

void deadline_set_at(struct deadline_queue *queue, struct deadline *deadline,
                     enum deadline_kind kind, uint64_t at_ms) {
    assert(at_ms > 0 && at_ms <= AT_MS_MAX);
    deadline_drop(deadline);
    deadline->kind = (uint8_t)kind;
    deadline->at_ms = at_ms & AT_MS_MAX;
    place_at(&queue->earliest, queue->earliest ? meld(queue->earliest, deadline) : deadline);
}

/* The deadlines below it are no earlier than those above it, so they may take its place. */
void deadline_drop(struct deadline *deadline) {
    if (deadline->at_ms == 0)
        return;
    struct deadline *below = meld_siblings(deadline->child);
    if (below)
        place_at(&below->sibling, deadline->sibling);
    place_at(deadline->pointer, below ? below : deadline->sibling);
    deadline->child = deadline->sibling = NULL;
    deadline->pointer = NULL;
    deadline->at_ms = 0;
}

struct deadline *deadline_expired(struct deadline_queue *queue, uint64_t now_ms) {
    struct deadline *earliest = queue->earliest;
    if (!earliest || earliest->at_ms > now_ms)
        return NULL;
    deadline_drop(earliest);
    return earliest;
}

uint64_t deadline_next_ms(const struct deadline_queue *queue) {
    return queue->earliest ? queue->earliest->at_ms : UINT64_MAX;
}
