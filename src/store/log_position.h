/* Finds the position of an event cursor in the log, and whether the cursor is of this history.
 * Any thread, with its own session.
 * Allocates nothing.
 * Errors: the store's.
 * A cursor that this store gave out names an event. If the log has no such event, the store was
 * restored to an earlier state. Other cursors are positions even if no event has them. */
#ifndef STORE_LOG_POSITION_H
#define STORE_LOG_POSITION_H

#include "store/store.h"

/* log_id: of the last event at or before the cursor; 0: before the first. */
MUST_CHECK enum status log_position_find(struct store_session *session, const struct id_mark *mark,
                                         const struct event_cursor *cursor, uint64_t *log_id,
                                         bool *is_lost);

#endif
