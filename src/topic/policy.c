#include "topic/policy.h"

#include <assert.h>

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
}

const struct policy *policy_default(enum policy_row row) {
    assert((unsigned)row < POLICY_ROW_COUNT);
    return &defaults[row];
}

enum policy_row policy_row_of(struct slice topic) {
    return topic_row(topic_kind_of(topic, NULL))->policy;
}

const struct policy *policy_of(const struct policy_table *table, struct slice topic) {
    return &table->rows[policy_row_of(topic)];
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

/* ---- the words of the table ------------------------------------------------------------- */

const char *topic_class_name(enum topic_class topic_class) {
    static const char *const names[TOPIC_CLASS_COUNT] = {
        [TOPIC_CLASS_DURABLE_SUMMARY] = "durable_summary",
        [TOPIC_CLASS_HIGH_CHURN_EVENTS] = "high_churn_events",
        [TOPIC_CLASS_EPHEMERAL_NOTIFICATIONS] = "ephemeral_notifications",
        [TOPIC_CLASS_RUN_EVENTS] = "run_events",
        [TOPIC_CLASS_WORKER_LIFECYCLE] = "worker_lifecycle",
        [TOPIC_CLASS_FALLBACK] = "fallback",
    };
    assert((unsigned)topic_class < TOPIC_CLASS_COUNT);
    return names[topic_class];
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
