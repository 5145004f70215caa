/* Entitlement to one topic, checked before a handler reads it. Where the owner of a run or worker
 * decides, the view is GRANT_VIEW_PENDING, and the handler's own read finds the owner.
 * Belongs to the exchange's loop.
 * Memory: the check is the exchange's work until it is decided, and is freed before next runs.
 * Errors: a principal that is not entitled is answered 403 with the reason, logged and counted. The
 * handler then never runs.
 * next runs at most once, with exchange->view set. */
#ifndef HTTP_ADMIT_ENTITLE_H
#define HTTP_ADMIT_ENTITLE_H

#include "http/exchange.h"
/* The topic of the route. Its parameter may be a stream id, and becomes the name of the topic. It
 * stays a stream id only if no topic has it yet. */
void entitle_path(struct exchange *exchange, void (*next)(struct exchange *exchange));
/* Another topic, which outlives the exchange. */
void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange));

#endif
