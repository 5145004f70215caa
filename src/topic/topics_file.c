#include "topic/topics_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/decimal.h"
#include "base/hex.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "topic/policy.h"
#include "topic/topic_name.h"

#define CLASS_START "abcdefghijklmnopqrstuvwxyz"
#define CLASS_BYTES CLASS_START "0123456789_"
/* Names may be long; a message shows their beginning. */
#define SHOWN(text) (int)((text).size < 80 ? (text).size : 80), (text).data

struct reading {
    struct topic_rules *rules;
    uint64_t payload_bytes_max;
    struct topics_file_error *error;
    unsigned line;
};

__attribute__((format(printf, 2, 3))) static enum status refuse(struct reading *reading,
                                                                const char *format, ...) {
    va_list arguments;
    reading->error->line = reading->line;
    va_start(arguments, format);
    vsnprintf(reading->error->text, sizeof(reading->error->text), format, arguments);
    va_end(arguments);
    return STATUS_INVALID_CONFIG;
}

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t';
}

/* The next word of the line; empty at its end. A comment ends the line. */
static struct slice take_word(struct slice *line) {
    while (line->size > 0 && is_blank(*line->data))
        *line = slice_from(*line, 1);
    size_t size = 0;
    while (size < line->size && !is_blank(line->data[size]))
        size++;
    struct slice word = {line->data, size};
    *line = slice_from(*line, size);
    if (size > 0 && *word.data == '#')
        line->size = word.size = 0;
    return word;
}

/* ---- patterns ---- */

static enum status read_pattern(struct reading *reading, struct topic_rule *rule,
                                struct slice pattern) {
    size_t stars = 0;
    for (size_t i = 0; i < pattern.size; i++) {
        stars += pattern.data[i] == '*';
        if (i > 0 && pattern.data[i] == '*' && pattern.data[i - 1] == '*')
            return refuse(reading, "'%.*s': one '*' is enough, it stands for any text",
                          SHOWN(pattern));
    }
    if (topic_name_check(pattern) != STATUS_OK)
        return refuse(reading,
                      "'%.*s' cannot be the pattern of a topic: at most %d bytes without "
                      "control characters",
                      SHOWN(pattern), TOPIC_NAME_BYTES_MAX);
    if (stars > TOPIC_RULE_STARS_MAX)
        return refuse(reading, "'%.*s' has more than %d '*'", SHOWN(pattern), TOPIC_RULE_STARS_MAX);
    /* A pattern under a reserved prefix has it as the names do. */
    enum topic_kind kind = topic_kind_of(pattern, NULL);
    *rule = (struct topic_rule){.pattern = pattern,
                                .line = reading->line,
                                .is_projection_owned = topic_is_projection_owned(pattern)};
    if (stars == 0 && topic_row(kind)->ownership == TOPIC_RESERVED)
        return refuse(reading, "'%.*s' can be no topic: the prefix is reserved", SHOWN(pattern));
    for (size_t i = 0; i < reading->rules->count; i++) {
        const struct topic_rule *before = &reading->rules->rules[i];
        /* A '*' of this pattern is matched by a '*' of that one, and so is any text for it. */
        if (before->is_projection_owned == rule->is_projection_owned &&
            topic_rule_match(before->pattern, pattern))
            return refuse(reading, "'%.*s' never applies: '%.*s' in line %u takes all its topics",
                          SHOWN(pattern), SHOWN(before->pattern), before->line);
    }
    return STATUS_OK;
}

/* ---- values ---- */

static enum status read_class(struct reading *reading, struct slice name, uint64_t *index) {
    struct topic_rules *rules = reading->rules;
    char text[TOPIC_CLASS_BYTES_MAX + 1];
    size_t at = 0;
    if (name.size > 0 && name.size <= TOPIC_CLASS_BYTES_MAX)
        memcpy(text, name.data, name.size);
    text[name.size <= TOPIC_CLASS_BYTES_MAX ? name.size : 0] = '\0';
    if (!*text || !strchr(CLASS_START, *text) || strspn(text, CLASS_BYTES) != name.size)
        return refuse(reading,
                      "class=%.*s is not a name of at most %d characters a-z, 0-9 and _, "
                      "which begins with a letter",
                      SHOWN(name), TOPIC_CLASS_BYTES_MAX);
    if (policy_class_is_built_in(name))
        return refuse(reading, "class=%s is the name of a built-in class; choose another", text);
    while (at < rules->class_count && !slice_equal(rules->classes[at], name))
        at++;
    if (at == TOPIC_RULE_CLASSES_MAX)
        return refuse(reading, "class=%s is one class too many: a file names at most %d", text,
                      TOPIC_RULE_CLASSES_MAX);
    if (at == rules->class_count)
        rules->classes[rules->class_count++] = name;
    *index = at;
    return STATUS_OK;
}

static enum status read_tier(struct reading *reading, struct slice name, uint64_t *tier) {
    for (*tier = 0; *tier < QOS_TIER_COUNT; ++*tier)
        if (slice_equal(name, slice_of(qos_tier_name((enum qos_tier) * tier))))
            return STATUS_OK;
    return refuse(reading, "qos_tier=%.*s is not hot, warm or cold", SHOWN(name));
}

