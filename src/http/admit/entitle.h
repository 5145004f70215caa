/* Entitlement to one topic: asked before a handler begins to read it, with a look into the store
 * where the topic's owner decides.
 * Belongs to the exchange's loop; the look runs on a reader's thread.
 * Uses the exchange's work while it looks, and gives it back empty.
 * Who may not is answered 403 with the reason, logged and counted; the handler then never runs.
 * next runs with exchange->view set, at most once. */
#ifndef HTTP_ADMIT_ENTITLE_H
#define HTTP_ADMIT_ENTITLE_H

#include "http/exchange.h"
#include "store/store.h"

/* The topic is in the exchange's parameters. */
void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange));

/* On a reader's thread: what the principal gets of a topic. One without a name (a stream that no
 * topic has) is for those who read everything. The status is the store's; texts go to the arena. */
MUST_CHECK enum status entitle_look(struct store_session *session,
                                    const struct principal *principal, struct slice topic,
                                    struct arena *arena, struct grant *grant);

#endif
