/* Where a subscriber of the whole log is, as an event cursor, which is what its clients know.
 * Belongs to the session's loop. A value in the dialect's state; allocates nothing.
 * Errors: the buffer's own.
 * Behind a cursor of the future comes only what is greater than it, as in lists of the log. */
#ifndef DIALECT_LOG_POSITION_H
#define DIALECT_LOG_POSITION_H

#include "delivery/session/session.h"
#include "http/query_cursor.h"

/* Before anything was sent the subscriber stands where it was asked to begin. */
struct log_position {
    struct query_cursor asked;
    bool is_future; /* when it was asked for */
};

void log_position_set(struct log_position *position, const struct event_cursor *cursor,
                      uint64_t now_ms);
/* Behind everything there is by the server's clock. */
void log_position_set_head(struct log_position *position, uint64_t now_ms);
/* Whether the event is behind it. */
bool log_position_is_before(const struct log_position *position,
                            const struct frame_content *content);

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
