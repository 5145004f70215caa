/* Finds where the histories of a topic part, as far as a position is concerned.
 * Any thread, with its own session.
 * Allocates nothing.
 * Errors: the store's.
 * Reads one row, and none in a log with one epoch. A fork that is not known is 0. */
#ifndef STORE_TOPIC_FORK_H
#define STORE_TOPIC_FORK_H

#include "store/store.h"
#include "topic/continuity.h"

/* topic: NULL for one that does not exist. A fork at or behind the position is answered as the
 * position, and one before it as any seq before it: lineage_of judges the position alike. */
MUST_CHECK enum status topic_fork_find(struct store_session *session,
                                       const struct store_state *state,
                                       const struct store_topic *topic,
                                       const struct position *position, struct topic_fork *fork);

#endif
