/* A token that opens one connection: where RUNTIME_SYNC_TOKEN_SINGLE_USE asks for it, the step
 * before a handler that makes a session.
 * Belongs to the exchange's loop; the writer decides.
 * Uses the exchange's work while it waits, and gives it back empty.
 * A second use is answered 401 token_replayed, a token without an id 401 missing_jti, and what the
 * store cannot decide with the store's status; the handler then never runs.
 * The use is durable before the handler runs: it counts also when the connection then fails. */
#ifndef HTTP_ADMIT_OPEN_ONCE_H
#define HTTP_ADMIT_OPEN_ONCE_H

#include "http/exchange.h"

/* Goes on with the route's handler. HEAD opens nothing, and uses nothing up; the operator key is no
 * token. */
void open_once(struct exchange *exchange);

#endif
