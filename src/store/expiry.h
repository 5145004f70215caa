/* The rule of expiry, for all engines: which frame of a topic is the first that stays.
 * One walk belongs to one thread. Allocates nothing.
 * The engine reads the times of frames in order, from store_expiry.first_seq on, until the walk has
 * ended. Errors are the engine's own.
 * Frames carry the wall clock's time, which may step in both directions. The first frame that is
 * young enough keeps all frames after it. A frame dated in the future does not: it goes with the
 * first later frame that goes. */
#ifndef STORE_EXPIRY_H
#define STORE_EXPIRY_H

#include "store/store.h"

struct expiry_walk {
    struct store_expiry_query query;
    struct store_expiry *expiry;
    uint64_t counted;
    bool is_ended;
};

/* The time of the cursor of an entity's event. */
typedef enum status expiry_cursor_cb(void *session, uint64_t entity_ref, uint64_t seq,
                                     uint64_t *at_ms);

/* Begins at the oldest frame. Events need not all be read: the time of an event's cursor never
 * falls and is never before its recorded_at. So a binary search by cursors finds events that have
 * all expired, and the walk begins behind them. */
MUST_CHECK enum status expiry_begin(struct expiry_walk *walk, const struct store_topic *topic,
                                    const struct store_expiry_query *query,
                                    struct store_expiry *expiry, void *session,
                                    expiry_cursor_cb *cursor_time);
void expiry_take(struct expiry_walk *walk, uint64_t seq, uint64_t at_ms);

#endif
