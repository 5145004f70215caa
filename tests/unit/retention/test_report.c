/* Reports: lists, totals, JSON. */
#include "base/limits.h"
#include "retention/report.h"

#include "test.h"
#include "wire/json.h"

static void add(struct retention_report *report, uint64_t ref, uint64_t deleted, uint64_t oldest,
                bool has_more) {
    char name[32];
    snprintf(name, sizeof(name), "run:\"%llu:events", (unsigned long long)ref);
    retention_report_add(report,
                         &(struct retention_topic){.ref = ref,
                                                   .topic = slice_of(name),
                                                   .policy = policy_default(POLICY_RUN_EVENTS),
                                                   .deleted = deleted,
                                                   .oldest_seq = oldest,
                                                   .head_seq = 100,
                                                   .has_more = has_more});
}

static void a_topic_added_in_parts_counts_once(void **state) {
    (void)state;
    struct retention_report *report = retention_report_new(true);
    add(report, 1, 0, 99, false);
    add(report, 2, 10, 11, true);
    add(report, 2, 30, 41, true);
    add(report, 2, 0, 41, false);
    add(report, 3, 0, 101, false);
    struct retention_class_totals total = retention_report_total(report);
    assert_int_equal(total.topics, 3);
    assert_int_equal(total.topics_pruned, 1);
    assert_int_equal(total.deleted, 40);
    assert_int_equal(total.stale_risk_max, 59);
    assert_int_equal(report->pruned.count, 1);
    assert_int_equal(report->pruned.topics[0].deleted, 40);
    assert_int_equal(report->pruned.topics[0].oldest_seq, 41);
    assert_int_equal(report->unpruned.count, 2);
    assert_int_equal(report->omitted, 0);
    retention_report_unref(report);
}

static void a_report_is_written_as_json(void **state) {
    (void)state;
    struct retention_report *report = retention_report_new(true);
    struct buffer out;
    buffer_init(&out, 65536);
    report->now_ms = 7;
    report->duration_ms = 8;
    add(report, 1, 0, 101, false);
    add(report, 2, 10, 11, false);
    assert_ok(retention_report_write(report, &out));
    assert_slice(buffer_slice(&out),
                 "{\"topic_stats\":[\n"
                 "{\"topic\":\"run:\\\"2:events\",\"deleted\":10,\"class\":\"run_events\","
                 "\"compaction_mode\":\"tail_prune_without_snapshot\",\"retention_seconds\":86400,"
                 "\"oldest\":11,\"head\":100,\"stale_risk\":89},\n"
                 "{\"topic\":\"run:\\\"1:events\",\"deleted\":0,\"class\":\"run_events\","
                 "\"compaction_mode\":\"tail_prune_without_snapshot\",\"retention_seconds\":86400,"
                 "\"oldest\":101,\"head\":100,\"stale_risk\":0}],\n"
                 "\"topic_stats_omitted\":0,\"topics\":2,\"topics_pruned\":1,\"deleted\":10,"
                 "\"now_ms\":7,\"duration_ms\":8}\n");
    buffer_release(&out);
    retention_report_unref(report);
}

static void too_many_topics_are_counted_and_those_that_were_pruned_come_first(void **state) {
    (void)state;
    struct retention_report *report = retention_report_new(true);
    struct buffer out;
    struct json_value value;
    struct json_field fields[] = {{.name = SLICE("topic_stats")},
                                  {.name = SLICE("topic_stats_omitted")}};
    buffer_init(&out, 1u << 20);
    for (uint64_t ref = 1; ref <= 3000; ref++)
        add(report, ref, ref % 6 == 0, 2, false);
    assert_ok(retention_report_write(report, &out));
    const struct json_limits limits = {out.size, JSON_DEPTH_MAX};
    assert_ok(json_read_object(buffer_slice(&out), &limits, fields, 2));
    struct json_iterator topics = json_iterate(fields[0].value);
    uint64_t count = 0;
    while (json_next_element(&topics, &value)) {
        struct json_field deleted = {.name = SLICE("deleted")};
        uint64_t number;
        assert_ok(json_read_members(value, &deleted, 1));
        assert_true(json_u64(deleted.value, 10, &number));
        assert_int_equal(number, count++ < 500);
    }
    uint64_t omitted;
    assert_int_equal(count, RETENTION_REPORT_TOPICS_MAX);
    assert_true(json_u64(fields[1].value, 10000, &omitted));
    assert_int_equal(omitted, 3000 - RETENTION_REPORT_TOPICS_MAX);
    buffer_release(&out);
    retention_report_unref(report);
}

static void without_a_list_there_are_only_totals(void **state) {
    (void)state;
    struct retention_report *report = retention_report_new(false);
    add(report, 1, 5, 6, false);
    assert_int_equal(report->pruned.count, 0);
    assert_int_equal(report->omitted, 0);
    assert_int_equal(retention_report_total(report).deleted, 5);
    retention_report_unref(retention_report_ref(report));
    retention_report_unref(report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topic_added_in_parts_counts_once),
        cmocka_unit_test(a_report_is_written_as_json),
        cmocka_unit_test(too_many_topics_are_counted_and_those_that_were_pruned_come_first),
        cmocka_unit_test(without_a_list_there_are_only_totals),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
