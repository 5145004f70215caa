/* The position of a subscriber of the whole log, as an event cursor, as its clients know it.
 * Belongs to the session's loop. A value in the dialect's state; allocates nothing.
 * Errors: the buffer's own.
 * The position is never later than the log's last event: the store refuses such a cursor. */
#ifndef DIALECT_LOG_POSITION_H
#define DIALECT_LOG_POSITION_H

#include "delivery/session/session.h"
#include "http/query_cursor.h"

struct log_position {
    struct query_cursor asked; /* the position before the first event */
};

/* Writes the position that was asked for to the options of a subscription. */
void log_position_ask(const struct log_position *position, struct subscription_options *options);

/* The session's position; given is false before the first event of a log read from its start. */
struct query_cursor log_position_now(const struct log_position *position,
                                     const struct session *session);
/* {"lag","strikes","max_strikes","resume_after","reconnect_after_ms"} */
MUST_CHECK enum status log_position_slow(const struct log_position *position,
                                         const struct session *session, struct buffer *out);
/* "resume_after CURSOR", for the reason of a close; empty where there is none. */
void log_position_reason(const struct log_position *position, const struct session *session,
                         char text[124]);

#endif
