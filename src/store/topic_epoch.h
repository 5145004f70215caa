/* The epoch of a topic, from rows of the store.
 * Any thread; a pure function over values.
 * Allocates nothing.
 * Cannot fail.
 * Every epoch that clients see or send is made, or compared, here. */
#ifndef STORE_TOPIC_EPOCH_H
#define STORE_TOPIC_EPOCH_H

#include "base/decimal.h"
#include "store/store.h"
#include "topic/position.h"

_Static_assert(TOPIC_EPOCH_BYTES_MAX > STORE_EPOCH_SIZE + DECIMAL_U64_SIZE_MAX,
               "the log's epoch and a number fit");

/* A topic that is served from the log has the log's epoch. A topic with journal rows adds ".N", the
 * number of its journal. topic: NULL for the whole log, and for a topic that does not exist. */
struct topic_epoch topic_epoch_of(const struct store_state *state, const struct store_topic *topic);

#endif
