/* Counters, gauges and histograms of the process, by the table spec/metrics.
 * Thread: any. Each thread counts in memory of its own, so that counting moves no cache line
 * between processors.
 * Memory: that of an ended thread is kept for the next one.
 * Errors: none: a thread that gets no memory uses a shared part.
 * Invariant: the number of series is fixed at compile time; a label outside its set asserts. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include "spec/metrics.h"

/* A value for each set of the family, in the order of the table; packed, so that they travel in a
 * register. */
struct metric_labels {
    uint32_t packed;
};

#define METRIC_LABEL_BITS  10
#define METRIC_LABELS(...) METRIC_LABELS_OF(__VA_ARGS__, 0, 0, 0)
#define METRIC_LABELS_OF(a, b, c, ...)                                                             \
    ((struct metric_labels){(uint32_t)(a) | (uint32_t)(b) << METRIC_LABEL_BITS |                   \
                            (uint32_t)(c) << 2 * METRIC_LABEL_BITS})
#define METRIC_PLAIN METRIC_LABELS(0)

/* metrics_add(METRIC_APPENDS, METRIC_LABELS(ENTITY_RUN, STATUS_OK), 1); */
void metrics_add(enum metric metric, struct metric_labels labels, uint64_t more);
/* Subtracts from a gauge what was added to it, on any thread. */
void metrics_sub(enum metric metric, struct metric_labels labels, uint64_t less);
/* Sets a value that is measured when it is read. Do not add to such a series. */
void metrics_set(enum metric metric, struct metric_labels labels, uint64_t value);
/* times observations of one value, in the unit the family is kept in. */
void metrics_observe(enum metric metric, struct metric_labels labels, uint64_t value,
                     uint64_t times);

/* All series of a counter or gauge together, over all threads. */
uint64_t metrics_get_all(enum metric metric);
/* All numbers, in the slots that the table assigns. */
void metrics_read(uint64_t numbers[METRIC_SLOT_COUNT]);

#endif
