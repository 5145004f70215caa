#include "topic/policy.h"

#include <assert.h>
#include <string.h>

#include "base/decimal.h"

static const struct policy defaults[POLICY_ROW_COUNT] = {
    [POLICY_RUN_SUMMARIES] =
        {
            .topic_class = TOPIC_CLASS_DURABLE_SUMMARY,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
            .replay_budget_events = 20000,
            .retention_seconds = 604800,
            .snapshot_document = DOCUMENT_RUN_SUMMARY,
            .snapshot_cadence_seconds = 300,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 1000,
            .max_payload_bytes = 65536,
        },
    [POLICY_CODEX_WORKER_SUMMARIES] =
        {
            .topic_class = TOPIC_CLASS_DURABLE_SUMMARY,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE,
            .replay_budget_events = 10000,
            .retention_seconds = 259200,
            .snapshot_document = DOCUMENT_WORKER_SUMMARY,
            .snapshot_cadence_seconds = 120,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 1000,
            .max_payload_bytes = 65536,
        },
    [POLICY_CODEX_WORKER_EVENTS] =
        {
            .topic_class = TOPIC_CLASS_HIGH_CHURN_EVENTS,
            .qos_tier = QOS_TIER_HOT,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 3000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_CODEX_WORKER_EVENTS,
            .publish_rate_per_second = 1000,
            .max_payload_bytes = 131072,
        },
    [POLICY_NOTIFICATIONS] =
        {
            .topic_class = TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS,
            .qos_tier = QOS_TIER_COLD,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 500,
            .retention_seconds = 43200,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 1000,
            .max_payload_bytes = 65536,
        },
    [POLICY_RUN_EVENTS] =
        {
            .topic_class = TOPIC_CLASS_RUN_EVENTS,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 20000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_RUN_EVENTS,
            .publish_rate_per_second = 2000,
            .max_payload_bytes = 262144,
        },
    [POLICY_WORKER_LIFECYCLE] =
        {
            .topic_class = TOPIC_CLASS_WORKER_LIFECYCLE,
            .qos_tier = QOS_TIER_WARM,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 10000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_WORKER_LIFECYCLE,
            .publish_rate_per_second = 1000,
            .max_payload_bytes = 65536,
        },
    [POLICY_FALLBACK] =
        {
            .topic_class = TOPIC_CLASS_FALLBACK,
            .qos_tier = QOS_TIER_COLD,
            .compaction_mode = COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT,
            .replay_budget_events = 20000,
            .retention_seconds = 86400,
            .snapshot_document = DOCUMENT_NONE,
            .publish_class = PUBLISH_CLASS_FALLBACK,
            .publish_rate_per_second = 1000,
            .max_payload_bytes = 65536,
        },
};

void policy_table_init(struct policy_table *table) {
    memcpy(table->rows, defaults, sizeof(table->rows));
    table->rules = NULL;
}

const struct policy *policy_default(enum policy_row row) {
    assert((unsigned)row < POLICY_ROW_COUNT);
    return &defaults[row];
}

enum policy_row policy_row_of(struct slice topic) {
    return topic_row(topic_kind_of(topic, NULL))->policy;
}

/* ---- the settings ----------------------------------------------------------------------- */

