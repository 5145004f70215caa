/* The position of a subscriber of the whole log, as an event cursor, as its clients know it.
 * Belongs to the session's loop. A value in the dialect's state; allocates nothing.
 * Errors: the buffer's own.
 * After a cursor of the future, only events with a greater cursor follow, as in lists of the log.
 */
#ifndef DIALECT_LOG_POSITION_H
#define DIALECT_LOG_POSITION_H

#include "delivery/session/session.h"
#include "http/query_cursor.h"

/* Before the first event, the position is the cursor that the client asked for. */
struct log_position {
    struct query_cursor asked;
    bool is_future; /* when it was asked for */
};

void log_position_set(struct log_position *position, const struct event_cursor *cursor,
                      uint64_t now_ms);
/* The position after all events up to now, by the server's clock. */
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
