/* The policy table: class, urgency, replay budget, retention, snapshots and publish limits of
 * topics, the settings that override its numbers, and the rules of users that override both.
 * Thread: any after the start; the rows are filled before threads start. Rules may be replaced
 * while other threads look policies up.
 * Memory: texts are static. A policy that was returned stays valid and unchanged as long as the
 * table; so the policies of replaced rules are kept, POLICIES_KEPT_MAX different ones in all.
 * Errors: STATUS_NOT_FOUND for an unknown setting, STATUS_INVALID_CONFIG for a value out of range;
 * the table is unchanged. STATUS_LIMIT_REACHED for rules that find no room.
 * Invariant: every topic has exactly one row: the one that topic/topic_table.h names; and at most
 * one rule. */
#ifndef TOPIC_POLICY_H
#define TOPIC_POLICY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/slice.h"
#include "spec/codes.h"
#include "topic/topic_name.h"
#include "topic/topic_rules.h"
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
    /* Those that rules name. The names are given out in this order, and never again. */
    TOPIC_CLASS_DECLARED,
    TOPIC_CLASS_COUNT = TOPIC_CLASS_DECLARED + TOPIC_RULE_CLASSES_MAX,
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

/* NULL: no rule has named that class yet. */
const char *topic_class_name(enum topic_class topic_class);
/* False: no class has the name. */
bool topic_class_of(struct slice name, enum topic_class *topic_class);
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
    unsigned declared; /* which values are those of a rule: a bit for each topic_rule_key */
};

/* The rules in force, and the policies of all rules that were. */
struct policy_rules {
    pthread_rwlock_t lock;
    atomic_uint generation; /* how often the rules were replaced */
    /* Under lock. */
    const struct topic_rules *rules; /* NULL: none */
    const struct policy *by_rule[TOPIC_RULES_MAX][POLICY_ROW_COUNT];
    size_t kept_count;
    struct policy kept[POLICIES_KEPT_MAX];
};

struct policy_table {
    struct policy rows[POLICY_ROW_COUNT]; /* without rules */
    struct policy_rules *rules;           /* NULL: there can be none */
};

/* Fills the table with the defaults, without rules. */
void policy_table_init(struct policy_table *table);
const struct policy *policy_default(enum policy_row row);
enum policy_row policy_row_of(struct slice topic);
/* The policy in force. With rules this walks their patterns, so what is done for each event keeps
 * the policy, and asks again when policy_generation has changed. */
const struct policy *policy_of(const struct policy_table *table, struct slice topic);
/* Of the topic that carries the events of one entity. */
const struct policy *policy_of_entity(const struct policy_table *table, enum entity_kind kind,
                                      struct slice id);

/* ---- rules ---- */

/* From now on the table may have rules. The memory is the caller's and outlives the table; call it
 * before threads start. */
void policy_rules_init(struct policy_table *table, struct policy_rules *rules);
/* After the threads that use the table. */
void policy_rules_release(struct policy_table *table);
/* Puts new rules in force, which outlive the next call. before: the rules until now, which the
 * caller may free; NULL: none. Not from two threads at once. */
MUST_CHECK enum status policy_rules_replace(struct policy_table *table,
                                            const struct topic_rules *rules,
                                            const struct topic_rules **before);

static inline unsigned policy_generation(const struct policy_table *table) {
    return table->rules ? atomic_load_explicit(&table->rules->generation, memory_order_acquire) : 0;
}

/* Which rule decides for a topic. */
struct policy_reason {
    const struct policy *policy;
    unsigned line; /* of the rule; 0: no rule matches */
    size_t pattern_size;
    char pattern[TOPIC_NAME_BYTES_MAX];
};

void policy_explain(const struct policy_table *table, struct slice topic,
                    struct policy_reason *reason);
/* A class that rules may not name, because it means something else in metrics. */
bool policy_class_is_built_in(struct slice name);

/* Of the file of the rules in force; "" without one. Returns the number of the rules. */
size_t policy_rules_hash(const struct policy_table *table, char hash[TOPIC_RULES_HASH_SIZE]);
/* The largest payload that any topic of this row, or of any row, may have. */
uint64_t policy_largest_payload_of(const struct policy_table *table, enum policy_row row);
uint64_t policy_largest_payload(const struct policy_table *table);

struct policy_range {
    uint64_t min;
    uint64_t max;
};

/* The numbers that a rule may give; only of a key with numbers. */
struct policy_range policy_rule_range(enum topic_rule_key key);
/* What such a number means, for help. */
const char *policy_rule_about(enum topic_rule_key key);

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
/* The name of the setting of that number; NULL: it has none. */
const char *policy_setting(enum policy_row row, enum policy_field field);
/* A publish limit applies to all rows of the same publish class. */
MUST_CHECK enum status policy_table_set(struct policy_table *table, struct slice name,
                                        struct slice value);
/* The current value. */
uint64_t policy_table_get(const struct policy_table *table, const struct policy_key *key);

#endif
