#include "test.h"
#include "topic/policy.h"

static struct slice number_text(char *memory, size_t size, uint64_t number) {
    snprintf(memory, size, "%llu", (unsigned long long)number);
    return slice_of(memory);
}

static const struct policy_key *find(struct policy_key *key, const char *name) {
    for (size_t i = 0; i < policy_key_count(); i++) {
        *key = policy_key_at(i);
        if (strcmp(key->name, name) == 0)
            return key;
    }
    fail_msg("no key %s", name);
    return NULL;
}

static void the_specified_settings_exist_with_their_defaults(void **state) {
    (void)state;
    static const struct {
        const char *stem;
        uint64_t rate, budget, payload;
    } stems[] = {
        {"RUN_EVENTS", 2000, 20000, 262144},
        {"WORKER_LIFECYCLE", 1000, 10000, 65536},
        {"CODEX_WORKER_EVENTS", 1000, 3000, 131072},
        {"FALLBACK", 1000, 20000, 65536},
    };
    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++) {
        char name[100];
        struct policy_key key;
        snprintf(name, sizeof(name), "RUNTIME_KHALA_%s_PUBLISH_RATE_PER_SECOND", stems[i].stem);
        assert_int_equal(find(&key, name)->value_default, stems[i].rate);
        snprintf(name, sizeof(name), "RUNTIME_KHALA_%s_REPLAY_BUDGET_EVENTS", stems[i].stem);
        assert_int_equal(find(&key, name)->value_default, stems[i].budget);
        snprintf(name, sizeof(name), "RUNTIME_KHALA_%s_MAX_PAYLOAD_BYTES", stems[i].stem);
        assert_int_equal(find(&key, name)->value_default, stems[i].payload);
    }
}

static void every_number_of_every_row_has_a_key(void **state) {
    (void)state;
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
        for (size_t field = 0; field < POLICY_FIELD_COUNT; field++) {
            const struct policy *policy = policy_default((enum policy_row)row);
            bool is_limit = field == POLICY_FIELD_PUBLISH_RATE_PER_SECOND ||
                            field == POLICY_FIELD_MAX_PAYLOAD_BYTES;
            bool expected = true;
            if (is_limit && policy->publish_class == PUBLISH_CLASS_FALLBACK)
                expected = row == POLICY_FALLBACK;
            if (field == POLICY_FIELD_SNAPSHOT_CADENCE_SECONDS)
                expected = policy_has_snapshot(policy);
            size_t count = 0;
            for (size_t i = 0; i < policy_key_count(); i++)
                count += policy_key_at(i).row == row && policy_key_at(i).field == field;
            assert_int_equal(count, expected);
        }
    }
}

static void keys_are_unique_documented_and_have_defaults_in_bounds(void **state) {
    (void)state;
    for (size_t i = 0; i < policy_key_count(); i++) {
        struct policy_key key = policy_key_at(i);
        assert_true(strncmp(key.name, "RUNTIME_KHALA_", 14) == 0);
        assert_true(strlen(key.about) > 0);
        assert_true(key.value_min > 0 && key.value_min <= key.value_default &&
                    key.value_default <= key.value_max);
        for (size_t other = 0; other < i; other++)
            assert_string_not_equal(key.name, policy_key_at(other).name);
    }
}

/* The number of values that differ between two tables. */
static size_t differences(const struct policy_table *a, const struct policy_table *b) {
    size_t count = 0;
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
        const struct policy *one = &a->rows[row];
        const struct policy *two = &b->rows[row];
        count += one->replay_budget_events != two->replay_budget_events;
        count += one->retention_seconds != two->retention_seconds;
        count += one->snapshot_cadence_seconds != two->snapshot_cadence_seconds;
        count += one->publish_rate_per_second != two->publish_rate_per_second;
        count += one->max_payload_bytes != two->max_payload_bytes;
    }
    return count;
}

static void a_key_changes_only_its_own_number(void **state) {
    (void)state;
    struct policy_table fresh;
    policy_table_init(&fresh);
    for (size_t i = 0; i < policy_key_count(); i++) {
        struct policy_key key = policy_key_at(i);
        struct policy_table table;
        char text[32];
        policy_table_init(&table);
        assert_int_equal(policy_table_get(&table, &key), key.value_default);
        assert_ok(policy_table_set(&table, slice_of(key.name), number_text(text, 32, 77)));
        assert_int_equal(policy_table_get(&table, &key), 77);
        bool is_shared =
            key.row == POLICY_FALLBACK && (key.field == POLICY_FIELD_PUBLISH_RATE_PER_SECOND ||
                                           key.field == POLICY_FIELD_MAX_PAYLOAD_BYTES);
        assert_int_equal(differences(&table, &fresh), is_shared ? 4 : 1);
    }
}

