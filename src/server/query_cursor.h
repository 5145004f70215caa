/* Event cursors in a request's query.
 * Belongs to the exchange's loop; keeps nothing.
 * What is wrong is answered here, with TALOS_INVALID_CURSOR and the parameter's name; the caller
 * then returns.
 * Legacy cursors decode too. A cursor that names no event is still a position. */
#ifndef SERVER_QUERY_CURSOR_H
#define SERVER_QUERY_CURSOR_H

#include "server/exchange.h"
#include "topic/event_cursor.h"

struct query_cursor {
    bool given;
    struct event_cursor cursor;
};

/* False: the exchange has been answered. */
MUST_CHECK bool query_cursor_read(struct exchange *exchange, const char *name,
                                  struct query_cursor *query);
/* The cursor as a JSON string, or null. */
MUST_CHECK enum status query_cursor_write(struct buffer *out, const struct query_cursor *query);

#endif
