/* Entitlement to one topic, checked before a handler reads it. Where the topic's owner decides, the
 * check loads the owner from the store.
 * entitle belongs to the exchange's loop; entitle_load to a thread of the store pool.
 * Memory: the check is the exchange's work until it is decided, and is freed before next runs.
 * Errors: a principal that is not entitled is answered 403 with the reason, logged and counted. The
 * handler then never runs.
 * next runs at most once, with exchange->view set. */
#ifndef HTTP_ADMIT_ENTITLE_H
#define HTTP_ADMIT_ENTITLE_H

#include "http/exchange.h"
#include "store/store.h"

/* The topic of the route. Its parameter may be a stream id, and becomes the name of the topic. It
 * stays a stream id only if no topic has it yet. */
void entitle_path(struct exchange *exchange, void (*next)(struct exchange *exchange));
/* Another topic, which outlives the exchange. */
void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange));

/* Finds out which frames of a topic the principal may read. A topic without a name (a stream that
 * no topic has) is only for principals that may read everything. The status is the store's. */
MUST_CHECK enum status entitle_load(struct store_session *session,
                                    const struct principal *principal, struct slice topic,
                                    struct arena *arena, struct grant *grant);

#endif
