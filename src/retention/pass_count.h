/* The metrics of a pass of the retention job.
 * Any thread, one pass at a time.
 * Allocates nothing.
 * Cannot fail.
 * Each pass that was not ended by a shutdown is counted once, with its topics and frames, under its
 * outcome. */
#ifndef RETENTION_PASS_COUNT_H
#define RETENTION_PASS_COUNT_H

#include "retention/report.h"

struct pass_count {
    const struct retention_report *report;
    enum status status;
    uint64_t duration_ns;
    uint64_t ended_at_ms; /* wall clock */
    /* The current maximum of each class. */
    uint64_t stale_risk_max[TOPIC_CLASS_COUNT];
};

void pass_count_add(const struct pass_count *pass);
/* Counts a pruned batch. */
void pass_count_batch(void);

#endif
