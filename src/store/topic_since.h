/* Finds the position of a time in a topic: just before its first frame of that time or later.
 * Any thread, with its own session.
 * Allocates nothing.
 * Errors: the store's.
 * Reads a number of rows that grows with the logarithm of the topic. No frame of the time or later
 * is before the position, not even a frame that was pruned: a position below the floor is answered
 * where such a frame is possible. Frames before the time may follow the position. */
#ifndef STORE_TOPIC_SINCE_H
#define STORE_TOPIC_SINCE_H

#include "store/store.h"

MUST_CHECK enum status topic_since_find(struct store_session *session,
                                        const struct store_topic *topic, uint64_t at_ms,
                                        uint64_t *after_seq);

#endif
