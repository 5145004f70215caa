/* The words of the policy table: classes of topics, tiers of service, publish classes, compaction.
 * Any thread.
 * Names are static text.
 * Cannot fail.
 * Metrics, logs and answers show these names; they change with the protocol only. */
#ifndef TOPIC_TOPIC_CLASS_H
#define TOPIC_TOPIC_CLASS_H

enum topic_class {
    TOPIC_CLASS_DURABLE_SUMMARY,
    TOPIC_CLASS_HIGH_CHURN_EVENTS,
    TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS,
    TOPIC_CLASS_RUN_EVENTS,
    TOPIC_CLASS_WORKER_LIFECYCLE,
    TOPIC_CLASS_FALLBACK,
    TOPIC_CLASS_COUNT,
};

/* Topics of one publish class share their limits. Summaries and notifications use the fallback's.
 */
enum publish_class {
    PUBLISH_CLASS_RUN_EVENTS,
    PUBLISH_CLASS_WORKER_LIFECYCLE,
    PUBLISH_CLASS_CODEX_WORKER_EVENTS,
    PUBLISH_CLASS_FALLBACK,
    PUBLISH_CLASS_COUNT,
};

/* Served in this order. */
enum qos_tier {
    QOS_TIER_HOT,
    QOS_TIER_WARM,
    QOS_TIER_COLD,
    QOS_TIER_COUNT,
};

enum compaction_mode {
    COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
    COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
    COMPACTION_MODE_COUNT,
};

const char *topic_class_name(enum topic_class topic_class);
const char *publish_class_name(enum publish_class publish_class);
const char *qos_tier_name(enum qos_tier qos_tier);
const char *compaction_mode_name(enum compaction_mode mode);

#endif
