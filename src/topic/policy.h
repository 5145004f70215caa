/* The policy table: for every kind of topic its class, urgency, replay budget, retention,
 * snapshots and publish limits. The one place where these numbers live.
 * A table is filled before threads start and only read afterwards. Allocates nothing; texts are
 * static. Overrides come through topic/policy_key.h, which refuses what is out of range.
 * Every topic has exactly one row: the first whose pattern matches; the last row takes all. */
#ifndef TOPIC_POLICY_H
#define TOPIC_POLICY_H

#include <stdint.h>

#include "base/slice.h"
#include "topic/topic_class.h"

enum policy_row {
    POLICY_RUN_SUMMARIES,
    POLICY_CODEX_WORKER_SUMMARIES,
    POLICY_CODEX_WORKER_EVENTS,
    POLICY_NOTIFICATIONS,
    POLICY_RUN_EVENTS,
    POLICY_WORKER_LIFECYCLE,
    POLICY_FALLBACK,
    POLICY_ROW_COUNT,
};

#define POLICY_PATTERNS_MAX 2

struct policy {
    /* The unused ones are NULL. A pattern without '*' is the name of the one topic of the row. */
    const char *patterns[POLICY_PATTERNS_MAX];
    enum topic_class topic_class;
    enum publish_class publish_class;
    enum qos_tier qos_tier;
    enum compaction_mode compaction_mode;
    uint64_t replay_budget_events;
    uint64_t retention_seconds;
    /* NULL and 0 where the topic has no snapshot. */
    const char *snapshot_source_table;
    uint64_t snapshot_cadence_seconds;
    uint64_t publish_rate_per_second;
    uint64_t max_payload_bytes;
};

struct policy_table {
    struct policy rows[POLICY_ROW_COUNT];
};

/* The defaults. */
void policy_table_init(struct policy_table *table);
const struct policy *policy_default(enum policy_row row);
enum policy_row policy_row_of(struct slice topic);
const struct policy *policy_of(const struct policy_table *table, struct slice topic);

static inline bool policy_has_snapshot(const struct policy *policy) {
    return policy->snapshot_source_table != NULL;
}

#endif
