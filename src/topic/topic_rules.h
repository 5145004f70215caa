/* The rules of a topics file: patterns of topic names, and the values that topics of these names
 * have instead of those of the policy table. topic/topics_file.h reads them.
 * Thread: any; rules do not change once they are read.
 * Memory: the caller's. Texts point into the text of the file, which outlives the rules.
 * Invariant: a rule is for application topics, or for topics that projections own; never for both.
 * The first rule that matches decides; each rule is the first for some name. */
#ifndef TOPIC_TOPIC_RULES_H
#define TOPIC_TOPIC_RULES_H

#include <stdint.h>

#include "base/limits.h"
#include "base/slice.h"

#define TOPIC_RULE_STARS_MAX   4
#define TOPIC_RULE_CLASSES_MAX 16
#define TOPIC_CLASS_BYTES_MAX  32
/* A SHA-256 in hexadecimal digits, with a NUL. */
#define TOPIC_RULES_HASH_SIZE 65

enum topic_rule_key {
    TOPIC_RULE_CLASS,
    TOPIC_RULE_QOS_TIER,
    TOPIC_RULE_REPLAY_BUDGET_EVENTS,
    TOPIC_RULE_RETENTION_SECONDS,
    TOPIC_RULE_PUBLISH_RATE_PER_SECOND,
    TOPIC_RULE_MAX_PAYLOAD_BYTES,
    TOPIC_RULE_KEY_COUNT,
};

struct topic_rule {
    struct slice pattern; /* '*' stands for any bytes or for none */
    unsigned line;
    bool is_projection_owned; /* for topics that projections own; else for application topics */
    unsigned given;           /* a bit for each key */
    /* By key. Of the class: its index in classes; of the tier: enum qos_tier. */
    uint64_t values[TOPIC_RULE_KEY_COUNT];
};

struct topic_rules {
    struct topic_rule rules[TOPIC_RULES_MAX];
    size_t count;
    struct slice classes[TOPIC_RULE_CLASSES_MAX];
    size_t class_count;
    char hash[TOPIC_RULES_HASH_SIZE]; /* of the file's bytes, by which nodes compare their files */
};

const char *topic_rule_key_name(enum topic_rule_key key);

static inline bool topic_rule_gives(const struct topic_rule *rule, enum topic_rule_key key) {
    return rule->given & 1u << key;
}

bool topic_rule_match(struct slice pattern, struct slice topic);
/* NULL: no rule is for that topic. */
const struct topic_rule *topic_rules_find(const struct topic_rules *rules, struct slice topic);

#endif
