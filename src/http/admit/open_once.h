/* Single use of tokens: a token opens only one session if RUNTIME_SYNC_TOKEN_SINGLE_USE is set.
 * open_once belongs to the exchange's loop; the writer decides.
 * Memory: the exchange's work while the writer decides; freed before the handler runs.
 * Errors: 401 token_replayed for a second use, 401 missing_jti for a token without an id, or the
 * store's status. The handler then never runs.
 * The use is durable before the handler runs. It counts even if the connection then fails. */
#ifndef HTTP_ADMIT_OPEN_ONCE_H
#define HTTP_ADMIT_OPEN_ONCE_H

#include "http/exchange.h"

/* Records the use, then runs the route's handler. HEAD requests open no session and the operator
 * key is no token: their handler runs at once. */
void open_once(struct exchange *exchange);

#endif
