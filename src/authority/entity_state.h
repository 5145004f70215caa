/* The states of runs and of workers, and what moves them from one to the next.
 * Thread: any.
 * Errors: STATUS_INVALID_TRANSITION for an event that the state of a run does not allow. For
 * workers the answer is yes or no.
 * Invariant: three types of event change the state of a run, and succeeded, failed and canceled
 * are final. A worker leaves stopped and failed by a new registration or a status. Setting the
 * present state again is always allowed. */
#ifndef AUTHORITY_ENTITY_STATE_H
#define AUTHORITY_ENTITY_STATE_H

#include "base/slice.h"
#include "spec/codes.h"
#include "store/store.h"

enum run_state {
    RUN_CREATED,
    RUN_RUNNING,
    RUN_CANCELING,
    RUN_CANCELED,
    RUN_SUCCEEDED,
    RUN_FAILED,
    RUN_STATE_COUNT,
};

#define RUN_EVENT_STARTED          "run.started"
#define RUN_EVENT_CANCEL_REQUESTED "run.cancel_requested"
#define RUN_EVENT_FINISHED         "run.finished"

/* Names that producers give to the end of a run. Such events are stored, and change no state. */
#define RUN_HINT_COUNT 10
/* If the event has such a type: a sentence that says what to append to end a run, and the number of
 * the type in *index. Otherwise NULL. */
const char *run_event_hint(struct slice event_type, unsigned *index);

const char *run_state_name(enum run_state state);
/* False when it is no state's name. */
bool run_state_parse(struct slice name, enum run_state *state);
bool run_state_is_final(enum run_state state);

/* The state after an event of this type; outcome is the final state that run.finished names. */
MUST_CHECK enum status run_state_next(enum run_state state, struct slice event_type,
                                      enum run_state outcome, enum run_state *next);

/* ---- workers ---- */

enum worker_state {
    WORKER_STARTING,
    WORKER_RUNNING,
    WORKER_STOPPING,
    WORKER_STOPPED,
    WORKER_FAILED,
    WORKER_STATE_COUNT,
};

#define WORKER_EVENT_REGISTERED     "worker.registered"
#define WORKER_EVENT_HEARTBEAT      "worker.heartbeat"
#define WORKER_EVENT_STATUS_CHANGED "worker.status_changed"
#define WORKER_HEARTBEAT_STALE_MS   120000u

const char *worker_state_name(enum worker_state state);
/* False when it is no state's name. */
bool worker_state_parse(struct slice name, enum worker_state *state);
bool worker_state_allows(enum worker_state from, enum worker_state to);
/* stopped or failed. */
bool worker_state_is_down(enum worker_state state);
/* fresh, stale, missing (no heartbeat yet), stopped or failed. */
const char *worker_liveness(const struct store_entity *worker, uint64_t now_ms);

#endif
