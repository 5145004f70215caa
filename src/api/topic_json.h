/* A topic as answers show it: its names, its class and its window.
 * Any thread. Appends to the caller's buffer, all or nothing.
 * Errors: the buffer's own.
 * A topic that does not exist has no window; a stream id without a topic has no name. */
#ifndef API_TOPIC_JSON_H
#define API_TOPIC_JSON_H

#include "delivery/access.h"
#include "topic/policy.h"

/* {topic, stream_id, topic_class, qos_tier, window{oldest_seq, head_seq, replay_budget_events}} */
MUST_CHECK enum status topic_write_json(struct buffer *out, const struct policy_table *policies,
                                        const struct topic_address *address);

#endif
