/* One clock reading per turn: clock_tick reads the clocks, all other functions return that reading.
 * Owned by one thread, like the loop it serves; each thread has one clock.
 * Allocates nothing. Cannot fail: a clock holds a reading from its init on.
 * Time does not change within a turn, so that two decisions of one turn cannot disagree.
 * Monotonic time never goes back, even if its source does; wall time may step either way. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

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

#endif
