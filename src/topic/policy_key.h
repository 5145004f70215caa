/* The settings that override the policy table: one key a number, named as in the environment.
 * Used before threads start. Allocates nothing; texts are static.
 * A name that is no key is STATUS_NOT_FOUND, a value that is no number within the key's bounds
 * STATUS_INVALID_CONFIG; neither changes the table.
 * Config, help and documentation all follow from this one list; defaults are policy.c's. */
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
struct policy_key policy_key_at(size_t index);
/* Publish limits of the fallback also set those of the rows that publish under it. */
MUST_CHECK enum status policy_table_set(struct policy_table *table, struct slice name,
                                        struct slice value);
/* The value in force. */
uint64_t policy_table_get(const struct policy_table *table, const struct policy_key *key);

#endif
