/* A topics file: a refusal names a line of the file and a reason; every rule of an accepted file
 * sets something, is for topics of one kind, and is the first for its own pattern read as a name;
 * and putting it in force gives each such name a policy with the rule's values. */
#include <string.h>

#include "fuzz.h"
#include "topic/policy.h"
#include "topic/topic_name.h"
#include "topic/topics_file.h"

static void check_rule(const struct topic_rules *rules, const struct topic_rule *rule) {
    char name[TOPIC_NAME_BYTES_MAX];
    size_t size = 0;
    require(rule->given != 0 && rule->given < 1u << TOPIC_RULE_KEY_COUNT);
    require(rule->pattern.size > 0 && rule->pattern.size <= TOPIC_NAME_BYTES_MAX);
    require(topic_rule_match(rule->pattern, rule->pattern));
    require(topic_rules_find(rules, rule->pattern) == rule);
    require(topic_is_projection_owned(rule->pattern) == rule->is_projection_owned);
    if (rule->is_projection_owned)
        require(!topic_rule_gives(rule, TOPIC_RULE_CLASS) &&
                !topic_rule_gives(rule, TOPIC_RULE_QOS_TIER) &&
                !topic_rule_gives(rule, TOPIC_RULE_RETENTION_SECONDS));
    /* A '*' stands for nothing, too. */
    for (size_t i = 0; i < rule->pattern.size; i++)
        if (rule->pattern.data[i] != '*')
            name[size++] = rule->pattern.data[i];
    require(topic_rule_match(rule->pattern, (struct slice){name, size}));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct policy_rules in_force;
    static struct topic_rules rules;
    struct topics_file_error error;
    struct policy_table table;
    const struct topic_rules *before;
    const struct slice text = {(const char *)data, size};
    if (topics_file_parse(&rules, text, 0, &error) != STATUS_OK) {
        size_t lines = 1;
        for (size_t i = 0; i < size; i++)
            lines += data[i] == '\n';
        require(*error.text && error.line <= lines);
        return 0;
    }
    require(rules.count <= TOPIC_RULES_MAX && rules.class_count <= TOPIC_RULE_CLASSES_MAX);
    policy_table_init(&table);
    policy_rules_init(&table, &in_force);
    enum status status = policy_rules_replace(&table, &rules, &before);
    /* Class names belong to the process, which may have given out all of them. */
    require(status == STATUS_OK || (status == STATUS_LIMIT_REACHED && rules.class_count > 0));
    for (size_t i = 0; i < rules.count; i++) {
        const struct topic_rule *rule = &rules.rules[i];
        check_rule(&rules, rule);
        if (status != STATUS_OK)
            continue;
        const struct policy *policy = policy_of(&table, rule->pattern);
        require(policy->declared == rule->given);
        if (topic_rule_gives(rule, TOPIC_RULE_PUBLISH_RATE_PER_SECOND))
            require(policy->publish_rate_per_second ==
                    rule->values[TOPIC_RULE_PUBLISH_RATE_PER_SECOND]);
    }
    policy_rules_release(&table);
    return 0;
}
