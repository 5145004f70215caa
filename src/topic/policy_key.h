/* The settings that override the policy table: one key for each number.
 * Used before threads start.
 * Allocates nothing; texts are static.
 * An unknown name is STATUS_NOT_FOUND, a value out of bounds STATUS_INVALID_CONFIG.
 * A refused value leaves the table unchanged. Defaults come from policy.c. */
#ifndef TOPIC_POLICY_KEY_H
#define TOPIC_POLICY_KEY_H

#include "spec/codes.h"
#include "topic/policy.h"

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