/* Names are written in full, so that a search for a setting finds its definition. */
static const struct {
    const char *name;
    enum policy_row row;
    enum policy_field field;
} keys[] = {
    {"RUNTIME_KHALA_RUN_EVENTS_PUBLISH_RATE_PER_SECOND", POLICY_RUN_EVENTS,
     POLICY_FIELD_PUBLISH_RATE_PER_SECOND},
    {"RUNTIME_KHALA_RUN_EVENTS_MAX_PAYLOAD_BYTES", POLICY_RUN_EVENTS,
     POLICY_FIELD_MAX_PAYLOAD_BYTES},
    {"RUNTIME_KHALA_RUN_EVENTS_REPLAY_BUDGET_EVENTS", POLICY_RUN_EVENTS,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_RUN_EVENTS_RETENTION_SECONDS", POLICY_RUN_EVENTS,
     POLICY_FIELD_RETENTION_SECONDS},
    {"RUNTIME_KHALA_WORKER_LIFECYCLE_PUBLISH_RATE_PER_SECOND", POLICY_WORKER_LIFECYCLE,
     POLICY_FIELD_PUBLISH_RATE_PER_SECOND},
    {"RUNTIME_KHALA_WORKER_LIFECYCLE_MAX_PAYLOAD_BYTES", POLICY_WORKER_LIFECYCLE,
     POLICY_FIELD_MAX_PAYLOAD_BYTES},
    {"RUNTIME_KHALA_WORKER_LIFECYCLE_REPLAY_BUDGET_EVENTS", POLICY_WORKER_LIFECYCLE,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_WORKER_LIFECYCLE_RETENTION_SECONDS", POLICY_WORKER_LIFECYCLE,
     POLICY_FIELD_RETENTION_SECONDS},
    {"RUNTIME_KHALA_CODEX_WORKER_EVENTS_PUBLISH_RATE_PER_SECOND", POLICY_CODEX_WORKER_EVENTS,
     POLICY_FIELD_PUBLISH_RATE_PER_SECOND},
    {"RUNTIME_KHALA_CODEX_WORKER_EVENTS_MAX_PAYLOAD_BYTES", POLICY_CODEX_WORKER_EVENTS,
     POLICY_FIELD_MAX_PAYLOAD_BYTES},
    {"RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS", POLICY_CODEX_WORKER_EVENTS,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_CODEX_WORKER_EVENTS_RETENTION_SECONDS", POLICY_CODEX_WORKER_EVENTS,
     POLICY_FIELD_RETENTION_SECONDS},
    {"RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND", POLICY_FALLBACK,
     POLICY_FIELD_PUBLISH_RATE_PER_SECOND},
    {"RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES", POLICY_FALLBACK, POLICY_FIELD_MAX_PAYLOAD_BYTES},
    {"RUNTIME_KHALA_FALLBACK_REPLAY_BUDGET_EVENTS", POLICY_FALLBACK,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS", POLICY_FALLBACK, POLICY_FIELD_RETENTION_SECONDS},
    {"RUNTIME_KHALA_RUN_SUMMARIES_REPLAY_BUDGET_EVENTS", POLICY_RUN_SUMMARIES,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_RUN_SUMMARIES_RETENTION_SECONDS", POLICY_RUN_SUMMARIES,
     POLICY_FIELD_RETENTION_SECONDS},
    {"RUNTIME_KHALA_RUN_SUMMARIES_SNAPSHOT_CADENCE_SECONDS", POLICY_RUN_SUMMARIES,
     POLICY_FIELD_SNAPSHOT_CADENCE_SECONDS},
    {"RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_REPLAY_BUDGET_EVENTS", POLICY_CODEX_WORKER_SUMMARIES,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_RETENTION_SECONDS", POLICY_CODEX_WORKER_SUMMARIES,
     POLICY_FIELD_RETENTION_SECONDS},
    {"RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_SNAPSHOT_CADENCE_SECONDS", POLICY_CODEX_WORKER_SUMMARIES,
     POLICY_FIELD_SNAPSHOT_CADENCE_SECONDS},
    {"RUNTIME_KHALA_NOTIFICATIONS_REPLAY_BUDGET_EVENTS", POLICY_NOTIFICATIONS,
     POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {"RUNTIME_KHALA_NOTIFICATIONS_RETENTION_SECONDS", POLICY_NOTIFICATIONS,
     POLICY_FIELD_RETENTION_SECONDS},
};

#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

/* No value may be zero: a topic without publishers or without replay would be a silent outage. */
static const struct {
    const char *about;
    size_t offset;
    uint64_t value_min;
    uint64_t value_max;
} fields[POLICY_FIELD_COUNT] = {
    [POLICY_FIELD_PUBLISH_RATE_PER_SECOND] =
        {"events per second that one producer may publish to one topic",
         offsetof(struct policy, publish_rate_per_second), 1, 1000000},
    [POLICY_FIELD_MAX_PAYLOAD_BYTES] = {"largest payload of one event",
                                        offsetof(struct policy, max_payload_bytes), 1, 16777216},
    [POLICY_FIELD_REPLAY_BUDGET_EVENTS] =
        {"events a cursor may lag behind the head and still resume",
         offsetof(struct policy, replay_budget_events), 1, 100000000},
    [POLICY_FIELD_RETENTION_SECONDS] = {"age at which retention prunes frames",
                                        offsetof(struct policy, retention_seconds), 1, 315360000},
    [POLICY_FIELD_SNAPSHOT_CADENCE_SECONDS] = {"age up to which clients share one snapshot",
                                               offsetof(struct policy, snapshot_cadence_seconds), 1,
                                               86400},
};

static uint64_t field_read(const struct policy *policy, enum policy_field field) {
    uint64_t value;
    memcpy(&value, (const char *)policy + fields[field].offset, sizeof(value));
    return value;
}

static bool is_publish_limit(enum policy_field field) {
    return field == POLICY_FIELD_PUBLISH_RATE_PER_SECOND || field == POLICY_FIELD_MAX_PAYLOAD_BYTES;
}

const char *policy_setting(enum policy_row row, enum policy_field field) {
    if (is_publish_limit(field))
        return policy_publish_setting(policy_default(row)->publish_class, field);
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (keys[i].field == field && keys[i].row == row)
            return keys[i].name;
    return NULL;
}

const char *policy_publish_setting(enum publish_class publish_class, enum policy_field field) {
    assert(is_publish_limit(field));
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (keys[i].field == field && policy_default(keys[i].row)->publish_class == publish_class)
            return keys[i].name;
    assert(0 && "every publish class has settings");
    return "";
}

size_t policy_key_count(void) {
    return KEY_COUNT;
}

struct policy_key policy_key_at(size_t index) {
    assert(index < KEY_COUNT);
    enum policy_field field = keys[index].field;
    return (struct policy_key){
        .name = keys[index].name,
        .about = fields[field].about,
        .row = keys[index].row,
        .field = field,
        .value_default = field_read(policy_default(keys[index].row), field),
        .value_min = fields[field].value_min,
        .value_max = fields[field].value_max,
    };
}

uint64_t policy_table_get(const struct policy_table *table, const struct policy_key *key) {
    return field_read(&table->rows[key->row], key->field);
}

enum status policy_table_set(struct policy_table *table, struct slice name, struct slice value) {
    size_t index = 0;
    while (index < KEY_COUNT && !slice_equal(slice_of(keys[index].name), name))
        index++;
    if (index == KEY_COUNT)
        return STATUS_NOT_FOUND;
    struct policy_key key = policy_key_at(index);
    uint64_t number = 0;
    if (!decimal_parse_u64(value, &number) || number < key.value_min || number > key.value_max)
        return STATUS_INVALID_CONFIG;
    enum publish_class publish_class = table->rows[key.row].publish_class;
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
        bool shares_limit =
            is_publish_limit(key.field) && table->rows[row].publish_class == publish_class;
        if (row == key.row || shares_limit)
            memcpy((char *)&table->rows[row] + fields[key.field].offset, &number, sizeof(number));
    }
    return STATUS_OK;
}

/* ---- rules ------------------------------------------------------------------------------ */

static const struct {
    enum topic_rule_key key;
    enum policy_field field;
} rule_fields[] = {
    {TOPIC_RULE_REPLAY_BUDGET_EVENTS, POLICY_FIELD_REPLAY_BUDGET_EVENTS},
    {TOPIC_RULE_RETENTION_SECONDS, POLICY_FIELD_RETENTION_SECONDS},
    {TOPIC_RULE_PUBLISH_RATE_PER_SECOND, POLICY_FIELD_PUBLISH_RATE_PER_SECOND},
    {TOPIC_RULE_MAX_PAYLOAD_BYTES, POLICY_FIELD_MAX_PAYLOAD_BYTES},
};

#define RULE_FIELD_COUNT (sizeof(rule_fields) / sizeof(rule_fields[0]))

static enum policy_field rule_field(enum topic_rule_key key) {
    size_t i = 0;
    while (i + 1 < RULE_FIELD_COUNT && rule_fields[i].key != key)
        i++;
    assert(rule_fields[i].key == key);
    return rule_fields[i].field;
}

const char *policy_rule_about(enum topic_rule_key key) {
    return fields[rule_field(key)].about;
}

struct policy_range policy_rule_range(enum topic_rule_key key) {
    enum policy_field field = rule_field(key);
    return (struct policy_range){fields[field].value_min, fields[field].value_max};
}

void policy_rules_init(struct policy_table *table, struct policy_rules *rules) {
    assert(!table->rules);
    memset(rules, 0, sizeof(*rules));
    pthread_rwlock_init(&rules->lock, NULL);
    table->rules = rules;
}

void policy_rules_release(struct policy_table *table) {
    if (table->rules)
        pthread_rwlock_destroy(&table->rules->lock);
    table->rules = NULL;
}

static bool is_same(const struct policy *a, const struct policy *b) {
    for (unsigned field = 0; field < POLICY_FIELD_COUNT; field++)
        if (field_read(a, (enum policy_field)field) != field_read(b, (enum policy_field)field))
            return false;
    return a->topic_class == b->topic_class && a->publish_class == b->publish_class &&
           a->qos_tier == b->qos_tier && a->compaction_mode == b->compaction_mode &&
           a->snapshot_document == b->snapshot_document && a->declared == b->declared;
}

/* The kept policy with these values; NULL: there is no room for it. */
static const struct policy *keep(struct policy_rules *rules, const struct policy *policy) {
    for (size_t i = 0; i < rules->kept_count; i++)
        if (is_same(&rules->kept[i], policy))
            return &rules->kept[i];
    if (rules->kept_count == POLICIES_KEPT_MAX)
        return NULL;
    rules->kept[rules->kept_count] = *policy;
    return &rules->kept[rules->kept_count++];
}

static struct policy apply(const struct topic_rule *rule, const enum topic_class *classes,
                           const struct policy *row) {
    struct policy policy = *row;
    policy.declared = rule->given;
    if (topic_rule_gives(rule, TOPIC_RULE_CLASS))
        policy.topic_class = classes[rule->values[TOPIC_RULE_CLASS]];
    if (topic_rule_gives(rule, TOPIC_RULE_QOS_TIER))
        policy.qos_tier = (enum qos_tier)rule->values[TOPIC_RULE_QOS_TIER];
    for (size_t i = 0; i < RULE_FIELD_COUNT; i++)
        if (topic_rule_gives(rule, rule_fields[i].key))
            memcpy((char *)&policy + fields[rule_fields[i].field].offset,
                   &rule->values[rule_fields[i].key], sizeof(uint64_t));
    return policy;
}

/* A class keeps its name as long as the process lives, because metrics have counted under it. */
static enum status name_classes(const struct topic_rules *rules, enum topic_class *classes);

enum status policy_rules_replace(struct policy_table *table, const struct topic_rules *rules,
                                 const struct topic_rules **before) {
    struct policy_rules *in_force = table->rules;
    const struct policy *by_rule[TOPIC_RULES_MAX][POLICY_ROW_COUNT] = {{NULL}};
    enum topic_class classes[TOPIC_RULE_CLASSES_MAX];
    assert(in_force);
    enum status status = rules ? name_classes(rules, classes) : STATUS_OK;
    /* Only this function writes to what is kept, and readers have pointers to whole policies. */
    for (size_t i = 0; status == STATUS_OK && rules && i < rules->count; i++) {
        const struct topic_rule *rule = &rules->rules[i];
        for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
            if (!rule->is_projection_owned && row != POLICY_FALLBACK)
                continue;
            const struct policy policy = apply(rule, classes, &table->rows[row]);
            by_rule[i][row] = keep(in_force, &policy);
            if (!by_rule[i][row])
                status = STATUS_LIMIT_REACHED;
        }
    }
    if (status != STATUS_OK)
        return status;
    pthread_rwlock_wrlock(&in_force->lock);
    *before = in_force->rules;
    in_force->rules = rules;
    memcpy(in_force->by_rule, by_rule, sizeof(by_rule));
    atomic_fetch_add_explicit(&in_force->generation, 1, memory_order_release);
    pthread_rwlock_unlock(&in_force->lock);
    return STATUS_OK;
}

