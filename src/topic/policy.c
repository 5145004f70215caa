#include "topic/policy.h"

#include <assert.h>

#include "topic/topic_pattern.h"

#define RUN_EVENTS_LIMITS                                                                          \
    .publish_class = PUBLISH_CLASS_RUN_EVENTS, .publish_rate_per_second = 240,                     \
    .max_payload_bytes = 262144
#define WORKER_LIFECYCLE_LIMITS                                                                    \
    .publish_class = PUBLISH_CLASS_WORKER_LIFECYCLE, .publish_rate_per_second = 180,               \
    .max_payload_bytes = 65536
#define CODEX_WORKER_EVENTS_LIMITS                                                                 \
    .publish_class = PUBLISH_CLASS_CODEX_WORKER_EVENTS, .publish_rate_per_second = 240,            \
    .max_payload_bytes = 131072
#define FALLBACK_LIMITS                                                                            \
    .publish_class = PUBLISH_CLASS_FALLBACK, .publish_rate_per_second = 90,                        \
    .max_payload_bytes = 65536

static const struct policy defaults[POLICY_ROW_COUNT] = {
    [POLICY_RUN_SUMMARIES] =
        {
            .patterns = {"runtime.run_summaries"},
            .topic_class = TOPIC_CLASS_DURABLE_SUMMARY,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
            .replay_budget_events = 20000,
            .retention_seconds = 604800,
            .snapshot_source_table = "runtime.sync_run_summaries",
            .snapshot_cadence_seconds = 300,
            FALLBACK_LIMITS,
        },
    [POLICY_CODEX_WORKER_SUMMARIES] =
        {
            .patterns = {"runtime.codex_worker_summaries"},
            .topic_class = TOPIC_CLASS_DURABLE_SUMMARY,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
            .replay_budget_events = 10000,
            .retention_seconds = 259200,
            .snapshot_source_table = "runtime.sync_codex_worker_summaries",
            .snapshot_cadence_seconds = 120,
            FALLBACK_LIMITS,
        },
    [POLICY_CODEX_WORKER_EVENTS] =
        {
            .patterns = {"runtime.codex_worker_events"},
            .topic_class = TOPIC_CLASS_HIGH_CHURN_EVENTS,
            .qos_tier = QOS_TIER_HOT,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 3000,
            .retention_seconds = 86400,
            CODEX_WORKER_EVENTS_LIMITS,
        },
    [POLICY_NOTIFICATIONS] =
        {
            .patterns = {"runtime.notifications"},
            .topic_class = TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS,
            .qos_tier = QOS_TIER_COLD,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 500,
            .retention_seconds = 43200,
            FALLBACK_LIMITS,
        },
    [POLICY_RUN_EVENTS] =
        {
            .patterns = {"run:*:events"},
            .topic_class = TOPIC_CLASS_RUN_EVENTS,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 20000,
            .retention_seconds = 86400,
            RUN_EVENTS_LIMITS,
        },
    [POLICY_WORKER_LIFECYCLE] =
        {
            .patterns = {"worker:*:lifecycle", "fleet:*:workers"},
            .topic_class = TOPIC_CLASS_WORKER_LIFECYCLE,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 10000,
            .retention_seconds = 86400,
            WORKER_LIFECYCLE_LIMITS,
        },
    [POLICY_FALLBACK] =
        {
            .patterns = {"*"},
            .topic_class = TOPIC_CLASS_FALLBACK,
            .qos_tier = QOS_TIER_COLD,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 500,
            .retention_seconds = 86400,
            FALLBACK_LIMITS,
        },
};

void policy_table_init(struct policy_table *table) {
    memcpy(table->rows, defaults, sizeof(table->rows));
}

const struct policy *policy_default(enum policy_row row) {
    assert((unsigned)row < POLICY_ROW_COUNT);
    return &defaults[row];
}

static bool row_matches(const struct policy *row, struct slice topic) {
    for (size_t i = 0; i < POLICY_PATTERNS_MAX; i++)
        if (row->patterns[i] && topic_pattern_match(row->patterns[i], topic, NULL))
            return true;
    return false;
}

enum policy_row policy_row_of(struct slice topic) {
    size_t row = 0;
    while (row < POLICY_FALLBACK && !row_matches(&defaults[row], topic))
        row++;
    return (enum policy_row)row;
}

const struct policy *policy_of(const struct policy_table *table, struct slice topic) {
    return &table->rows[policy_row_of(topic)];
}
