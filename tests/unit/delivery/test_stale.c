#include "delivery/stale.h"

#include <jansson.h>

#include "test.h"

static json_t *body_of(const char *topic, enum policy_row row) {
    const struct topic_window window = {51, 100, 10};
    struct continuity continuity = continuity_plan(&window, 7, false);
    struct buffer out;
    buffer_init(&out, 65536);
    assert_ok(stale_write_json(
        &out, &(struct stale_topic){slice_of(topic), policy_default(row), &continuity, false, NULL},
        1));
    json_t *body = json_loadb(out.data, out.size, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(body);
    buffer_release(&out);
    return body;
}

static void the_body_has_the_reasons_and_the_plan(void **state) {
    (void)state;
    json_t *body = body_of("runtime.run_summaries", POLICY_RUN_SUMMARIES);
    json_t *topic = json_array_get(json_object_get(body, "stale_topics"), 0);
    json_t *plan =
        json_array_get(json_object_get(json_object_get(body, "snapshot_plan"), "topics"), 0);
    assert_string_equal(json_string_value(json_object_get(body, "code")), "stale_cursor");
    assert_true(json_is_true(json_object_get(body, "full_resync_required")));
    assert_int_equal(json_array_size(json_object_get(body, "reason_codes")), 2);
    assert_int_equal(json_integer_value(json_object_get(topic, "resume_after")), 7);
    assert_int_equal(json_integer_value(json_object_get(topic, "retention_floor")), 51);
    assert_int_equal(json_integer_value(json_object_get(topic, "oldest_available_cursor")), 50);
    assert_int_equal(json_integer_value(json_object_get(topic, "head_watermark")), 100);
    assert_int_equal(json_integer_value(json_object_get(topic, "replay_lag")), 93);
    assert_string_equal(json_string_value(json_object_get(topic, "qos_tier")), "warm");
    assert_string_equal(json_string_value(json_object_get(topic, "stream_id")),
                        "runtime.topic.runtime.run_summaries");
    assert_int_equal(json_integer_value(json_object_get(plan, "head_watermark")), 100);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(plan, "snapshot"), "cadence_seconds")),
        300);
    json_decref(body);
}

static void a_topic_without_snapshots_has_none_in_its_plan(void **state) {
    (void)state;
    json_t *body = body_of("run:x:events", POLICY_RUN_EVENTS);
    json_t *plan = json_object_get(body, "snapshot_plan");
    assert_string_equal(json_string_value(json_object_get(plan, "format")), SNAPSHOT_FORMAT);
    assert_int_equal(json_array_size(json_object_get(plan, "topics")), 0);
    json_decref(body);
}

static void a_full_buffer_is_left_as_it_was(void **state) {
    (void)state;
    const struct topic_window window = {51, 100, 10};
    struct continuity continuity = continuity_plan(&window, 7, false);
    const struct stale_topic stale = {SLICE("runtime.run_summaries"),
                                      policy_default(POLICY_RUN_SUMMARIES), &continuity, false,
                                      NULL};
    for (size_t size = 1; size < 800; size += 13) {
        struct buffer out;
        buffer_init(&out, size);
        if (stale_write_json(&out, &stale, 1) != STATUS_OK)
            assert_int_equal(out.size, 0);
        buffer_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_has_the_reasons_and_the_plan),
        cmocka_unit_test(a_topic_without_snapshots_has_none_in_its_plan),
        cmocka_unit_test(a_full_buffer_is_left_as_it_was),
    };
    return cmocka_run_group_tests_name("stale", tests, NULL, NULL);
}
