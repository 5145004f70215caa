#include "retention/pass_count.h"

#include "base/clock.h"
#include "base/metrics.h"

static void count_class(const struct pass_count *pass, size_t topic_class,
                        enum label_outcome outcome) {
    const struct retention_class_totals *seen = &pass->report->classes[topic_class];
    struct metric_labels labels = METRIC_LABELS(topic_class, outcome);
    metrics_add(METRIC_SYNC_RETENTION_TOPIC_RUNS, labels, seen->topics);
    metrics_add(METRIC_SYNC_RETENTION_TOPIC_DELETED, labels, seen->deleted);
    metrics_set(METRIC_SYNC_RETENTION_TOPIC_STALE_RISK_EVENTS, METRIC_LABELS(topic_class),
                pass->stale_risk_max[topic_class]);
}

void pass_count_add(const struct pass_count *pass) {
    enum label_outcome outcome =
        pass->status == STATUS_OK ? LABEL_OUTCOME_OK : LABEL_OUTCOME_FAILED;
    metrics_add(METRIC_SYNC_RETENTION_CYCLE, METRIC_LABELS(outcome), 1);
    metrics_observe(METRIC_SYNC_RETENTION_CYCLE_DURATION_SECONDS, METRIC_PLAIN, pass->duration_ns,
                    1);
    metrics_add(METRIC_SYNC_RETENTION_CYCLE_DELETED, METRIC_PLAIN,
                retention_report_total(pass->report).deleted);
    if (pass->status == STATUS_OK)
        metrics_set(METRIC_SYNC_RETENTION_CYCLE_LAST_SUCCESS_TIMESTAMP_SECONDS, METRIC_PLAIN,
                    pass->ended_at_ms * CLOCK_NS_PER_MS);
    for (size_t i = 0; i < TOPIC_CLASS_COUNT; i++)
        count_class(pass, i, outcome);
}

void pass_count_batch(void) {
    metrics_add(METRIC_SYNC_RETENTION_CYCLE_BATCHES, METRIC_PLAIN, 1);
}
