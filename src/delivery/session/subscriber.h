/* The subscribers of a session: their states and their lives.
 * Belongs to the session's loop.
 * Memory: one block each, freed by subscriber_drop, or when its read is back.
 * STATUS_OUT_OF_MEMORY for a subscriber that cannot be made.
 * A subscriber that has something to send has a turn in the scheduler. */
#ifndef DELIVERY_SESSION_SUBSCRIBER_H
#define DELIVERY_SESSION_SUBSCRIBER_H

#include "delivery/session/session.h"

/* Makes a subscriber, which is not started yet. principal, watch, topic and policy of the options
 * are filled in. */
MUST_CHECK enum status subscriber_new(struct session *session, struct slice topic,
                                      const struct subscription_options *options,
                                      struct subscriber **subscriber);
void subscriber_drop(struct subscriber *subscriber);
/* Drops all subscribers of the session. */
void subscriber_drop_all(struct session *session);
/* Subscribers were dropped: they do not count for the principal any more. */
void subscribers_dropped(struct session *session);
/* From now on it is sent frames. */
void subscriber_start(struct subscriber *subscriber);
/* Stale: starts again with a bootstrap. */
void subscriber_restart(struct subscriber *subscriber);
/* There may be something to send: gives it a turn. */
void subscriber_ready(struct subscriber *subscriber);
/* Its read, part or opening is back. status: whether it was run. May free the subscriber. */
void subscriber_read_back(struct subscriber *subscriber, enum status status);
/* The frames read ahead are back. May free the subscriber. */
void subscriber_ahead_back(struct subscriber *subscriber);

/* Started, and not leaving. */
bool subscriber_is_started(const struct subscriber *subscriber);
/* False before the whole snapshot that it begins with was sent. */
bool subscriber_has_position(const struct subscriber *subscriber);
/* The client was sent every frame that it may see up to here. */
uint64_t subscriber_position(const struct subscriber *subscriber);
/* A read or part is asked for or under way. */
bool subscriber_is_reading(const struct subscriber *subscriber);
/* A read or part is asked for, and waits for the session's job. */
bool subscriber_wants_job(const struct subscriber *subscriber);
/* One of the legal edges; any other asserts. */
void subscriber_set_state(struct subscriber *subscriber, enum subscriber_state state);

#endif
