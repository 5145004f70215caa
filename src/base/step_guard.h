/* Guards expiry against jumps of the wall clock.
 * Owned by one thread. Allocates nothing. Cannot fail.
 * A step back is followed at once: frames then stay longer. A step forward is accepted only after
 * it has lasted for STEP_GUARD_HOLD_MS by the monotonic clock, so that a wrong date does not expire
 * frames that clients still read.
 * The guarded time is never ahead of the wall clock. */
#ifndef BASE_STEP_GUARD_H
#define BASE_STEP_GUARD_H

#include <stdbool.h>

#include "base/clock.h"

/* Smaller steps come from slewing and from a busy machine. */
#define STEP_GUARD_TOLERANCE_MS 60000
#define STEP_GUARD_HOLD_MS      3600000

enum step_event {
    STEP_NONE,
    STEP_BACK,
    STEP_FORWARD,  /* the guard holds from now on */
    STEP_BELIEVED, /* the hold is over, the step is accepted */
    STEP_RETURNED, /* the clock went back during the hold */
    STEP_EVENT_COUNT,
};

struct step_guard {
    bool is_set;
    bool is_holding;
    uint64_t judged_ms;
    uint64_t mono_ms;
    uint64_t held_since_mono_ms;
};

struct step {
    enum step_event event;
    uint64_t now_ms;  /* the guarded time */
    uint64_t step_ms; /* how far the wall clock is from where it should be */
};

struct step step_guard_read(struct step_guard *guard, struct clock_reading reading);
const char *step_event_name(enum step_event event);

#endif
