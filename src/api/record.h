/* The record of what operators do: operator.* events of the audit log, without an owner. Only
 * operator keys and tokens with runtime.read_all see them.
 * Thread: the exchange's loop.
 * Memory: a record holds the exchange and its events until next has run.
 * Errors: the status of the append is answered, and next does not run.
 * Invariant: an act is recorded before it happens, so that none is missing in the log; one that
 * then fails is recorded too. No secret and no token is ever part of a record. */
#ifndef API_RECORD_H
#define API_RECORD_H

#include "http/exchange.h"
#include "wire/object_writer.h"

struct record;

/* For at most so many events. NULL: the exchange was answered with an error. */
struct record *record_new(struct exchange *exchange, size_t event_max);
/* Before its events: they leave the last of the disk reserve to records of other acts. For acts
 * that a backend does all the time. */
void record_leave_last(struct record *record);
/* An event: its first member, by, names the key and its role. The others follow, sorted by name. */
struct object_writer record_begin(struct record *record);
void record_end(struct record *record, struct object_writer *event, const char *type);
/* Nothing is recorded, because the act was refused. */
void record_free(struct record *record);
/* Appends the events, then runs next. */
void record_post(struct record *record, void (*next)(struct exchange *exchange));
/* For an act that must happen even if there is no writer and the client has gone: a
 * node that is not the writer leaves the events to it, and next runs in any case. An event that is
 * lost is logged. next gets an exchange that may have no connection. */
void record_post_anyway(struct record *record, void (*next)(struct exchange *exchange));

#endif
