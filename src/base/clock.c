#include "base/clock.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

static uint64_t read_ns(clockid_t id) {
    struct timespec now;
    int failed = clock_gettime(id, &now);
    assert(!failed);
    /* A clock before 1970 reads as 0 instead of wrapping to a date far ahead. */
    if (now.tv_sec < 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000u * CLOCK_NS_PER_MS + (uint64_t)now.tv_nsec;
}

static uint64_t wall_ahead_ms;

static struct clock_reading system_read(void *user) {
    (void)user;
    return (struct clock_reading){read_ns(CLOCK_REALTIME) / CLOCK_NS_PER_MS + wall_ahead_ms,
                                  read_ns(CLOCK_MONOTONIC)};
}

void clock_move_wall_ms(uint64_t ahead_ms) {
    wall_ahead_ms = ahead_ms;
}

struct clock_reading clock_now(void) {
    return system_read(NULL);
}

uint64_t clock_mono_now_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ms(void) {
    return read_ns(CLOCK_BOOTTIME) / CLOCK_NS_PER_MS;
}

void clock_init(struct clock *clock) {
    clock_init_source(clock, NULL, NULL);
}

void clock_init_source(struct clock *clock, void *user, clock_read_cb *read) {
    *clock = (struct clock){.user = user, .read = read ? read : system_read};
    clock_tick(clock);
}

void clock_tick(struct clock *clock) {
    struct clock_reading reading = clock->read(clock->user);
    if (reading.mono_ns < clock->reading.mono_ns)
        reading.mono_ns = clock->reading.mono_ns;
    clock->reading = reading;
}

struct clock_reading clock_manual_read(void *user) {
    const struct clock_manual *manual = user;
    return (struct clock_reading){
        .wall_ms = __atomic_load_n(&manual->reading.wall_ms, __ATOMIC_RELAXED),
        .mono_ns = __atomic_load_n(&manual->reading.mono_ns, __ATOMIC_RELAXED),
    };
}

void clock_manual_advance_ms(struct clock_manual *manual, uint64_t delta_ms) {
    __atomic_fetch_add(&manual->reading.wall_ms, delta_ms, __ATOMIC_RELAXED);
    __atomic_fetch_add(&manual->reading.mono_ns, delta_ms * CLOCK_NS_PER_MS, __ATOMIC_RELAXED);
}

/* ---- the step guard --------------------------------------------------------------------- */

struct step step_guard_read(struct step_guard *guard, struct clock_reading reading) {
    uint64_t mono_ms = reading.mono_ns / CLOCK_NS_PER_MS;
    uint64_t wall_ms = reading.wall_ms;
    uint64_t expected_ms = guard->judged_ms + (mono_ms - guard->mono_ms);
    if (!guard->is_set)
        expected_ms = wall_ms;
    guard->is_set = true;
    guard->mono_ms = mono_ms;
    struct step step = {STEP_NONE, wall_ms, 0};
    if (wall_ms > expected_ms + STEP_GUARD_TOLERANCE_MS) {
        step.now_ms = expected_ms;
        step.step_ms = wall_ms - expected_ms;
        if (!guard->is_holding) {
            guard->is_holding = true;
            guard->held_since_mono_ms = mono_ms;
            step.event = STEP_FORWARD;
        } else if (mono_ms - guard->held_since_mono_ms >= STEP_GUARD_HOLD_MS) {
            guard->is_holding = false;
            step.event = STEP_BELIEVED;
            step.now_ms = wall_ms;
        }
    } else {
        if (wall_ms + STEP_GUARD_TOLERANCE_MS < expected_ms) {
            step.event = STEP_BACK;
            step.step_ms = expected_ms - wall_ms;
        } else if (guard->is_holding) {
            step.event = STEP_RETURNED;
        }
        guard->is_holding = false;
    }
    guard->judged_ms = step.now_ms;
    assert(step.now_ms <= wall_ms);
    return step;
}

const char *step_event_name(enum step_event event) {
    static const char *const names[STEP_EVENT_COUNT] = {
        [STEP_NONE] = "none",         [STEP_BACK] = "back",         [STEP_FORWARD] = "forward",
        [STEP_BELIEVED] = "believed", [STEP_RETURNED] = "returned",
    };
    assert((unsigned)event < STEP_EVENT_COUNT);
    return names[event];
}
