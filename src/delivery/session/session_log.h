/* What is counted, logged and kept for `khala why` of a session.
 * Belongs to the session's loop.
 * Allocates nothing.
 * Cannot fail.
 * Each call is one decision of the caller; nothing here is sent to the peer. */
#ifndef DELIVERY_SESSION_SESSION_LOG_H
#define DELIVERY_SESSION_SESSION_LOG_H

#include "delivery/session/session.h"
#include "delivery/telemetry.h"

/* Counts one of a metric that has the dialect as its label. */
void session_count(const struct session *session, enum metric metric);
/* The session as a cause; with its topic, if there is a subscriber. */
struct cause session_cause(const struct session *session, const struct subscriber *subscriber,
                           struct cause_names *names);
/* The server is about to end the session. */
void session_log_end(struct session *session, enum status status, unsigned close_code);
/* The client may not have what it asked for; topic data NULL: none. */
void session_log_refused(struct session *session, struct slice topic, enum status status);
/* The versions that the client stated are not served. */
void session_log_incompatible(struct session *session, const struct compatibility_claim *claim,
                              enum status status);
/* A subscriber's cursor is stale. */
void session_log_stale(const struct subscriber *subscriber);
/* An error message is about to be sent. */
void session_log_error(const struct session *session, enum status status);

#endif
