/* Admission: decides from the head of a request whether it may reach its route.
 * Thread: the exchange's loop.
 * Memory: on success the exchange holds a reference to its principal.
 * Errors: a 401 or 403 status for the caller's key, its role, token or origin, 426 statuses for its
 * version, STATUS_TOO_MANY_CONNECTIONS and STATUS_SERVER_FULL for a connection beyond the limits.
 * Invariant: admission reads only the head, never the store. A route without admission flags admits
 * all. */
#ifndef HTTP_ADMIT_ADMISSION_H
#define HTTP_ADMIT_ADMISSION_H

#include "http/exchange.h"

/* The longest time that the answer to a wrong key or token waits. */
#define AUTH_FAILURE_DELAY_MS_MAX 5000

/* Whether a principal that was admitted may do nothing more: its token, session or device was
 * revoked, or its operator key with a name has ended. Any thread. NULL is not revoked. */
bool admission_is_revoked(const struct http *http, const struct principal *principal,
                          uint64_t now_ms);
/* The exchange has its route. */
MUST_CHECK enum status admission_check(struct exchange *exchange);
/* The peer of the connection has shown a token, or, if the principal is the operator's or NULL, a
 * key. STATUS_TOO_MANY_CONNECTIONS: the principal has too many connections. */
MUST_CHECK enum status admission_admit(struct conn *conn, const struct principal *principal);
/* The peer showed a wrong key or token. Returns how many milliseconds the answer waits, because its
 * address has shown many. The connection closes after such an answer. */
MUST_CHECK uint64_t admission_charge_failure(struct conn *conn, bool is_token);
/* Answers a refusal: of a role with the role of the key and those that the route needs, of a
 * version with the accepted range. */
void admission_answer_refused(struct exchange *exchange, enum status refusal);

#endif
