/* The version gate: checks the versions in a request's query, and answers a client that is too old
 * or too new. Belongs to the exchange's loop. Memory: nothing is kept. Errors: the refusals of
 * auth/compatibility.h, answered as 426 with the accepted range as details. A refusal is counted
 * and remembered once. */
#ifndef HTTP_ADMIT_VERSION_GATE_H
#define HTTP_ADMIT_VERSION_GATE_H

#include "http/exchange.h"

/* Reads the versions from the query, the only way for browsers. */
MUST_CHECK enum status version_gate_check(const struct exchange *exchange);
void version_gate_answer(struct exchange *exchange, enum status refusal);

#endif
