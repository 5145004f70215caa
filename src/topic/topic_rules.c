#include "topic/topic_rules.h"

#include <assert.h>

#include "topic/topic_name.h"

const char *topic_rule_key_name(enum topic_rule_key key) {
    static const char *const names[TOPIC_RULE_KEY_COUNT] = {
        [TOPIC_RULE_CLASS] = "class",
        [TOPIC_RULE_QOS_TIER] = "qos_tier",
        [TOPIC_RULE_REPLAY_BUDGET_EVENTS] = "replay_budget_events",
        [TOPIC_RULE_RETENTION_SECONDS] = "retention_seconds",
        [TOPIC_RULE_PUBLISH_RATE_PER_SECOND] = "publish_rate_per_second",
        [TOPIC_RULE_MAX_PAYLOAD_BYTES] = "max_payload_bytes",
    };
    assert((unsigned)key < TOPIC_RULE_KEY_COUNT);
    return names[key];
}

/* After a mismatch only the last '*' takes one byte more: an earlier one could only repeat what the
 * last one tries. So a match costs at most pattern times name. */
bool topic_rule_match(struct slice pattern, struct slice topic) {
    size_t at = 0, star = SIZE_MAX, taken = 0;
    for (size_t i = 0; i < topic.size;) {
        if (at < pattern.size && pattern.data[at] == '*') {
            star = at++;
            taken = i;
        } else if (at < pattern.size && pattern.data[at] == topic.data[i]) {
            at++;
            i++;
        } else if (star != SIZE_MAX) {
            at = star + 1;
            i = ++taken;
        } else {
            return false;
        }
    }
    while (at < pattern.size && pattern.data[at] == '*')
        at++;
    return at == pattern.size;
}

const struct topic_rule *topic_rules_find(const struct topic_rules *rules, struct slice topic) {
    bool is_projection_owned = topic_is_projection_owned(topic);
    /* The whole log is no topic of an application, whatever '*' matches. */
    if (topic_is_log(topic))
        return NULL;
    for (size_t i = 0; i < rules->count; i++) {
        const struct topic_rule *rule = &rules->rules[i];
        if (rule->is_projection_owned == is_projection_owned &&
            topic_rule_match(rule->pattern, topic))
            return rule;
    }
    return NULL;
}
