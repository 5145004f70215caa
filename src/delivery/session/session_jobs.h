/* The jobs of a session: its work on the store pool and on the writer, one at a time.
 * Thread: the session's loop.
 * Memory: openings are taken over; lookups are the dialect's and come back with done or free.
 * Errors: a job that cannot be run comes back with its status, in a later turn.
 * Invariant: while an opening or a lookup waits, the messages of the peer wait too. */
#ifndef DELIVERY_SESSION_SESSION_JOBS_H
#define DELIVERY_SESSION_SESSION_JOBS_H

#include "delivery/session/session.h"

/* Compares the positions of the subscribers with the store; the dialect's opened follows. Takes
 * over the opening. Not while session_is_opening. */
void session_open(struct session *session, struct session_opening *opening);
/* The same for one subscriber. */
MUST_CHECK enum status session_open_one(struct session *session, struct subscriber *subscriber);
/* Has the lookup run; its done follows. Not while session_is_opening. */
void session_look_up(struct session *session, struct session_lookup *lookup);
/* Begins the next job, if there is one and none is under way. */
void session_next_job(struct session *session);
/* At the end of a turn: the openings and lookups that began in it go to the store pool. Those of
 * one principal go together, and share what they read. */
void session_post_jobs(struct delivery_loop *delivery);
/* After frames: reads the ones behind them meanwhile, if the hub asks for it and no job is under
 * way. */
void session_read_ahead(struct subscriber *subscriber, const struct delivery_batch *batch);

#endif
