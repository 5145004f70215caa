/* Owners of the entities in one read: each entity is read once, not once for each event.
 * Belongs to the thread of its session.
 * Memory: itself, and names within a limit.
 * Errors: the store's.
 * A cache of at most OWNERS_MAX entities; an evicted entity is read again. */
#ifndef DELIVERY_OWNERS_H
#define DELIVERY_OWNERS_H

#include "base/arena.h"
#include "base/limits.h"
#include "store/store.h"

struct owners_slot {
    uint64_t entity_ref; /* 0: none */
    struct owner owner;
};

struct owners {
    struct store_session *session;
    struct arena arena;
    struct owners_slot slots[OWNERS_MAX]; /* an entity has one slot, by its ref */
};

/* The session outlives it. */
void owners_init(struct owners *owners, struct store_session *session);
void owners_release(struct owners *owners);
/* The owner is valid until the next call. */
MUST_CHECK enum status owners_find(struct owners *owners, uint64_t entity_ref,
                                   const struct owner **owner);

#endif