/* reason may be NULL. */
static const struct policy *find_policy(const struct policy_table *table, struct slice topic,
                                        struct policy_reason *reason) {
    enum policy_row row = policy_row_of(topic);
    struct policy_rules *in_force = table->rules;
    const struct policy *policy = &table->rows[row];
    if (!in_force || policy_generation(table) == 0)
        return policy;
    pthread_rwlock_rdlock(&in_force->lock);
    const struct topic_rule *rule =
        in_force->rules ? topic_rules_find(in_force->rules, topic) : NULL;
    if (rule) {
        policy = in_force->by_rule[rule - in_force->rules->rules][row];
        assert(policy);
        if (reason) {
            reason->line = rule->line;
            reason->pattern_size = rule->pattern.size;
            memcpy(reason->pattern, rule->pattern.data, rule->pattern.size);
        }
    }
    pthread_rwlock_unlock(&in_force->lock);
    return policy;
}

const struct policy *policy_of(const struct policy_table *table, struct slice topic) {
    return find_policy(table, topic, NULL);
}

const struct policy *policy_of_entity(const struct policy_table *table, enum entity_kind kind,
                                      struct slice id) {
    enum topic_kind topic = entity_row(kind)->topic;
    const char *pattern = topic_row(topic)->pattern;
    char name[TOPIC_NAME_BYTES_MAX * 2];
    /* The id of an application topic is its name, which may be one of the table (notifications). */
    if (topic == TOPIC_APPLICATION)
        return policy_of(table, id);
    size_t size = topic_pattern_size(pattern, id);
    if (policy_generation(table) == 0 || size > sizeof(name))
        return &table->rows[topic_row(topic)->policy];
    topic_pattern_fill(pattern, id, name);
    return policy_of(table, (struct slice){name, size});
}

