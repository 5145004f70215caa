/* The development gate: who may subscribe while there are no client tokens yet. THE ONE PLACE to
 * replace when tokens are checked.
 * Any thread; allocates nothing that stays.
 * The 401s of the operator key; STATUS_BAD_REQUEST for a query that does not decode.
 * The operator key opens it, as a bearer, or as ?token= since an EventSource cannot send fields. */
#ifndef SERVER_DEVELOPMENT_GATE_H
#define SERVER_DEVELOPMENT_GATE_H

#include "server/operator_key.h"

MUST_CHECK enum status development_gate_check(const struct operator_key *key,
                                              const struct http1_request *request);
/* A token that came in a message. */
MUST_CHECK enum status development_gate_check_token(const struct operator_key *key,
                                                    struct slice token);

#endif
