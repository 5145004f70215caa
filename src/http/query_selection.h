/* The parameters where and conflate_ms of a request for the frames or the snapshot of a topic.
 * Thread: the exchange's loop.
 * Errors: answered here with 400: unknown_parameter with the name of a field that where may not
 * have, invalid_request for another shape, and for a topic without documents. */
#ifndef HTTP_QUERY_SELECTION_H
#define HTTP_QUERY_SELECTION_H

#include "delivery/selection.h"
#include "http/exchange.h"

/* NULL without the parameters; else the caller owns the reference. False: the exchange has been
 * answered. */
MUST_CHECK bool query_selection(struct exchange *exchange, struct selection **selection);

#endif
