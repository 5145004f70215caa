/* One clock reading per turn: clock_tick reads, everybody else asks what was read.
 * Owned by one thread, like the loop it serves; there is one clock a thread.
 * Allocates nothing. Cannot fail: a clock holds a reading from its init on.
 * Within a turn time stands still, so that two decisions of one turn cannot disagree.
 * Monotonic time never goes back, whatever the source says; wall time may step either way. */
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
/* Call once, before threads start: every system clock's wall time is so much ahead. For tests that
 * cannot wait for days to pass. */
void clock_move_wall_ms(uint64_t ahead_ms);
/* Time from elsewhere: tests and simulations. Without read, the system's. */
void clock_init_source(struct clock *clock, void *user, clock_read_cb *read);
void clock_tick(struct clock *clock);
/* The system's clocks this moment: to measure how long something took, never to decide by. */
struct clock_reading clock_now(void);

static inline uint64_t clock_wall_ms(const struct clock *clock) {
    return clock->reading.wall_ms;
}

static inline uint64_t clock_mono_ns(const struct clock *clock) {
    return clock->reading.mono_ns;
}

static inline uint64_t clock_mono_ms(const struct clock *clock) {
    return clock->reading.mono_ns / CLOCK_NS_PER_MS;
}

/* Time that moves only when told to: set or advance it, then tick the clock it feeds. */
struct clock_manual {
    struct clock_reading reading;
};

/* A clock_read_cb; its user is the struct clock_manual. */
struct clock_reading clock_manual_read(void *user);
/* Moves both times on. */
void clock_manual_advance_ms(struct clock_manual *manual, uint64_t delta_ms);

#endif
