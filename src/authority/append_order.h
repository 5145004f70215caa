/* The order of one batch. Its groups wait behind each other. Entities of which an event was refused
 * for now are blocked, so that the later events do not overtake it.
 * Owned by the writer's thread from the first post of the batch until its last answer, except for
 * is_abandoned, which any thread may set.
 * Memory: bounded copies of the ids, none before the first refusal.
 * Errors: none. Without room for another entity the order blocks every later request.
 * A blocked request is answered STATUS_NOT_ATTEMPTED, and a retry of the batch keeps its order. */
#ifndef AUTHORITY_APPEND_ORDER_H
#define AUTHORITY_APPEND_ORDER_H

#include <stdatomic.h>

#include "authority/append.h"
#include "base/map.h"

struct append_order {
    struct map entities; /* by kind and id */
    struct arena names;
    bool blocks_all;
    const struct append_group *last_waiting; /* in the writer's queue; NULL: none waits there */
    atomic_bool is_abandoned; /* no one waits for the answers: groups that wait are not applied */
};

void append_order_init(struct append_order *order);
void append_order_release(struct append_order *order);
/* After a request was answered or refused. A refusal with 429 or 503 blocks its entity; other
 * requests change nothing. */
void append_order_note(struct append_order *order, const struct append_request *request);
/* Whether an earlier request of the same entity was refused for now. */
bool append_order_blocks(const struct append_order *order, const struct append_request *request);

#endif
