#include "topic/policy_json.h"

#include <assert.h>
#include <stdio.h>

#include "wire/object_writer.h"

static uint64_t number_of(const struct policy *policy, enum topic_rule_key key,
                          enum policy_field *field) {
    switch (key) {
    case TOPIC_RULE_REPLAY_BUDGET_EVENTS:
        *field = POLICY_FIELD_REPLAY_BUDGET_EVENTS;
        return policy->replay_budget_events;
    case TOPIC_RULE_RETENTION_SECONDS:
        *field = POLICY_FIELD_RETENTION_SECONDS;
        return policy->retention_seconds;
    case TOPIC_RULE_PUBLISH_RATE_PER_SECOND:
        *field = POLICY_FIELD_PUBLISH_RATE_PER_SECOND;
        return policy->publish_rate_per_second;
    case TOPIC_RULE_MAX_PAYLOAD_BYTES:
        *field = POLICY_FIELD_MAX_PAYLOAD_BYTES;
        return policy->max_payload_bytes;
    case TOPIC_RULE_CLASS:
    case TOPIC_RULE_QOS_TIER:
    case TOPIC_RULE_KEY_COUNT:
        break;
    }
    assert(0 && "a key with numbers");
    return 0;
}

static void put_value(struct object_writer *object, const struct policy *policy,
                      enum topic_rule_key key, struct slice topic) {
    bool is_limit =
        key == TOPIC_RULE_PUBLISH_RATE_PER_SECOND || key == TOPIC_RULE_MAX_PAYLOAD_BYTES;
    bool is_rule = policy->declared & 1u << key;
    const char *from = is_rule ? "rule" : "built_in";
    char text[160];
    struct buffer out = buffer_over(text, sizeof(text));
    struct object_writer value = object_begin(&out);
    if (key == TOPIC_RULE_CLASS) {
        object_text(&value, SLICE("value"), slice_of(topic_class_name(policy->topic_class)));
    } else if (key == TOPIC_RULE_QOS_TIER) {
        object_text(&value, SLICE("value"), slice_of(qos_tier_name(policy->qos_tier)));
    } else if (is_limit && topic_has_documents_only(topic_kind_of(topic, NULL))) {
        object_json(&value, SLICE("value"), SLICE("null"));
    } else {
        enum policy_field field;
        uint64_t number = number_of(policy, key, &field);
        const char *setting = policy_setting(policy_row_of(topic), field);
        object_number(&value, SLICE("value"), number);
        from = !is_rule && setting ? setting : from;
    }
    object_text(&value, SLICE("from"), slice_of(from));
    buffer_note(object->out, object_end(&value));
    object_json(object, slice_of(topic_rule_key_name(key)), buffer_slice(&out));
}

enum status policy_write_json(struct buffer *out, const struct policy_table *table,
                              struct slice topic) {
    bool is_owned = topic_is_projection_owned(topic);
    char hash[TOPIC_RULES_HASH_SIZE];
    char text[2 * POLICY_JSON_BYTES_MAX];
    char reason_text[200];
    struct buffer inner = buffer_over(text, sizeof(text));
    struct policy_reason reason;
    policy_explain(table, topic, &reason);
    policy_rules_hash(table, hash);
    if (reason.line > 0)
        snprintf(reason_text, sizeof(reason_text),
                 "The rule in line %u is the first one that matches the name.", reason.line);
    else
        snprintf(reason_text, sizeof(reason_text), "%s%s",
                 *hash ? "No rule matches the name" : "There is no topics file",
                 *hash && is_owned ? "; rules for its kind begin with run:, worker:, fleet: or "
                                     "runtime., and others are for application topics."
                                   : ".");
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), topic);
    object_text(&object, SLICE("owned_by"), is_owned ? SLICE("projection") : SLICE("application"));
    if (reason.line > 0) {
        struct object_writer rule = object_begin(&inner);
        object_number(&rule, SLICE("line"), reason.line);
        object_text(&rule, SLICE("pattern"), (struct slice){reason.pattern, reason.pattern_size});
        buffer_note(out, object_end(&rule));
    }
    object_json(&object, SLICE("rule"), reason.line > 0 ? buffer_slice(&inner) : SLICE("null"));
    object_text(&object, SLICE("reason"), slice_of(reason_text));
    object_text(&object, SLICE("topics_hash"), *hash ? slice_of(hash) : (struct slice){NULL, 0});
    buffer_clear(&inner);
    struct object_writer policy = object_begin(&inner);
    for (unsigned key = 0; key < TOPIC_RULE_KEY_COUNT; key++)
        put_value(&policy, reason.policy, (enum topic_rule_key)key, topic);
    buffer_note(out, object_end(&policy));
    object_json(&object, SLICE("policy"), buffer_slice(&inner));
    return object_end(&object);
}
