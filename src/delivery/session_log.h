/* What is said of a link, to the counters, the log and `khala why`.
 * Belongs to the link's loop.
 * Allocates nothing.
 * Cannot fail.
 * Each call is one decision, made by the caller: nothing here is sent to the peer. */
#ifndef DELIVERY_SESSION_LOG_H
#define DELIVERY_SESSION_LOG_H

#include "auth/principal.h"
#include "delivery/telemetry.h"

struct link;
struct link_reader;

/* Whose it is and which topic, where there is a reader. */
struct cause link_cause(const struct link *link, const struct link_reader *reader,
                        struct cause_names *names);
/* The server is about to end it. */
void link_tell_why(struct link *link, enum status status, unsigned close_code);
/* It asked for what it may not have, or its client is not one this server speaks with; topic data
 * NULL: none. */
void link_tell_refused(struct link *link, struct slice topic, enum status status);
/* A reader's cursor is stale. */
void link_tell_stale(const struct link_reader *reader);
/* An error message is on its way to the peer. */
void link_tell_error(const struct link *link, enum status status);

#endif
