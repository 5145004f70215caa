/* Appends the events of a verb with libkhala: batches, ids, and repeated attempts after a lost
 * connection.
 * Thread: main; the answers arrive on the client's thread, one at a time, while the sender's lock
 * is held. event_sender_lock keeps them off the output of the main thread.
 * Memory: owns its client. The remote and the callbacks' user outlive it.
 * Errors: a server that was never reached, and a refusal of a whole request, end it at once; a lost
 * connection ends it after half a minute without an answer. Errors are printed at the end.
 * Invariant: each event is stored once, however often it was sent. */
#ifndef CLI_EVENT_SENDER_H
#define CLI_EVENT_SENDER_H

#include <khala/khala.h>

#include "cli/remote.h"

#define EVENT_SENDER_PATH "/internal/v1/events:batch"

struct event_sender;

struct event_sender_options {
    bool is_single; /* one event: every answer of the server is final */
    void *user;
    void (*answered)(void *user, uint64_t index, const struct khala_answer *answer);
};

/* The remote was opened with remote_options. Prints its error and returns an exit code. */
MUST_CHECK int event_sender_open(struct event_sender **sender, const struct remote *remote,
                                 const struct remote_options *remote_options,
                                 const struct event_sender_options *options);
/* NULL is allowed. */
void event_sender_close(struct event_sender *sender);
/* Waits for room. KHALA_INVALID: the text is not an event. KHALA_CLOSED: the sender has ended. */
MUST_CHECK enum khala_result event_sender_add(struct event_sender *sender, struct slice event,
                                              uint64_t index);
/* Can be read when the sender has ended. */
int event_sender_ended_fd(const struct event_sender *sender);
void event_sender_lock(struct event_sender *sender);
void event_sender_unlock(struct event_sender *sender);
/* Waits for every answer. Prints the error that ended it and returns the exit code. */
MUST_CHECK int event_sender_finish(struct event_sender *sender);

#endif
