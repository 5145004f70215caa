#include "base/step_guard.h"

#include <assert.h>

static struct step forward(struct step_guard *guard, uint64_t wall_ms, uint64_t expected_ms) {
    struct step step = {STEP_NONE, expected_ms, wall_ms - expected_ms};
    if (!guard->is_holding) {
        guard->is_holding = true;
        guard->held_since_mono_ms = guard->mono_ms;
        step.event = STEP_FORWARD;
    } else if (guard->mono_ms - guard->held_since_mono_ms >= STEP_GUARD_HOLD_MS) {
        guard->is_holding = false;
        step.event = STEP_BELIEVED;
        step.now_ms = wall_ms;
    }
    return step;
}

static struct step follow(struct step_guard *guard, uint64_t wall_ms, uint64_t expected_ms) {
    struct step step = {STEP_NONE, wall_ms, 0};
    if (wall_ms + STEP_GUARD_TOLERANCE_MS < expected_ms) {
        step.event = STEP_BACK;
        step.step_ms = expected_ms - wall_ms;
    } else if (guard->is_holding) {
        step.event = STEP_RETURNED;
    }
    guard->is_holding = false;
    return step;
}

struct step step_guard_read(struct step_guard *guard, struct clock_reading reading) {
    uint64_t mono_ms = reading.mono_ns / CLOCK_NS_PER_MS;
    uint64_t expected_ms = guard->judged_ms + (mono_ms - guard->mono_ms);
    if (!guard->is_set)
        expected_ms = reading.wall_ms;
    guard->is_set = true;
    guard->mono_ms = mono_ms;
    struct step step = reading.wall_ms > expected_ms + STEP_GUARD_TOLERANCE_MS
                           ? forward(guard, reading.wall_ms, expected_ms)
                           : follow(guard, reading.wall_ms, expected_ms);
    guard->judged_ms = step.now_ms;
    assert(step.now_ms <= reading.wall_ms);
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
