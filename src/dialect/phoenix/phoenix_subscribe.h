/* Subscribing and unsubscribing on a Phoenix channel.
 * Thread: the session's loop.
 * Memory: a request lives until its reply is written or its session is gone.
 * Errors: a topic that cannot be subscribed to is refused in the reply; a status is of the reply.
 * Invariant: all of a subscribe's topics begin, or none of them. */
#ifndef DIALECT_PHOENIX_PHOENIX_SUBSCRIBE_H
#define DIALECT_PHOENIX_PHOENIX_SUBSCRIBE_H

#include "delivery/session/session.h"
#include "wire/phoenix.h"

MUST_CHECK enum status phoenix_subscribe(struct session *session,
                                         const struct phoenix_message *message,
                                         const struct phoenix_address *to);
MUST_CHECK enum status phoenix_unsubscribe(struct session *session,
                                           const struct phoenix_message *message,
                                           const struct phoenix_address *to);

/* For the dialect's table: openings that a subscribe makes. */
void phoenix_opened(struct session *session, struct session_opening *opening);
void phoenix_opening_gone(struct session_opening *opening);

#endif
