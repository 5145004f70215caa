/* What publishing does to the hub's topics, one at a time; for hub/publish.c only.
 * The writer's thread. Between lock and unlock a topic is the caller's.
 * Cannot fail.
 * Whatever is added is durable already. */
#ifndef HUB_PUBLISH_H
#define HUB_PUBLISH_H

#include "hub/frame.h"

struct hub;
struct hub_topic;

bool hub_is_empty(struct hub *hub);
/* Room for one name at a time. */
struct arena *hub_names(struct hub *hub);
/* NULL, and nothing locked, where nobody is interested. */
struct hub_topic *hub_topic_lock(struct hub *hub, struct slice name);
/* Takes over the frame; NULL where there was no memory or not enough known to make one, which only
 * empties the window. */
void hub_topic_add(struct hub *hub, struct hub_topic *topic, uint64_t seq, struct frame *frame);
/* Announces it. */
void hub_topic_unlock(struct hub *hub, struct hub_topic *topic);
/* Those who have something to look at and do not know yet. */
void hub_wake_listeners(struct hub *hub);

#endif
