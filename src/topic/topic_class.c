#include "topic/topic_class.h"

#include <assert.h>

const char *topic_class_name(enum topic_class topic_class) {
    static const char *const names[TOPIC_CLASS_COUNT] = {
        [TOPIC_CLASS_DURABLE_SUMMARY] = "durable_summary",
        [TOPIC_CLASS_HIGH_CHURN_EVENTS] = "high_churn_events",
        [TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS] = "ephemeral_notifications",
        [TOPIC_CLASS_RUN_EVENTS] = "run_events",
        [TOPIC_CLASS_WORKER_LIFECYCLE] = "worker_lifecycle",
        [TOPIC_CLASS_FALLBACK] = "fallback",
    };
    assert((unsigned)topic_class < TOPIC_CLASS_COUNT);
    return names[topic_class];
}

const char *publish_class_name(enum publish_class publish_class) {
    static const char *const names[PUBLISH_CLASS_COUNT] = {
        [PUBLISH_CLASS_RUN_EVENTS] = "run_events",
        [PUBLISH_CLASS_WORKER_LIFECYCLE] = "worker_lifecycle",
        [PUBLISH_CLASS_CODEX_WORKER_EVENTS] = "codex_worker_events",
        [PUBLISH_CLASS_FALLBACK] = "fallback",
    };
    assert((unsigned)publish_class < PUBLISH_CLASS_COUNT);
    return names[publish_class];
}

const char *qos_tier_name(enum qos_tier qos_tier) {
    static const char *const names[QOS_TIER_COUNT] = {
        [QOS_TIER_HOT] = "hot",
        [QOS_TIER_WARM] = "warm",
        [QOS_TIER_COLD] = "cold",
    };
    assert((unsigned)qos_tier < QOS_TIER_COUNT);
    return names[qos_tier];
}

const char *compaction_mode_name(enum compaction_mode mode) {
    static const char *const names[COMPACTION_MODE_COUNT] = {
        [COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE] = "tail_prune_with_snapshot_rehydrate",
        [COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT] = "tail_prune_without_snapshot",
    };
    assert((unsigned)mode < COMPACTION_MODE_COUNT);
    return names[mode];
}
