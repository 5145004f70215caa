/* The policy table: class, urgency, replay budget, retention, snapshots and publish limits of
 * topics, and the settings that override its numbers.
 * Thread: any after the start; the table is filled before threads start.
 * Memory: texts are static.
 * Errors: STATUS_NOT_FOUND for an unknown setting, STATUS_INVALID_CONFIG for a value out of range;
 * the table is unchanged.
 * Invariant: every topic has exactly one row: the one that topic/topic_table.h names. */
#ifndef TOPIC_POLICY_H
#define TOPIC_POLICY_H

#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"
#include "topic/topic_name.h"
#include "topic/topic_table.h"

/* The words of the table: classes of topics, tiers of service, publish classes, compaction.
 * Metrics, logs and answers show their names, which change with the protocol only. */

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

struct policy {
    enum topic_class topic_class;
    enum publish_class publish_class;
    enum qos_tier qos_tier;
    enum compaction_mode compaction_mode;
    uint64_t replay_budget_events;
    uint64_t retention_seconds;
    /* DOCUMENT_NONE and 0 if the topic has no snapshot. */
    enum document_kind snapshot_document;
    uint64_t snapshot_cadence_seconds;
    uint64_t publish_rate_per_second;
    uint64_t max_payload_bytes;
};

struct policy_table {
    struct policy rows[POLICY_ROW_COUNT];
};

/* Fills the table with the defaults. */
void policy_table_init(struct policy_table *table);
const struct policy *policy_default(enum policy_row row);
enum policy_row policy_row_of(struct slice topic);
const struct policy *policy_of(const struct policy_table *table, struct slice topic);

static inline bool policy_has_snapshot(const struct policy *policy) {
    return policy->snapshot_document != DOCUMENT_NONE;
}

/* The lag of a slow consumer. Frames beyond the budget are lost to a reader that leaves, so it is
 * told while it can still catch up. */
static inline uint64_t policy_lag_max(const struct policy *policy) {
    return policy->replay_budget_events / 5 * 3;
}

/* The topic that a snapshot stands for; only of a policy that has one. */
static inline struct slice policy_snapshot_topic(const struct policy *policy) {
    return topic_name(document_row(policy->snapshot_document)->topic);
}

/* ---- the settings: one key for each number ---------------------------------------------- */

enum policy_field {
    POLICY_FIELD_PUBLISH_RATE_PER_SECOND,
    POLICY_FIELD_MAX_PAYLOAD_BYTES,
    POLICY_FIELD_REPLAY_BUDGET_EVENTS,
    POLICY_FIELD_RETENTION_SECONDS,
    POLICY_FIELD_SNAPSHOT_CADENCE_SECONDS,
    POLICY_FIELD_COUNT,
};

struct policy_key {
    const char *name;
    const char *about;
    enum policy_row row;
    enum policy_field field;
    uint64_t value_default;
    uint64_t value_min;
    uint64_t value_max;
};

size_t policy_key_count(void);
/* The name of the setting of a publish class; field is a publish limit. */
const char *policy_publish_setting(enum publish_class publish_class, enum policy_field field);
struct policy_key policy_key_at(size_t index);
/* A publish limit applies to all rows of the same publish class. */
MUST_CHECK enum status policy_table_set(struct policy_table *table, struct slice name,
                                        struct slice value);
/* The current value. */
uint64_t policy_table_get(const struct policy_table *table, const struct policy_key *key);

#endif
