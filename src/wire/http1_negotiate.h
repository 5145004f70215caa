/* Content negotiation: whether the client accepts gzip, and whether it already has the answer.
 * Thread: any.
 * Errors: none: a field that does not follow the grammar (RFC 9110) is ignored.
 * Invariant: in doubt the answer is complete and not compressed. */
#ifndef WIRE_HTTP1_NEGOTIATE_H
#define WIRE_HTTP1_NEGOTIATE_H

#include "wire/http1_request.h"

/* Accept-Encoding takes gzip, by name or as "*", with a weight above 0 and not below that of the
 * plain form, if it names one. */
bool http1_accepts_gzip(const struct http1_request *request);
/* If-None-Match lists the entity tag, given with its quotes, or is "*". */
bool http1_has_match(const struct http1_request *request, struct slice etag);

#endif
