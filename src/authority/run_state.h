/* The states of a run and what moves it from one to the next.
 * Any thread; values in, values out; allocates nothing.
 * STATUS_INVALID_TRANSITION for an event that a state does not allow.
 * Three types of event change the state, all others never do; succeeded, failed and canceled are
 * final. */
#ifndef AUTHORITY_RUN_STATE_H
#define AUTHORITY_RUN_STATE_H

#include "base/slice.h"
#include "spec/codes.h"

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
/* What to append to end a run, as a sentence, where the event has such a type; else NULL. index
 * becomes the number of the type. */
const char *run_event_hint(struct slice event_type, unsigned *index);

const char *run_state_name(enum run_state state);
/* False when it is no state's name. */
bool run_state_parse(struct slice name, enum run_state *state);
bool run_state_is_final(enum run_state state);

/* The state after an event of this type; outcome is the final state that run.finished names. */
MUST_CHECK enum status run_state_next(enum run_state state, struct slice event_type,
                                      enum run_state outcome, enum run_state *next);

#endif
