/* The policy of a topic as JSON: each value with its origin, and the rule that decides.
 * Thread: any.
 * Memory: the caller's buffer, which keeps the first failure. */
#ifndef TOPIC_POLICY_JSON_H
#define TOPIC_POLICY_JSON_H

#include "base/buffer.h"
#include "topic/policy.h"

#define POLICY_JSON_BYTES_MAX 8192

/* {"topic","owned_by","rule":{"line","pattern"},"reason","topics_hash",
 *  "policy":{"class":{"value","from"},…}}; rule null without one, a value null where no such limit
 * applies. from: "rule", the name of a setting, or "built_in". */
MUST_CHECK enum status policy_write_json(struct buffer *out, const struct policy_table *table,
                                         struct slice topic);

#endif
