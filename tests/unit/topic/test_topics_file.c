#include "test.h"
#include "topic/policy.h"
#include "topic/topics_file.h"

static struct topic_rules rules;

static void assert_file_refused(const char *text, unsigned line, const char *reason) {
    struct topics_file_error error;
    assert_int_equal(topics_file_parse(&rules, slice_of(text), 0, &error), STATUS_INVALID_CONFIG);
    assert_int_equal(error.line, line);
    if (!strstr(error.text, reason))
        fail_msg("'%s' does not contain '%s'", error.text, reason);
}

static void read_file(const char *text) {
    struct topics_file_error error;
    if (topics_file_parse(&rules, slice_of(text), 0, &error) != STATUS_OK)
        fail_msg("%u: %s", error.line, error.text);
}

static const struct topic_rule *find(const char *topic) {
    return topic_rules_find(&rules, slice_of(topic));
}

static void a_file_has_a_rule_a_line(void **state) {
    (void)state;
    read_file("# rules\r\n"
              "\n"
              "  chat:*\treplay_budget_events=50000   publish_rate_per_second=200 class=chat\r\n"
              "tenant:*:feed retention_seconds=1 qos_tier=hot max_payload_bytes=16777216 # tail\n"
              "run:* publish_rate_per_second=5000");
    assert_int_equal(rules.count, 3);
    const struct topic_rule *chat = find("chat:one");
    assert_ptr_equal(chat, &rules.rules[0]);
    assert_int_equal(chat->line, 3);
    assert_int_equal(chat->values[TOPIC_RULE_REPLAY_BUDGET_EVENTS], 50000);
    assert_int_equal(chat->values[TOPIC_RULE_PUBLISH_RATE_PER_SECOND], 200);
    assert_true(topic_rule_gives(chat, TOPIC_RULE_CLASS));
    assert_false(topic_rule_gives(chat, TOPIC_RULE_QOS_TIER));
    assert_slice(rules.classes[chat->values[TOPIC_RULE_CLASS]], "chat");
    assert_int_equal(find("tenant:a:b:feed")->values[TOPIC_RULE_QOS_TIER], QOS_TIER_HOT);
    assert_int_equal(strlen(rules.hash), 64);
    read_file("\xEF\xBB\xBF"
              "chat:* class=chat");
    assert_non_null(find("chat:one"));
    read_file("");
    assert_int_equal(rules.count, 0);
}

static void the_first_rule_that_matches_decides(void **state) {
    (void)state;
    read_file("a:*:c retention_seconds=1\na:* retention_seconds=2\n* retention_seconds=3");
    assert_int_equal(find("a:b:c")->line, 1);
    assert_int_equal(find("a::c")->line, 1);
    assert_int_equal(find("a:c")->line, 2);
    assert_int_equal(find("a:")->line, 2);
    assert_int_equal(find("b")->line, 3);
    read_file("*a*b*a* retention_seconds=1");
    assert_non_null(find("aba"));
    assert_non_null(find("xxaxbxxbxax"));
    assert_null(find("ab"));
    assert_null(find("abb"));
}

static void a_rule_is_for_topics_of_one_kind(void **state) {
    (void)state;
    read_file("run:* replay_budget_events=1\nr* retention_seconds=2");
    assert_int_equal(find("run:1:events")->line, 1);
    assert_int_equal(find("room")->line, 2);
    read_file("* retention_seconds=2\nruntime.* replay_budget_events=7");
    assert_null(find("run:1:events"));
    assert_null(find("worker:1:lifecycle"));
    assert_int_equal(find("runtime.run_summaries")->line, 2);
    assert_int_equal(find("run")->line, 1);
    assert_null(find(LOG_TOPIC));
}

