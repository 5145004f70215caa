/* One clock reading per turn: clock_tick reads the clocks, all other functions return that reading.
 * A step guard protects expiry against jumps of the wall clock.
 * Thread: the owner's; each thread has one clock.
 * Invariant: time does not change within a turn. Monotonic time never goes back, even if its source
 * does; wall time may step either way. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_NS_PER_MS 1000000u

struct clock_reading {
    uint64_t wall_ms; /* since 1970 */
    uint64_t mono_ns; /* since some fixed moment */
};

typedef struct clock_reading clock_read_cb(void *user);

struct clock {
    struct clock_reading reading;
    void *user;
    clock_read_cb *read;
};

/* The system's clocks. */
void clock_init(struct clock *clock);
/* Moves the wall time of every system clock ahead. Call once, before threads start. For tests that
 * cannot wait for days to pass. */
void clock_move_wall_ms(uint64_t ahead_ms);
/* A clock with another source, for tests and simulations. read NULL: the system's clocks. */
void clock_init_source(struct clock *clock, void *user, clock_read_cb *read);
void clock_tick(struct clock *clock);
/* The system's clocks at this moment: for measuring durations, not for decisions. */
struct clock_reading clock_now(void);

/* The same without the wall clock, for a delivery. */
uint64_t clock_mono_now_ns(void);

static inline uint64_t clock_mono_now_ms(void) {
    return clock_mono_now_ns() / CLOCK_NS_PER_MS;
}

/* Since the machine started, with the time for which it was suspended. */
uint64_t clock_boot_ms(void);

static inline uint64_t clock_wall_ms(const struct clock *clock) {
    return clock->reading.wall_ms;
}

static inline uint64_t clock_mono_ns(const struct clock *clock) {
    return clock->reading.mono_ns;
}

static inline uint64_t clock_mono_ms(const struct clock *clock) {
    return clock->reading.mono_ns / CLOCK_NS_PER_MS;
}

/* Time for tests, which the caller moves: set or advance it, then tick the clock that reads it.
 * Another thread may read it while it advances. */
struct clock_manual {
    struct clock_reading reading;
};

/* A clock_read_cb; its user is the struct clock_manual. */
struct clock_reading clock_manual_read(void *user);
/* Moves both times on. */
void clock_manual_advance_ms(struct clock_manual *manual, uint64_t delta_ms);

/* ---- the step guard --------------------------------------------------------------------- */

/* A step back is followed at once: frames then stay longer. A step forward is accepted only after
 * it has lasted for STEP_GUARD_HOLD_MS by the monotonic clock, so that a wrong date does not expire
 * frames that clients still read. The guarded time is never ahead of the wall clock. */

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
