/* Where a client's position lies in the history of a topic: the window and the epoch that it is
 * compared with, forks of the history, and the positions of cursors and times.
 * Thread: any, with its own session.
 * Memory: allocates nothing that outlives a call.
 * Errors: the store's.
 * Invariant: every epoch and every window that a client sees, or that its position is judged by, is
 * made here. */
#ifndef STORE_TOPIC_HISTORY_H
#define STORE_TOPIC_HISTORY_H

#include "base/decimal.h"
#include "store/store.h"
#include "topic/continuity.h"
#include "topic/policy.h"
#include "topic/position.h"

/* On topics that begin in the log, oldest_seq is the floor of retention or the start of a
 * bootstrap, whichever is lower. So every position inside a bootstrap resumes. */
struct topic_window enforced_window(const struct store_topic *topic, const struct policy *policy);

_Static_assert(TOPIC_EPOCH_BYTES_MAX > STORE_EPOCH_SIZE + DECIMAL_U64_SIZE_MAX,
               "the log's epoch and a number fit");

/* A topic that is served from the log has the log's epoch. A topic with journal rows adds ".N", the
 * number of its journal. topic: NULL for the whole log, and for a topic that does not exist. */
struct topic_epoch topic_epoch_of(const struct store_state *state, const struct store_topic *topic);

/* log_id: of the last event at or before the cursor; 0: before the first. is_lost: this store gave
 * the cursor out, so that it names an event, and the log has no such event: the store was restored
 * to an earlier state. Other cursors are positions even if no event has them. */
MUST_CHECK enum status log_position_find(struct store_session *session, const struct id_mark *mark,
                                         const struct event_cursor *cursor, uint64_t *log_id,
                                         bool *is_lost);

/* Where the histories of a topic part, as far as the position is concerned. topic: NULL for one
 * that does not exist. A fork at or behind the position is answered as the position, and one before
 * it as any seq before it: lineage_of judges the position alike. A fork that is not known is 0.
 * Reads one row, and none in a log with one epoch. */
MUST_CHECK enum status topic_fork_find(struct store_session *session,
                                       const struct store_state *state,
                                       const struct store_topic *topic,
                                       const struct position *position, struct topic_fork *fork);

/* The position just before the topic's first frame of that time or later. No such frame is before
 * the position, not even one that was pruned: a position below the floor is answered where such a
 * frame is possible. Frames before the time may follow the position. Reads a number of rows that
 * grows with the logarithm of the topic. */
MUST_CHECK enum status topic_since_find(struct store_session *session,
                                        const struct store_topic *topic, uint64_t at_ms,
                                        uint64_t *after_seq);

#endif
