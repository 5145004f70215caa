/* Cursors of a request: the position at which a client starts, from its query or a header.
 * Thread: the exchange's loop.
 * Memory: the caller's structs.
 * Errors: an invalid event cursor is answered here with TALOS_INVALID_CURSOR and the parameter's
 * name. An invalid topic cursor is the returned status.
 * Invariant: a cursor that names no event is still a position. KHALA_LEGACY_CURSORS decides about
 * legacy cursors (event_cursor_read). */
#ifndef HTTP_QUERY_CURSOR_H
#define HTTP_QUERY_CURSOR_H

#include "delivery/subscription.h"
#include "http/exchange.h"
#include "topic/event_cursor.h"
#include "topic/position.h"

/* Longer than any cursor of a query. */
#define QUERY_CURSOR_BYTES_MAX 512

struct query_cursor {
    bool given;
    struct event_cursor cursor;
    bool is_since; /* made from a time: later than the last event, it means the head */
};

/* False: the exchange has been answered. */
MUST_CHECK bool query_cursor_read(struct exchange *exchange, const char *name,
                                  struct query_cursor *query);
/* Reads after_cursor, or start_cursor, which means the same. Both may be given if they are equal.
 * Reads since too. */
MUST_CHECK bool query_after_cursor(struct exchange *exchange, struct query_cursor *query);
/* The same for the value of a header field. */
MUST_CHECK bool header_cursor_read(struct exchange *exchange, const char *name, struct slice text,
                                   struct query_cursor *query);
/* The position before the first event of the millisecond. A time of the future is now. */
struct query_cursor query_cursor_since(uint64_t since_ms, uint64_t now_ms);
/* The cursor as a JSON string, or null. */
enum status query_cursor_write(struct buffer *out, const struct query_cursor *query);
/* Reads since: the time from which the client reads. An invalid one, and one beside another
 * position, is answered here with 400 and the parameter's name. */
MUST_CHECK bool query_since(struct exchange *exchange, bool *given, uint64_t *since_ms);
/* The same for a position in a topic. */
MUST_CHECK bool query_topic_since(struct exchange *exchange, struct subscription_options *options);
/* Reads after_seq, which may be "12@EPOCH", and epoch. *given: the query has after_seq; *has_epoch:
 * it has epoch. STATUS_BAD_SUBSCRIPTION for two of them. */
MUST_CHECK enum status query_position(const struct exchange *exchange, struct position *position,
                                      bool *given, bool *has_epoch);
/* Whether the query says replay=all. STATUS_MISSING_SCOPE for a principal that may not ask for it,
 * STATUS_REPLAY_ALL_UNAVAILABLE for a topic that is not served from the log. */
MUST_CHECK enum status query_replay(struct exchange *exchange, bool *replay_all);
/* Whether the query says fold=true; STATUS_INVALID_REQUEST for anything but true and false. */
MUST_CHECK enum status query_fold(const struct exchange *exchange, bool *folds);
/* Reads after_seq and epoch, or from=head. STATUS_INVALID_CURSOR for any other combination. A query
 * without them asks for a bootstrap. Reads replay=all too. */
MUST_CHECK enum status query_topic_cursor(struct exchange *exchange,
                                          struct subscription_options *options);
/* The id of the last event that the client of an event stream has: its Last-Event-ID field, or the
 * query parameter lastEventId of a client that cannot set fields. Empty if there is none.
 * STATUS_INVALID_CURSOR for a text longer than any id; STATUS_BAD_SUBSCRIPTION for two different
 * ones. The field takes precedence over the parameter. */
MUST_CHECK enum status query_last_event_id(const struct exchange *exchange, struct buffer *memory,
                                           struct slice *id);
/* Whether the query says from=head; STATUS_INVALID_CURSOR for another from. */
MUST_CHECK enum status query_from_head(const struct exchange *exchange, bool *from_head);

#endif
