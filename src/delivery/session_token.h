/* The token behind a link: its end, a fresh one in its place, and what happens at its end.
 * Belongs to the link's loop. The link holds a reference to the principal.
 * STATUS_OWNER_MISMATCH for a token of another principal; STATUS_TOKEN_EXPIRED for one at its end;
 * STATUS_FORBIDDEN_TOPIC for one that may read less than what is subscribed to.
 * Nothing is delivered after the end, neither from our buffers nor from the kernel's. */
#ifndef DELIVERY_SESSION_TOKEN_H
#define DELIVERY_SESSION_TOKEN_H

#include "delivery/session.h"

/* For a link whose peer says only now who it is: takes over the reference. */
void link_admitted(struct link *link, const struct principal *principal);
/* A new token in place of the link's: takes a reference of its own. */
MUST_CHECK enum status link_refresh(struct link *link, const struct principal *principal);
/* Ends it for the status at once. The dialect says so, unless the peer has not been sent yet what
 * came before: that it never gets, so the connection is reset. */
void link_cut(struct link *link, enum status status);

/* For link.c: sets a deadline for the end where it is near; called with each heartbeat. */
void link_watch_expiry(struct link *link);
/* That deadline has passed. */
void link_expiry_near(struct link *link);
/* Whatever the deadline does, asked before anything is said. */
bool link_is_expired(const struct link *link);
/* True: the token has ended, and now the link has too. */
bool link_ends_with_token(struct link *link);

#endif
