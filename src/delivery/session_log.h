/* What is said of a session, to the counters, the log and `khala why`.
 * Belongs to the session's loop.
 * Allocates nothing.
 * Cannot fail.
 * Each call is one decision, made by the caller: nothing here is sent to the peer. */
#ifndef DELIVERY_SESSION_LOG_H
#define DELIVERY_SESSION_LOG_H

#include "auth/principal.h"
#include "delivery/telemetry.h"

struct session;
struct subscriber;

/* Whose it is and which topic, where there is a subscriber. */
struct cause session_cause(const struct session *session, const struct subscriber *subscriber,
                           struct cause_names *names);
/* The server is about to end it. */
void session_log_end(struct session *session, enum status status, unsigned close_code);
/* It asked for what it may not have, or its client is not one this server speaks with; topic data
 * NULL: none. */
void session_log_refused(struct session *session, struct slice topic, enum status status);
/* A subscriber's cursor is stale. */
void session_log_stale(const struct subscriber *subscriber);
/* An error message is on its way to the peer. */
void session_log_error(const struct session *session, enum status status);

#endif
