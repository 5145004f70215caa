/* The token behind a session: its end, and a fresh token in its place.
 * Belongs to the session's loop.
 * Memory: the session holds a reference to the principal.
 * STATUS_OWNER_MISMATCH for a token of another principal; STATUS_TOKEN_EXPIRED for one at its end;
 * STATUS_FORBIDDEN_TOPIC for one that may not read everything that is subscribed to.
 * Nothing is delivered after the end of the token, neither from our buffers nor from the kernel's.
 */
#ifndef DELIVERY_SESSION_SESSION_TOKEN_H
#define DELIVERY_SESSION_SESSION_TOKEN_H

#include "delivery/session/session.h"

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