static enum status read_number(struct reading *reading, enum topic_rule_key key, struct slice text,
                               uint64_t *number) {
    struct policy_range range = policy_rule_range(key);
    if (!decimal_parse_u64(text, number) || *number < range.min || *number > range.max)
        return refuse(reading, "%s=%.*s is not a whole number from %" PRIu64 " to %" PRIu64,
                      topic_rule_key_name(key), SHOWN(text), range.min, range.max);
    if (key == TOPIC_RULE_MAX_PAYLOAD_BYTES && reading->payload_bytes_max > 0 &&
        *number > reading->payload_bytes_max)
        return refuse(reading,
                      "max_payload_bytes=%" PRIu64 " is above %" PRIu64 ", the largest "
                      "payload when the server started; restart it to raise that",
                      *number, reading->payload_bytes_max);
    return STATUS_OK;
}

/* Values that a rule for topics of projections may set: those that change no document and no
 * journal. */
static enum status check_projection_owned(struct reading *reading, const struct topic_rule *rule,
                                          enum topic_rule_key key) {
    bool is_limit =
        key == TOPIC_RULE_PUBLISH_RATE_PER_SECOND || key == TOPIC_RULE_MAX_PAYLOAD_BYTES;
    if (!is_limit && key != TOPIC_RULE_REPLAY_BUDGET_EVENTS)
        return refuse(reading,
                      "'%.*s' is owned by a projection, which takes only "
                      "publish_rate_per_second, max_payload_bytes and "
                      "replay_budget_events, not %s",
                      SHOWN(rule->pattern), topic_rule_key_name(key));
    if (is_limit && topic_has_documents_only(topic_kind_of(rule->pattern, NULL)))
        return refuse(reading,
                      "'%.*s' has documents only, which no client publishes: %s has no "
                      "effect",
                      SHOWN(rule->pattern), topic_rule_key_name(key));
    return STATUS_OK;
}

static enum status read_value(struct reading *reading, struct topic_rule *rule, struct slice word) {
    const char *equals = memchr(word.data, '=', word.size);
    if (!equals)
        return refuse(reading, "'%.*s' is not KEY=VALUE", SHOWN(word));
    struct slice name = {word.data, (size_t)(equals - word.data)};
    struct slice text = slice_from(word, name.size + 1);
    unsigned index = 0;
    while (index < TOPIC_RULE_KEY_COUNT &&
           !slice_equal(name, slice_of(topic_rule_key_name((enum topic_rule_key)index))))
        index++;
    if (index == TOPIC_RULE_KEY_COUNT)
        return refuse(reading,
                      "'%.*s' is no key; there are class, qos_tier, replay_budget_events, "
                      "retention_seconds, publish_rate_per_second and max_payload_bytes",
                      SHOWN(name));
    enum topic_rule_key key = (enum topic_rule_key)index;
    if (topic_rule_gives(rule, key))
        return refuse(reading, "%s is given twice", topic_rule_key_name(key));
    if (rule->is_projection_owned && check_projection_owned(reading, rule, key) != STATUS_OK)
        return STATUS_INVALID_CONFIG;
    rule->given |= 1u << key;
    if (key == TOPIC_RULE_CLASS)
        return read_class(reading, text, &rule->values[key]);
    if (key == TOPIC_RULE_QOS_TIER)
        return read_tier(reading, text, &rule->values[key]);
    return read_number(reading, key, text, &rule->values[key]);
}

/* ---- lines ---- */

static enum status read_line(struct reading *reading, struct slice line) {
    struct topic_rules *rules = reading->rules;
    if (memchr(line.data, '\0', line.size) || !utf8_valid(line))
        return refuse(reading, "the line is not text in UTF-8");
    struct slice word = take_word(&line);
    if (word.size == 0)
        return STATUS_OK;
    if (rules->count == TOPIC_RULES_MAX)
        return refuse(reading, "a file has at most %d rules", TOPIC_RULES_MAX);
    struct topic_rule *rule = &rules->rules[rules->count];
    enum status status = read_pattern(reading, rule, word);
    while (status == STATUS_OK && (word = take_word(&line)).size > 0)
        status = read_value(reading, rule, word);
    if (status == STATUS_OK && rule->given == 0)
        return refuse(reading, "'%.*s' sets nothing: give KEY=VALUE", SHOWN(rule->pattern));
    rules->count += status == STATUS_OK;
    return status;
}

enum status topics_file_parse(struct topic_rules *rules, struct slice text,
                              uint64_t payload_bytes_max, struct topics_file_error *error) {
    struct reading reading = {
        .rules = rules, .payload_bytes_max = payload_bytes_max, .error = error};
    uint8_t digest[SHA256_BYTES];
    rules->count = rules->class_count = 0;
    *error = (struct topics_file_error){0};
    if (text.size > TOPICS_FILE_BYTES_MAX)
        return refuse(&reading, "the file has more than %d bytes", TOPICS_FILE_BYTES_MAX);
    sha256(text.data, text.size, digest);
    hex_write(rules->hash, digest, sizeof(digest));
    rules->hash[TOPIC_RULES_HASH_SIZE - 1] = '\0';
    /* Some editors begin a file with this mark, which shows as nothing. */
    if (slice_starts(text, SLICE("\xEF\xBB\xBF")))
        text = slice_from(text, 3);
    while (text.size > 0) {
        const char *end = memchr(text.data, '\n', text.size);
        struct slice line = {text.data, end ? (size_t)(end - text.data) : text.size};
        text = slice_from(text, end ? line.size + 1 : line.size);
        if (line.size > 0 && line.data[line.size - 1] == '\r')
            line.size--;
        reading.line++;
        if (line.size > 0 && read_line(&reading, line) != STATUS_OK)
            return STATUS_INVALID_CONFIG;
    }
    return STATUS_OK;
}
