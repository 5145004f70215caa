/* Whose the entities of a read are: of events in turn, each entity is looked up once and not once
 * an event.
 * Belongs to the thread of its session. Memory: itself, and names within a limit.
 * The store's errors.
 * Remembers at most OWNERS_MAX entities; whom it forgets it looks up again. */
#ifndef DELIVERY_OWNERS_H
#define DELIVERY_OWNERS_H

#include "base/arena.h"
#include "store/store.h"

#define OWNERS_MAX 64

struct owners_slot {
    uint64_t entity_ref; /* 0: none */
    struct owner owner;
};

struct owners {
    struct store_session *session;
    struct arena arena;
    struct owners_slot slots[OWNERS_MAX]; /* an entity has one place, by its ref */
};

/* The session outlives it. */
void owners_init(struct owners *owners, struct store_session *session);
void owners_release(struct owners *owners);
/* The owner lives until the next question. */
MUST_CHECK enum status owners_find(struct owners *owners, uint64_t entity_ref,
                                   const struct owner **owner);

#endif
