/* The steps of publishing on one topic of the hub. For hub/publish.c only; hub.c implements them.
 * Writer's thread.
 * The caller owns a topic between lock and unlock.
 * Cannot fail.
 * All frames that are added are durable. */
#ifndef HUB_HUB_TOPIC_H
#define HUB_HUB_TOPIC_H

#include "hub/frame.h"

struct hub;
struct hub_topic;

/* Memory for one name at a time. */
struct arena *hub_names(struct hub *hub);
/* NULL, with nothing locked, for a topic that is not in the hub. */
struct hub_topic *hub_topic_lock(struct hub *hub, struct slice name);
/* The journal of the topic has this epoch. Pages that were read from another one are not kept. */
void hub_topic_see_epoch(struct hub_topic *topic, uint64_t journal_epoch);
/* Takes over the frame. NULL, if the frame could not be made, empties the window. */
void hub_topic_add(struct hub *hub, struct hub_topic *topic, uint64_t seq, struct frame *frame);
/* Announces the topic to its listeners. */
void hub_topic_unlock(struct hub *hub, struct hub_topic *topic);
/* Wakes the listeners that have advanced topics and were not woken yet. */
void hub_wake_listeners(struct hub *hub);

#endif
