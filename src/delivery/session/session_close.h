/* How a session ends: with its last messages, at the end of its token, or without messages when its
 * connection is gone.
 * Thread: the session's loop.
 * Memory: session_free returns the session's, or the job that is still under way does. The session
 * holds a reference to its principal.
 * Errors: a last message that cannot be written closes the connection. A fresh token is refused
 * with STATUS_OWNER_MISMATCH for another principal, STATUS_TOKEN_EXPIRED at its end, and
 * STATUS_FORBIDDEN_TOPIC if it may not read everything that is subscribed to.
 * Invariant: nothing but the last messages is sent after session_close. Nothing is delivered after
 * the end of the token, neither from our buffers nor from the kernel's. */
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

/* ---- the token ---- */

/* The peer of a session without a principal has authenticated: takes over the reference.
 * STATUS_TOO_MANY_CONNECTIONS: the caller ends the session. */
MUST_CHECK enum status session_admit(struct session *session, const struct principal *principal);
/* A new token in place of the session's: takes a reference of its own. */
MUST_CHECK enum status session_refresh(struct session *session, const struct principal *principal);
/* Ends the session at once. It sends the peer the reason, unless frames before that were not sent
 * yet: the peer must not get them any more, so the connection is reset. */
void session_reset(struct session *session, enum status reason);

/* Sets a deadline for the end of the token where it is near; called with each heartbeat. */
void session_arm_expiry(struct session *session);
/* That deadline has passed. */
void session_expiry_near(struct session *session);
/* Whether the token has ended; asked before anything is sent, whenever the deadline passes. */
bool session_is_expired(const struct session *session);
/* True: the token has ended, and now the session has ended too. */
bool session_ends_with_token(struct session *session);

#endif
