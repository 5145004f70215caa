/* The compatibility gate where clients come in: what an HTTP request says of its client, and the
 * answer to one this server does not speak with.
 * Belongs to the exchange's loop. Keeps nothing.
 * Refusals are those of auth/compatibility.h, as 426 with its body for details.
 * Whoever is refused was counted and remembered once. */
#ifndef HTTP_ADMIT_VERSION_GATE_H
#define HTTP_ADMIT_VERSION_GATE_H

#include "http/exchange.h"

/* By the request's query, since browsers can put it nowhere else. */
MUST_CHECK enum status version_gate_check(const struct exchange *exchange);
void version_gate_answer(struct exchange *exchange, enum status refusal);

#endif
