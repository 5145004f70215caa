/* Which time frames are judged by: the wall clock's, unless it has just jumped ahead.
 * Owned by one thread. Allocates nothing. Cannot fail.
 * A clock that steps back is followed at once: frames then stay longer. One that steps forward is
 * believed only after it has said so for a while by the monotonic clock, so that a wrong date does
 * not throw away what everybody still reads.
 * The time judged by is never ahead of the wall clock. */
#ifndef BASE_STEP_GUARD_H
#define BASE_STEP_GUARD_H

#include <stdbool.h>

#include "base/clock.h"

/* Less is what slewing and a busy machine do. */
#define STEP_GUARD_TOLERANCE_MS 60000
#define STEP_GUARD_HOLD_MS      3600000

enum step_event {
    STEP_NONE,
    STEP_BACK,
    STEP_FORWARD,  /* held from now on */
    STEP_BELIEVED, /* the hold is over */
    STEP_RETURNED, /* the clock went back to where it was before the hold was over */
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
    uint64_t now_ms;  /* to judge by */
    uint64_t step_ms; /* how far the wall clock is from where it should be */
};

struct step step_guard_read(struct step_guard *guard, struct clock_reading reading);
const char *step_event_name(enum step_event event);

#endif
