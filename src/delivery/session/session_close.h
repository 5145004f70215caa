/* How a session ends: with its last messages, or without them when its connection is gone.
 * Belongs to the session's loop.
 * Memory: session_free returns it, or the job that is still under way does.
 * Cannot fail: a last message that cannot be written closes the connection.
 * Nothing but the last messages is sent after session_close. */
#ifndef DELIVERY_SESSION_SESSION_CLOSE_H
#define DELIVERY_SESSION_SESSION_CLOSE_H

#include "delivery/session/session.h"

/* The last messages are in the replies: sends them and ends. */
void session_close(struct session *session);
/* The same; status is that of writing the last messages. */
void session_close_with(struct session *session, enum status status);
/* Ends the session for that reason: the dialect writes it, with its close code. */
void session_end(struct session *session, enum status reason);
/* The connection closes: nothing of it may be used any more. */
void session_disconnected(struct session *session);
/* The connection is gone. */
void session_free(struct session *session);

#endif
