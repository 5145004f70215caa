/* What happens to a session from outside: its connection, its deadlines, the end of the server.
 * Thread: the session's loop; the connection calls all of it.
 * Memory: the session is made here; the connection returns it with session_disconnected and
 * session_free (session_close.h).
 * Errors: session_new answers NULL without memory; the rest cannot fail.
 * Invariant: every event may end in session_disconnected, when the connection closes inside the
 * call.
 */
#ifndef DELIVERY_SESSION_SESSION_EVENTS_H
#define DELIVERY_SESSION_SESSION_EVENTS_H

#include "delivery/session/session.h"
#include "delivery/session/session_close.h"

struct session_options {
    struct delivery_loop *delivery;
    struct outlet *outlet;
    struct slice name; /* names the connection; at most SESSION_NAME_BYTES_MAX */
    const struct dialect *dialect;
    const struct principal *principal; /* NULL: the peer authenticates later */
    void *dialect_state;               /* taken over, also by a session that cannot be made */
    struct slice head;                 /* the head of the response, which is written first */
};

struct session *session_new(const struct session_options *options);
/* Bytes of the peer. */
void session_received(struct session *session, struct slice bytes);
/* The push that blocked the outlet is written. */
void session_writable(struct session *session);
/* The deadline of the connection has passed, which was set through the outlet. */
void session_expired(struct session *session, enum deadline_kind kind);
/* For assembly: what happens when deadlines of sessions pass. After delivery_loop_open. */
void sessions_define_deadlines(struct delivery_loop *delivery);
/* The server ends: sends the peer the time to reconnect. */
void session_drain(struct session *session);

#endif
