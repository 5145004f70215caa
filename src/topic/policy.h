/* The policy table: class, urgency, replay budget, retention, snapshots and publish limits of
 * topics. A table is filled before threads start and only read afterwards. Allocates nothing; texts
 * are static. Cannot fail; overrides come through topic/policy_key.h, which refuses values out of
 * range. Every topic has exactly one row: the one that topic/topic_table.h names. */
#ifndef TOPIC_POLICY_H
#define TOPIC_POLICY_H

#include <stdint.h>

#include "base/slice.h"
#include "topic/topic_class.h"
#include "topic/topic_name.h"
#include "topic/topic_table.h"

struct policy {
    enum topic_class topic_class;
    enum publish_class publish_class;
    enum qos_tier qos_tier;
    enum compaction_mode compaction_mode;
    uint64_t replay_budget_events;
    uint64_t retention_seconds;
    /* DOCUMENT_NONE and 0 where the topic has no snapshot. */
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

/* The topic that a snapshot stands for; only of a policy that has one. */
static inline struct slice policy_snapshot_topic(const struct policy *policy) {
    return topic_name(document_row(policy->snapshot_document)->topic);
}

#endif
