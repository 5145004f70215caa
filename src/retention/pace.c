#include "retention/pace.h"

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
    if (value < low)
        return low;
    return value < high ? value : high;
}

void pace_init(struct pace *pace, uint64_t work_min, uint64_t work_max) {
    *pace = (struct pace){work_min, work_max, clamp(1000, work_min, work_max)};
}

uint64_t pace_update(struct pace *pace, const struct pace_batch *batch, bool is_busy) {
    uint64_t computed_ns = batch->computed_ns > 0 ? batch->computed_ns : 1;
    uint64_t fitting = batch->work * PACE_BATCH_NS / computed_ns;
    /* A quick batch counts only if it was at least half as large as allowed. One batch changes the
     * size by a factor of two at most. */
    if (computed_ns > PACE_BATCH_NS || batch->work >= pace->work_next / 2)
        pace->work_next = clamp(clamp(fitting, pace->work_next / 2, pace->work_next * 2),
                                pace->work_min, pace->work_max);
    return is_busy ? clamp(batch->took_ns * (PACE_SHARE - 1), 0, PACE_PAUSE_NS_MAX) : 0;
}
