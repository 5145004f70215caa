/* Counters, gauges and histograms: what the process counts of itself, by the table spec/metrics.
 * Any thread. Each thread counts in memory of its own, so that counting never moves a cache line
 * between processors; reading adds the threads up. That memory is kept for the next thread when
 * one ends, so its amount follows the threads there are at once. Cannot fail: a thread that gets no
 * memory shares some. Labels are places in the family's sets, so that the number of series is fixed
 * at compile time; a label out of its set is our mistake and asserts. */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include "spec/metrics.h"

/* A value for each set of the family, in the order of the table. */
struct metric_labels {
    unsigned at[METRIC_POSITIONS_MAX];
};

#define METRIC_LABELS(...) ((struct metric_labels){{__VA_ARGS__}})
#define METRIC_PLAIN       METRIC_LABELS(0)

/* metrics_add(METRIC_APPENDS, METRIC_LABELS(ENTITY_RUN, STATUS_OK), 1); */
void metrics_add(enum metric metric, struct metric_labels labels, uint64_t count);
/* Takes back from a gauge what was added to it, on whatever thread. */
void metrics_sub(enum metric metric, struct metric_labels labels, uint64_t count);
/* For what is measured when somebody asks; not for a series that is also added to. */
void metrics_set(enum metric metric, struct metric_labels labels, uint64_t value);
/* times observations of one value, in the unit the family is kept in. */
void metrics_observe(enum metric metric, struct metric_labels labels, uint64_t value,
                     uint64_t times);

/* A series of a counter or gauge, over all threads; and all series of the family together. */
uint64_t metrics_get(enum metric metric, struct metric_labels labels);
uint64_t metrics_get_all(enum metric metric);
/* Every number there is, in the places the table gives them. */
void metrics_read(uint64_t numbers[METRIC_SLOT_COUNT]);

#endif