size_t policy_rules_hash(const struct policy_table *table, char hash[TOPIC_RULES_HASH_SIZE]) {
    struct policy_rules *in_force = table->rules;
    size_t count = 0;
    *hash = '\0';
    if (!in_force)
        return 0;
    pthread_rwlock_rdlock(&in_force->lock);
    if (in_force->rules) {
        memcpy(hash, in_force->rules->hash, TOPIC_RULES_HASH_SIZE);
        count = in_force->rules->count;
    }
    pthread_rwlock_unlock(&in_force->lock);
    return count;
}

uint64_t policy_largest_payload_of(const struct policy_table *table, enum policy_row row) {
    uint64_t largest = table->rows[row].max_payload_bytes;
    struct policy_rules *in_force = table->rules;
    if (!in_force)
        return largest;
    pthread_rwlock_rdlock(&in_force->lock);
    for (size_t i = 0; in_force->rules && i < in_force->rules->count; i++) {
        const struct policy *policy = in_force->by_rule[i][row];
        if (policy && policy->max_payload_bytes > largest)
            largest = policy->max_payload_bytes;
    }
    pthread_rwlock_unlock(&in_force->lock);
    return largest;
}

uint64_t policy_largest_payload(const struct policy_table *table) {
    uint64_t largest = 0;
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
        uint64_t of_row = policy_largest_payload_of(table, (enum policy_row)row);
        largest = of_row > largest ? of_row : largest;
    }
    return largest;
}

