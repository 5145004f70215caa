/* Admission: whether a request may reach its route, decided from its head.
 * Belongs to the exchange's loop. Reads only the head; the store is not asked.
 * Memory: on success the exchange holds a reference to its principal.
 * Errors: a 401 or 403 status for the caller's key, token or origin, 426 statuses for its version.
 * A route without admission flags is open to everybody. */
#ifndef HTTP_ADMIT_ADMISSION_H
#define HTTP_ADMIT_ADMISSION_H

#include "http/exchange.h"

/* The exchange has its route. */
MUST_CHECK enum status admission_check(struct exchange *exchange);

#endif
