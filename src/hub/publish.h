/* Publishes a commit to the hub.
 * Writer's thread, after the commit is durable.
 * Frames copy the texts of the batch.
 * Cannot fail: a frame without memory is read from the store later.
 * Events come before journal rows, and listeners are woken once at the end. */
#ifndef HUB_PUBLISH_H
#define HUB_PUBLISH_H

#include "hub/hub.h"

/* states[i] is the entity of events[i]. */
void hub_publish(struct hub *hub, const struct store_batch *batch,
                 const struct store_entity *states);

/* The topic has advanced to that head, and its new frames are in the store. Name absent: the log.
 */
void hub_advance(struct hub *hub, struct slice name, uint64_t head_seq);

#endif
