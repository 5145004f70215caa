#include "test.h"
#include "topic/policy.h"

static void every_topic_has_the_row_of_its_name(void **state) {
    (void)state;
    static const struct {
        const char *topic;
        enum policy_row row;
    } cases[] = {
        {"runtime.run_summaries", POLICY_RUN_SUMMARIES},
        {"runtime.codex_worker_summaries", POLICY_CODEX_WORKER_SUMMARIES},
        {"runtime.codex_worker_events", POLICY_CODEX_WORKER_EVENTS},
        {"runtime.notifications", POLICY_NOTIFICATIONS},
        {"run:1:events", POLICY_RUN_EVENTS},
        {"run:a:b:events", POLICY_RUN_EVENTS},
        {"run::events", POLICY_RUN_EVENTS},
        {"worker:desktop:owner:lifecycle", POLICY_WORKER_LIFECYCLE},
        {"fleet:user:42:workers", POLICY_WORKER_LIFECYCLE},
        {"fleet:guest:anon:workers", POLICY_WORKER_LIFECYCLE},
        {"fleet:org:9:workers", POLICY_WORKER_LIFECYCLE},
        {"run:events", POLICY_FALLBACK},
        {"run:1:event", POLICY_FALLBACK},
        {"worker:lifecycle", POLICY_FALLBACK},
        {"fleet:workers", POLICY_FALLBACK},
        {" run:1:events", POLICY_FALLBACK},
        {"RUN:1:events", POLICY_FALLBACK},
        {"runtime.run_summaries2", POLICY_FALLBACK},
        {"runtime.run_summarie", POLICY_FALLBACK},
        {"chat:room:7", POLICY_FALLBACK},
        {"", POLICY_FALLBACK},
    };
    struct policy_table table;
    policy_table_init(&table);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(policy_row_of(slice_of(cases[i].topic)), cases[i].row);
        assert_ptr_equal(policy_of(&table, slice_of(cases[i].topic)), &table.rows[cases[i].row]);
    }
}

static void the_defaults_match_the_specification(void **state) {
    (void)state;
    static const struct {
        const char *topic, *topic_class, *qos_tier;
        uint64_t replay_budget_events, retention_seconds, snapshot_cadence_seconds;
        const char *source_table, *publish_class;
        uint64_t publish_rate_per_second, max_payload_bytes;
    } rows[] = {
        {"runtime.run_summaries", "durable_summary", "warm", 20000, 604800, 300,
         "runtime.sync_run_summaries", "fallback", 1000, 65536},
        {"runtime.codex_worker_summaries", "durable_summary", "warm", 10000, 259200, 120,
         "runtime.sync_codex_worker_summaries", "fallback", 1000, 65536},
        {"runtime.codex_worker_events", "high_churn_events", "hot", 3000, 86400, 0, NULL,
         "codex_worker_events", 1000, 131072},
        {"runtime.notifications", "ephemeral_notifications", "cold", 500, 43200, 0, NULL,
         "fallback", 1000, 65536},
        {"run:1:events", "run_events", "warm", 20000, 86400, 0, NULL, "run_events", 2000, 262144},
        {"worker:1:lifecycle", "worker_lifecycle", "warm", 10000, 86400, 0, NULL,
         "worker_lifecycle", 1000, 65536},
        {"anything else", "fallback", "cold", 20000, 86400, 0, NULL, "fallback", 1000, 65536},
    };
    _Static_assert(sizeof(rows) / sizeof(rows[0]) == POLICY_ROW_COUNT, "every policy has a row");
    struct policy_table table;
    policy_table_init(&table);
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++) {
        const struct policy *policy = policy_of(&table, slice_of(rows[i].topic));
        assert_string_equal(topic_class_name(policy->topic_class), rows[i].topic_class);
        assert_string_equal(qos_tier_name(policy->qos_tier), rows[i].qos_tier);
        assert_string_equal(publish_class_name(policy->publish_class), rows[i].publish_class);
        assert_int_equal(policy->replay_budget_events, rows[i].replay_budget_events);
        assert_int_equal(policy->retention_seconds, rows[i].retention_seconds);
        assert_int_equal(policy->snapshot_cadence_seconds, rows[i].snapshot_cadence_seconds);
        assert_int_equal(policy->publish_rate_per_second, rows[i].publish_rate_per_second);
        assert_int_equal(policy->max_payload_bytes, rows[i].max_payload_bytes);
        assert_int_equal(policy_has_snapshot(policy), rows[i].source_table != NULL);
        if (rows[i].source_table)
            assert_string_equal(document_row(policy->snapshot_document)->source_table,
                                rows[i].source_table);
        assert_string_equal(compaction_mode_name(policy->compaction_mode),
                            rows[i].source_table ? "tail_prune_with_snapshot_rehydrate"
                                                 : "tail_prune_without_snapshot");
    }
}

static void every_enumerator_has_a_name(void **state) {
    (void)state;
    for (size_t i = 0; i < TOPIC_CLASS_DECLARED; i++)
        assert_non_null(topic_class_name((enum topic_class)i));
    for (size_t i = 0; i < PUBLISH_CLASS_COUNT; i++)
        assert_non_null(publish_class_name((enum publish_class)i));
    for (size_t i = 0; i < QOS_TIER_COUNT; i++)
        assert_non_null(qos_tier_name((enum qos_tier)i));
    for (size_t i = 0; i < COMPACTION_MODE_COUNT; i++)
        assert_non_null(compaction_mode_name((enum compaction_mode)i));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_topic_has_the_row_of_its_name),
        cmocka_unit_test(the_defaults_match_the_specification),
        cmocka_unit_test(every_enumerator_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