static void each_field_is_stored_in_its_member(void **state) {
    (void)state;
    struct policy_table table;
    policy_table_init(&table);
    assert_ok(policy_table_set(&table, SLICE("RUNTIME_KHALA_FALLBACK_PUBLISH_RATE_PER_SECOND"),
                               SLICE("11")));
    assert_ok(
        policy_table_set(&table, SLICE("RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES"), SLICE("12")));
    assert_ok(policy_table_set(
        &table, SLICE("RUNTIME_KHALA_CODEX_WORKER_EVENTS_REPLAY_BUDGET_EVENTS"), SLICE("13")));
    assert_ok(policy_table_set(&table, SLICE("RUNTIME_KHALA_RUN_SUMMARIES_RETENTION_SECONDS"),
                               SLICE("14")));
    assert_ok(policy_table_set(
        &table, SLICE("RUNTIME_KHALA_CODEX_WORKER_SUMMARIES_SNAPSHOT_CADENCE_SECONDS"),
        SLICE("15")));
    assert_int_equal(policy_of(&table, SLICE("chat"))->publish_rate_per_second, 11);
    assert_int_equal(policy_of(&table, SLICE("runtime.notifications"))->publish_rate_per_second,
                     11);
    assert_int_equal(policy_of(&table, SLICE("runtime.run_summaries"))->max_payload_bytes, 12);
    assert_int_equal(policy_of(&table, SLICE("run:1:events"))->publish_rate_per_second, 2000);
    assert_int_equal(policy_of(&table, SLICE("runtime.codex_worker_events"))->replay_budget_events,
                     13);
    assert_int_equal(policy_of(&table, SLICE("runtime.run_summaries"))->retention_seconds, 14);
    assert_int_equal(
        policy_of(&table, SLICE("runtime.codex_worker_summaries"))->snapshot_cadence_seconds, 15);
}

static void the_bounds_are_inclusive(void **state) {
    (void)state;
    for (size_t i = 0; i < policy_key_count(); i++) {
        struct policy_key key = policy_key_at(i);
        struct policy_table table;
        char text[32];
        policy_table_init(&table);
        struct slice name = slice_of(key.name);
        assert_ok(policy_table_set(&table, name, number_text(text, 32, key.value_min)));
        assert_ok(policy_table_set(&table, name, number_text(text, 32, key.value_max)));
        assert_int_equal(policy_table_set(&table, name, number_text(text, 32, key.value_min - 1)),
                         STATUS_INVALID_CONFIG);
        assert_int_equal(policy_table_set(&table, name, number_text(text, 32, key.value_max + 1)),
                         STATUS_INVALID_CONFIG);
        assert_int_equal(policy_table_get(&table, &key), key.value_max);
    }
}

static void bad_values_and_unknown_names_change_nothing(void **state) {
    (void)state;
    static const char *const values[] = {"",    " 5",  "5 ",   "-5", "+5",
                                         "5.0", "0x5", "five", "05", "99999999999999999999"};
    struct policy_table fresh;
    struct policy_table table;
    policy_table_init(&fresh);
    policy_table_init(&table);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        assert_int_equal(policy_table_set(&table, SLICE("RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES"),
                                          slice_of(values[i])),
                         STATUS_INVALID_CONFIG);
    static const char *const names[] = {"", "RUNTIME_KHALA_FALLBACK", "PATH",
                                        "runtime_khala_fallback_max_payload_bytes",
                                        "RUNTIME_KHALA_FALLBACK_MAX_PAYLOAD_BYTES "};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(policy_table_set(&table, slice_of(names[i]), SLICE("5")),
                         STATUS_NOT_FOUND);
    assert_int_equal(differences(&table, &fresh), 0);
}

static void each_publish_class_has_a_setting_for_each_limit(void **state) {
    (void)state;
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
        struct policy_table table;
        enum publish_class publish_class = policy_default((enum policy_row)row)->publish_class;
        policy_table_init(&table);
        for (unsigned field = 0; field <= POLICY_FIELD_MAX_PAYLOAD_BYTES; field++) {
            const char *name = policy_publish_setting(publish_class, (enum policy_field)field);
            assert_ok(policy_table_set(&table, slice_of(name), SLICE("77")));
        }
        assert_int_equal(table.rows[row].publish_rate_per_second, 77);
        assert_int_equal(table.rows[row].max_payload_bytes, 77);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_specified_settings_exist_with_their_defaults),
        cmocka_unit_test(every_number_of_every_row_has_a_key),
        cmocka_unit_test(keys_are_unique_documented_and_have_defaults_in_bounds),
        cmocka_unit_test(a_key_changes_only_its_own_number),
        cmocka_unit_test(each_field_is_stored_in_its_member),
        cmocka_unit_test(the_bounds_are_inclusive),
        cmocka_unit_test(each_publish_class_has_a_setting_for_each_limit),
        cmocka_unit_test(bad_values_and_unknown_names_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
