#include "retention/pace.h"

/* One slow sync says little about the work: a batch shrinks to a half at most, and grows to twice
 * at most. */
static uint64_t within(uint64_t value, uint64_t low, uint64_t high) {
    if (value < low)
        return low;
    return value < high ? value : high;
}

void pace_init(struct pace *pace, uint64_t work_min, uint64_t work_max) {
    *pace = (struct pace){work_min, work_max, within(1000, work_min, work_max)};
}

uint64_t pace_note(struct pace *pace, uint64_t work, uint64_t took_ns, bool is_busy) {
    uint64_t fitting = work * PACE_BATCH_NS / (took_ns > 0 ? took_ns : 1);
    /* A quick batch says something only if it was about as large as it might have been. */
    if (took_ns > PACE_BATCH_NS || work >= pace->work_next / 2)
        pace->work_next = within(within(fitting, pace->work_next / 2, pace->work_next * 2),
                                 pace->work_min, pace->work_max);
    return is_busy ? within(took_ns * (PACE_SHARE - 1), 0, PACE_PAUSE_NS_MAX) : 0;
}
