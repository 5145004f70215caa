/* The token behind a session: its end, a fresh one in its place, and what happens at its end.
 * Belongs to the session's loop. The session holds a reference to the principal.
 * STATUS_OWNER_MISMATCH for a token of another principal; STATUS_TOKEN_EXPIRED for one at its end;
 * STATUS_FORBIDDEN_TOPIC for one that may read less than what is subscribed to.
 * Nothing is delivered after the end, neither from our buffers nor from the kernel's. */
#ifndef DELIVERY_SESSION_TOKEN_H
#define DELIVERY_SESSION_TOKEN_H

#include "delivery/session.h"

/* For a session whose peer says only now who it is: takes over the reference. */
void session_admit(struct session *session, const struct principal *principal);
/* A new token in place of the session's: takes a reference of its own. */
MUST_CHECK enum status session_refresh(struct session *session, const struct principal *principal);
/* Ends it for the status at once. The dialect says so, unless the peer has not been sent yet what
 * came before: that it never gets, so the connection is reset. */
void session_reset(struct session *session, enum status status);

/* For session.c: sets a deadline for the end where it is near; called with each heartbeat. */
void session_arm_expiry(struct session *session);
/* That deadline has passed. */
void session_expiry_near(struct session *session);
/* Whatever the deadline does, asked before anything is said. */
bool session_is_expired(const struct session *session);
/* True: the token has ended, and now the session has too. */
bool session_ends_with_token(struct session *session);

#endif