void policy_explain(const struct policy_table *table, struct slice topic,
                    struct policy_reason *reason) {
    *reason = (struct policy_reason){.line = 0};
    reason->policy = find_policy(table, topic, reason);
}

/* ---- the words of the table ------------------------------------------------------------- */

static const char *const class_names[TOPIC_CLASS_DECLARED] = {
    [TOPIC_CLASS_DURABLE_SUMMARY] = "durable_summary",
    [TOPIC_CLASS_HIGH_CHURN_EVENTS] = "high_churn_events",
    [TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS] = "ephemeral_notifications",
    [TOPIC_CLASS_RUN_EVENTS] = "run_events",
    [TOPIC_CLASS_WORKER_LIFECYCLE] = "worker_lifecycle",
    [TOPIC_CLASS_FALLBACK] = "fallback",
};

/* Of the process, as its metrics are. A name is written before the count that shows it. */
static struct {
    pthread_mutex_t lock;
    atomic_uint count;
    char names[TOPIC_RULE_CLASSES_MAX][TOPIC_CLASS_BYTES_MAX + 1];
} declared = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *topic_class_name(enum topic_class topic_class) {
    assert((unsigned)topic_class < TOPIC_CLASS_COUNT);
    if (topic_class < TOPIC_CLASS_DECLARED)
        return class_names[topic_class];
    unsigned index = topic_class - TOPIC_CLASS_DECLARED;
    return index < atomic_load_explicit(&declared.count, memory_order_acquire)
               ? declared.names[index]
               : NULL;
}