static void a_bad_file_is_refused_with_line_and_reason(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned line;
        const char *reason;
    } cases[] = {
        {"chat:*", 1, "sets nothing"},
        {"\nchat:* rate=5", 2, "'rate' is no key"},
        {"chat:* class", 1, "'class' is not KEY=VALUE"},
        {"chat:* class=", 1, "is not a name"},
        {"chat:* class=9a", 1, "is not a name"},
        {"chat:* class=a\"b", 1, "is not a name"},
        {"chat:* class=abcdefghijklmnopqrstuvwxyzabcdefg", 1, "is not a name"},
        {"chat:* class=fallback", 1, "built-in"},
        {"chat:* class=codex_worker_events", 1, "built-in"},
        {"chat:* class=none", 1, "built-in"},
        {"chat:* qos_tier=lukewarm", 1, "hot, warm or cold"},
        {"chat:* publish_rate_per_second=0", 1, "from 1 to 1000000"},
        {"chat:* publish_rate_per_second=1000001", 1, "from 1 to 1000000"},
        {"chat:* replay_budget_events=-1", 1, "is not a whole number"},
        {"chat:* retention_seconds=1h", 1, "is not a whole number"},
        {"chat:* max_payload_bytes=16777217", 1, "from 1 to 16777216"},
        {"chat:* class=a class=b", 1, "given twice"},
        {"a retention_seconds=1\na retention_seconds=2", 2, "in line 1"},
        {"a:* retention_seconds=1\n\na:*:b retention_seconds=2", 3, "'a:*' in line 1"},
        {"* retention_seconds=1\na retention_seconds=2", 2, "never applies"},
        {"a** retention_seconds=1", 1, "one '*' is enough"},
        {"*a*b*c*d*e retention_seconds=1", 1, "more than 4"},
        {"run:* class=mine", 1, "not class"},
        {"run:*:events retention_seconds=9", 1, "not retention_seconds"},
        {"runtime.notifications qos_tier=hot", 1, "not qos_tier"},
        {"runtime.run_summaries publish_rate_per_second=9", 1, "no effect"},
        {"fleet:user:*:workers max_payload_bytes=9", 1, "no effect"},
        {"run:abc replay_budget_events=9", 1, "reserved"},
        {"a\x01 retention_seconds=1", 1, "cannot be the pattern"},
        {"\xff retention_seconds=1", 1, "UTF-8"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_file_refused(cases[i].text, cases[i].line, cases[i].reason);
}

static void a_file_has_at_most_so_many_rules_and_classes(void **state) {
    (void)state;
    static char text[TOPIC_RULES_MAX * 64];
    size_t size = 0;
    for (int i = 0; i < TOPIC_RULES_MAX; i++)
        size += (size_t)sprintf(text + size, "t%d:* class=c%d\n", i, i % TOPIC_RULE_CLASSES_MAX);
    read_file(text);
    assert_int_equal(rules.count, TOPIC_RULES_MAX);
    assert_int_equal(rules.class_count, TOPIC_RULE_CLASSES_MAX);
    sprintf(text + size, "more class=c0");
    assert_file_refused(text, TOPIC_RULES_MAX + 1, "at most 256 rules");
    size = 0;
    for (int i = 0; i <= TOPIC_RULE_CLASSES_MAX; i++)
        size += (size_t)sprintf(text + size, "t%d:* class=c%d\n", i, i);
    assert_file_refused(text, TOPIC_RULE_CLASSES_MAX + 1, "at most 16");
}

static void a_running_server_has_room_for_payloads_up_to_those_of_its_start(void **state) {
    (void)state;
    struct topics_file_error error;
    struct slice text = SLICE("a max_payload_bytes=1000\nb max_payload_bytes=1001");
    assert_int_equal(topics_file_parse(&rules, text, 1000, &error), STATUS_INVALID_CONFIG);
    assert_int_equal(error.line, 2);
    assert_non_null(strstr(error.text, "restart"));
    assert_ok(topics_file_parse(&rules, text, 1001, &error));
}

/* ---- the rules in force ---- */

static struct policy_rules in_force;
static struct topic_rules first, second;

static void put(struct policy_table *table, struct topic_rules *next, const char *text) {
    const struct topic_rules *before;
    struct topics_file_error error;
    assert_ok(topics_file_parse(next, slice_of(text), 0, &error));
    assert_ok(policy_rules_replace(table, next, &before));
}

static void a_rule_changes_what_it_gives_and_nothing_else(void **state) {
    (void)state;
    struct policy_table table;
    policy_table_init(&table);
    policy_rules_init(&table, &in_force);
    assert_int_equal(policy_generation(&table), 0);
    put(&table, &first,
        "chat:* publish_rate_per_second=7 class=talk qos_tier=hot\n"
        "run:vip* replay_budget_events=9\nruntime.* max_payload_bytes=300000");
    assert_int_equal(policy_generation(&table), 1);
    const struct policy *chat = policy_of(&table, SLICE("chat:1"));
    assert_int_equal(chat->publish_rate_per_second, 7);
    assert_string_equal(topic_class_name(chat->topic_class), "talk");
    assert_int_equal(chat->qos_tier, QOS_TIER_HOT);
    assert_int_equal(chat->replay_budget_events, 20000);
    assert_ptr_equal(policy_of(&table, SLICE("other")), &table.rows[POLICY_FALLBACK]);
    assert_int_equal(policy_of_entity(&table, ENTITY_RUN, SLICE("vip7"))->replay_budget_events, 9);
    assert_int_equal(policy_of_entity(&table, ENTITY_RUN, SLICE("vip7"))->publish_rate_per_second,
                     2000);
    assert_ptr_equal(policy_of_entity(&table, ENTITY_RUN, SLICE("other")),
                     &table.rows[POLICY_RUN_EVENTS]);
    assert_ptr_equal(policy_of_entity(&table, ENTITY_TOPIC, SLICE("chat:1")), chat);
    const struct policy *summaries = policy_of(&table, SLICE("runtime.run_summaries"));
    assert_true(policy_has_snapshot(summaries));
    assert_int_equal(policy_largest_payload_of(&table, POLICY_RUN_EVENTS), 300000);
    assert_int_equal(policy_largest_payload_of(&table, POLICY_FALLBACK), 300000);
    struct policy_reason reason;
    policy_explain(&table, SLICE("chat:1"), &reason);
    assert_int_equal(reason.line, 1);
    assert_memory_equal(reason.pattern, "chat:*", reason.pattern_size);
    policy_explain(&table, SLICE("other"), &reason);
    assert_int_equal(reason.line, 0);
    policy_rules_release(&table);
}

static void policies_of_replaced_rules_stay_as_they_were(void **state) {
    (void)state;
    struct policy_table table;
    policy_table_init(&table);
    policy_rules_init(&table, &in_force);
    put(&table, &first, "chat:* publish_rate_per_second=7\nroom:* qos_tier=hot");
    const struct policy *chat = policy_of(&table, SLICE("chat:1"));
    const struct policy *room = policy_of(&table, SLICE("room:1"));
    put(&table, &second, "chat:* publish_rate_per_second=8\nroom:* qos_tier=hot");
    memset(&first, 0, sizeof(first));
    assert_int_equal(chat->publish_rate_per_second, 7);
    assert_int_equal(policy_of(&table, SLICE("chat:1"))->publish_rate_per_second, 8);
    /* The same values are kept once, so that repeated reloads take no more room. */
    assert_ptr_equal(policy_of(&table, SLICE("room:1")), room);
    size_t kept = in_force.kept_count;
    for (int i = 0; i < 100; i++) {
        put(&table, &first, "chat:* publish_rate_per_second=7\nroom:* qos_tier=hot");
        put(&table, &second, "chat:* publish_rate_per_second=8\nroom:* qos_tier=hot");
    }
    assert_int_equal(in_force.kept_count, kept);
    policy_rules_release(&table);
}

static void rules_without_room_leave_those_in_force(void **state) {
    (void)state;
    const struct topic_rules *before;
    struct topics_file_error error;
    struct policy_table table;
    char text[100];
    enum status status = STATUS_OK;
    policy_table_init(&table);
    policy_rules_init(&table, &in_force);
    put(&table, &first, "chat:* publish_rate_per_second=7");
    for (int i = 0; status == STATUS_OK && i <= POLICIES_KEPT_MAX; i++) {
        sprintf(text, "chat:* retention_seconds=%d", i + 1);
        assert_ok(topics_file_parse(&second, slice_of(text), 0, &error));
        put(&table, &first, "chat:* publish_rate_per_second=7");
        status = policy_rules_replace(&table, &second, &before);
        if (status == STATUS_OK)
            assert_ptr_equal(before, &first);
    }
    assert_int_equal(status, STATUS_LIMIT_REACHED);
    assert_int_equal(policy_of(&table, SLICE("chat:1"))->publish_rate_per_second, 7);
    policy_rules_release(&table);
}

/* The last test: the names are given out once in a process. */
static void class_names_are_never_given_out_again(void **state) {
    (void)state;
    const struct topic_rules *before;
    struct topics_file_error error;
    struct policy_table table;
    enum topic_class topic_class;
    char text[40];
    policy_table_init(&table);
    policy_rules_init(&table, &in_force);
    put(&table, &first, "chat:* class=talk");
    assert_true(topic_class_of(SLICE("talk"), &topic_class));
    enum status status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i <= TOPIC_RULE_CLASSES_MAX; i++) {
        sprintf(text, "chat:* class=name%d", i);
        assert_ok(topics_file_parse(&second, slice_of(text), 0, &error));
        status = policy_rules_replace(&table, &second, &before);
    }
    assert_int_equal(status, STATUS_LIMIT_REACHED);
    assert_true(topic_class_of(SLICE("name0"), &topic_class));
    assert_false(topic_class_of(SLICE("name15"), &topic_class));
    put(&table, &first, "chat:* class=talk");
    assert_string_equal(topic_class_name(policy_of(&table, SLICE("chat:1"))->topic_class), "talk");
    policy_rules_release(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_a_rule_a_line),
        cmocka_unit_test(the_first_rule_that_matches_decides),
        cmocka_unit_test(a_rule_is_for_topics_of_one_kind),
        cmocka_unit_test(a_bad_file_is_refused_with_line_and_reason),
        cmocka_unit_test(a_file_has_at_most_so_many_rules_and_classes),
        cmocka_unit_test(a_running_server_has_room_for_payloads_up_to_those_of_its_start),
        cmocka_unit_test(a_rule_changes_what_it_gives_and_nothing_else),
        cmocka_unit_test(policies_of_replaced_rules_stay_as_they_were),
        cmocka_unit_test(rules_without_room_leave_those_in_force),
        cmocka_unit_test(class_names_are_never_given_out_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
