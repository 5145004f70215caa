/* What a request passes between admission and its handler: entitlement to one topic, and the
 * single use of its token. If the owner of a run or worker decides, the view is
 * GRANT_VIEW_PENDING, and the handler's own read finds the owner. A token opens only one session
 * if RUNTIME_SYNC_TOKEN_SINGLE_USE is set; the writer decides which.
 * Thread: the exchange's loop.
 * Memory: the check is the exchange's work until it is decided, and is freed before next runs.
 * Errors: a principal that is not entitled is answered 403 with the reason, logged and counted.
 * 401 token_replayed for a second use of a token, 401 missing_jti for a token without an id, or
 * the store's status. The handler then never runs.
 * Invariant: next runs at most once, with exchange->view set. A use is durable before the handler
 * runs, and counts even if the connection then fails. */
#ifndef HTTP_ADMIT_ENTITLE_H
#define HTTP_ADMIT_ENTITLE_H

#include "http/exchange.h"

/* The topic of the route. Its parameter may be a stream id, and becomes the name of the topic. It
 * stays a stream id only if no topic has it yet. */
void entitle_path(struct exchange *exchange, void (*next)(struct exchange *exchange));
/* The events of the run that is the route's parameter. */
void entitle_run(struct exchange *exchange, void (*next)(struct exchange *exchange));
/* Another topic, which outlives the exchange. */
void entitle(struct exchange *exchange, struct slice topic,
             void (*next)(struct exchange *exchange));
/* Records the use of the token, then runs the route's handler. HEAD requests open no session and
 * the operator key is no token: their handler runs at once. */
void open_once(struct exchange *exchange);

#endif