bool topic_class_of(struct slice name, enum topic_class *topic_class) {
    for (unsigned i = 0; i < TOPIC_CLASS_COUNT; i++) {
        const char *known = topic_class_name((enum topic_class)i);
        if (known && slice_equal(name, slice_of(known))) {
            *topic_class = (enum topic_class)i;
            return true;
        }
    }
    return false;
}

static enum status name_classes(const struct topic_rules *rules, enum topic_class *classes) {
    size_t new_count = 0;
    pthread_mutex_lock(&declared.lock);
    unsigned count = atomic_load(&declared.count);
    for (size_t i = 0; i < rules->class_count; i++)
        new_count += !topic_class_of(rules->classes[i], &classes[i]);
    bool has_room = count + new_count <= TOPIC_RULE_CLASSES_MAX;
    for (size_t i = 0; has_room && i < rules->class_count; i++) {
        struct slice name = rules->classes[i];
        if (topic_class_of(name, &classes[i]))
            continue;
        memcpy(declared.names[count], name.data, name.size);
        classes[i] = (enum topic_class)(TOPIC_CLASS_DECLARED + count++);
        atomic_store_explicit(&declared.count, count, memory_order_release);
    }
    pthread_mutex_unlock(&declared.lock);
    return has_room ? STATUS_OK : STATUS_LIMIT_REACHED;
}

bool policy_class_is_built_in(struct slice name) {
    for (unsigned i = 0; i < TOPIC_CLASS_DECLARED; i++)
        if (slice_equal(name, slice_of(class_names[i])))
            return true;
    for (unsigned i = 0; i < PUBLISH_CLASS_COUNT; i++)
        if (slice_equal(name, slice_of(publish_class_name((enum publish_class)i))))
            return true;
    return slice_equal(name, SLICE("none"));
}

const char *publish_class_name(enum publish_class publish_class) {
    static const char *const names[PUBLISH_CLASS_COUNT] = {
        [PUBLISH_CLASS_RUN_EVENTS] = "run_events",
        [PUBLISH_CLASS_WORKER_LIFECYCLE] = "worker_lifecycle",
        [PUBLISH_CLASS_CODEX_WORKER_EVENTS] = "codex_worker_events",
        [PUBLISH_CLASS_FALLBACK] = "fallback",
    };
    assert((unsigned)publish_class < PUBLISH_CLASS_COUNT);
    return names[publish_class];
}

const char *qos_tier_name(enum qos_tier qos_tier) {
    static const char *const names[QOS_TIER_COUNT] = {
        [QOS_TIER_HOT] = "hot",
        [QOS_TIER_WARM] = "warm",
        [QOS_TIER_COLD] = "cold",
    };
    assert((unsigned)qos_tier < QOS_TIER_COUNT);
    return names[qos_tier];
}

const char *compaction_mode_name(enum compaction_mode mode) {
    static const char *const names[COMPACTION_MODE_COUNT] = {
        [COMPACTION_TAIL_PRUNE_WITH_SNAPSHOT_REHYDRATE] = "tail_prune_with_snapshot_rehydrate",
        [COMPACTION_TAIL_PRUNE_WITHOUT_SNAPSHOT] = "tail_prune_without_snapshot",
    };
    assert((unsigned)mode < COMPACTION_MODE_COUNT);
    return names[mode];
}
