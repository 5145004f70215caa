#include "topic/policy.h"

#include <assert.h>

static const struct policy defaults[POLICY_ROW_COUNT] = {
    [POLICY_RUN_SUMMARIES] =
        {
            .topic_class = TOPIC_CLASS_DURABLE_SUMMARY,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
            .replay_budget_events = 20000,
            .retention_seconds = 604800,
            .snapshot_document = DOCUMENT_RUN_SUMMARY,
            .snapshot_cadence_seconds = 300,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 90,
            .max_payload_bytes = 65536,
        },
    [POLICY_CODEX_WORKER_SUMMARIES] =
        {
            .topic_class = TOPIC_CLASS_DURABLE_SUMMARY,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
            .replay_budget_events = 10000,
            .retention_seconds = 259200,
            .snapshot_document = DOCUMENT_WORKER_SUMMARY,
            .snapshot_cadence_seconds = 120,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 90,
            .max_payload_bytes = 65536,
        },
    [POLICY_CODEX_WORKER_EVENTS] =
        {
            .topic_class = TOPIC_CLASS_HIGH_CHURN_EVENTS,
            .qos_tier = QOS_TIER_HOT,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 3000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_CODEX_WORKER_EVENTS,
            .publish_rate_per_second = 240,
            .max_payload_bytes = 131072,
        },
    [POLICY_NOTIFICATIONS] =
        {
            .topic_class = TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS,
            .qos_tier = QOS_TIER_COLD,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 500,
            .retention_seconds = 43200,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 90,
            .max_payload_bytes = 65536,
        },
    [POLICY_RUN_EVENTS] =
        {
            .topic_class = TOPIC_CLASS_RUN_EVENTS,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 20000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_RUN_EVENTS,
            .publish_rate_per_second = 240,
            .max_payload_bytes = 262144,
        },
    [POLICY_WORKER_LIFECYCLE] =
        {
            .topic_class = TOPIC_CLASS_WORKER_LIFECYCLE,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 10000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_WORKER_LIFECYCLE,
            .publish_rate_per_second = 180,
            .max_payload_bytes = 65536,
        },
    [POLICY_FALLBACK] =
        {
            .topic_class = TOPIC_CLASS_FALLBACK,
            .qos_tier = QOS_TIER_COLD,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 500,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 90,
            .max_payload_bytes = 65536,
        },
};

void policy_table_init(struct policy_table *table) {
    memcpy(table->rows, defaults, sizeof(table->rows));
}

const struct policy *policy_default(enum policy_row row) {
    assert((unsigned)row < POLICY_ROW_COUNT);
    return &defaults[row];
}

enum policy_row policy_row_of(struct slice topic) {
    return topic_row(topic_kind_of(topic, NULL))->policy;
}

const struct policy *policy_of(const struct policy_table *table, struct slice topic) {
    return &table->rows[policy_row_of(topic)];
}
