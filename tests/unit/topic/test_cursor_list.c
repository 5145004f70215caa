#include "test.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"

static const struct json_limits limits = {1 << 20, JSON_DEPTH_MAX};

struct reading {
    struct cursor_list list;
    struct cursor_list_item item;
};

static void begin(struct reading *reading, const char *text) {
    cursor_list_init(&reading->list);
    assert_ok(cursor_list_begin(&reading->list, slice_of(text), &limits));
}

static void next(struct reading *reading, enum topic_cursor_kind kind, const char *name,
                 uint64_t after_seq) {
    assert_true(cursor_list_next(&reading->list, &reading->item));
    assert_ok(reading->item.status);
    assert_int_equal(reading->item.cursor.kind, kind);
    assert_slice(reading->item.cursor.name, name);
    assert_true(reading->item.cursor.after_seq == after_seq);
}

static void over(struct reading *reading) {
    assert_false(cursor_list_next(&reading->list, &reading->item));
    assert_false(cursor_list_next(&reading->list, &reading->item));
    cursor_list_release(&reading->list);
}

static void an_array_yields_its_cursors_in_order(void **state) {
    (void)state;
    struct reading reading;
    begin(&reading, "[{\"topic\":\"run:a:events\",\"after_seq\":7},"
                    "{\"watermark\":0,\"topic\":\"\\u0061b\",\"more\":1},"
                    "{\"stream_id\":\"runtime.run.a.events\",\"after_seq\":9007199254740991}]");
    next(&reading, TOPIC_CURSOR_TOPIC, "run:a:events", 7);
    assert_false(reading.item.has_window);
    next(&reading, TOPIC_CURSOR_TOPIC, "ab", 0);
    next(&reading, TOPIC_CURSOR_STREAM, "runtime.run.a.events", 9007199254740991u);
    over(&reading);
    begin(&reading, " [ ] ");
    over(&reading);
}

static void a_map_may_have_topics_named_like_members(void **state) {
    (void)state;
    struct reading reading;
    begin(&reading, "{\"topic\":2,\"cursors\":3,\"epoch\":4,\"run:a:events\":7}");
    next(&reading, TOPIC_CURSOR_TOPIC, "topic", 2);
    next(&reading, TOPIC_CURSOR_TOPIC, "cursors", 3);
    next(&reading, TOPIC_CURSOR_TOPIC, "epoch", 4);
    next(&reading, TOPIC_CURSOR_TOPIC, "run:a:events", 7);
    assert_string_equal(reading.item.cursor.epoch.text, "");
    over(&reading);
    begin(&reading, "{}");
    over(&reading);
}

static void a_single_cursor_is_a_list(void **state) {
    (void)state;
    struct reading reading;
    begin(&reading, "{\"stream_id\":\"s\",\"watermark\":1,\"cursors\":[]}");
    next(&reading, TOPIC_CURSOR_STREAM, "s", 1);
    over(&reading);
}

static void an_envelope_holds_any_list_and_an_epoch(void **state) {
    (void)state;
    struct reading reading;
    static const char *const lists[] = {"[{\"topic\":\"a\",\"after_seq\":1}]", "{\"a\":1}",
                                        "{\"topic\":\"a\",\"after_seq\":1}"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{\"epoch\":\"e1\",\"cursors\":%s}", lists[i]);
        begin(&reading, text);
        next(&reading, TOPIC_CURSOR_TOPIC, "a", 1);
        assert_string_equal(reading.item.cursor.epoch.text, "e1");
        over(&reading);
    }
    begin(&reading, "{\"cursors\":{\"a\":1},\"epoch\":null}");
    next(&reading, TOPIC_CURSOR_TOPIC, "a", 1);
    assert_string_equal(reading.item.cursor.epoch.text, "");
    over(&reading);
}

static void a_position_may_be_a_text_with_an_epoch(void **state) {
    (void)state;
    struct reading reading;
    static const struct {
        const char *cursor;
        uint64_t after_seq;
        const char *epoch;
    } rows[] = {
        {"{\"topic\":\"a\",\"after_seq\":\"12@e2\"}", 12, "e2"},
        {"{\"topic\":\"a\",\"watermark\":\"12\"}", 12, "e1"},
        {"{\"topic\":\"a\",\"watermark\":12,\"epoch\":\"e2\"}", 12, "e2"},
        {"{\"topic\":\"a\",\"after_seq\":\"12@e2\",\"epoch\":\"e2\"}", 12, "e2"},
        {"{\"topic\":\"a\",\"after_seq\":12,\"epoch\":null}", 12, "e1"},
        {"{\"a\":\"7@e3.1\"}", 7, "e3.1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[160];
        snprintf(text, sizeof(text), "{\"epoch\":\"e1\",\"cursors\":%s}", rows[i].cursor);
        begin(&reading, text);
        next(&reading, TOPIC_CURSOR_TOPIC, "a", rows[i].after_seq);
        assert_string_equal(reading.item.cursor.epoch.text, rows[i].epoch);
        over(&reading);
    }
    static const char *const bad[] = {
        "{\"topic\":\"a\",\"after_seq\":\"12@\"}",
        "{\"topic\":\"a\",\"after_seq\":\"012\"}",
        "{\"topic\":\"a\",\"after_seq\":\"12@e1\",\"epoch\":\"e2\"}",
        "{\"topic\":\"a\",\"after_seq\":12,\"epoch\":\"\"}",
        "{\"topic\":\"a\",\"after_seq\":12,\"epoch\":4}",
        "{\"topic\":\"a\",\"after_seq\":\"\\u0000\"}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        begin(&reading, bad[i]);
        assert_true(cursor_list_next(&reading.list, &reading.item));
        assert_int_equal(reading.item.status, STATUS_INVALID_CURSOR);
        over(&reading);
    }
}

static void envelopes_do_not_nest(void **state) {
    (void)state;
    struct reading reading;
    begin(&reading, "{\"cursors\":{\"cursors\":[]}}");
    assert_true(cursor_list_next(&reading.list, &reading.item));
    assert_int_equal(reading.item.status, STATUS_INVALID_CURSOR);
    over(&reading);
}

static void an_epoch_is_a_string(void **state) {
    (void)state;
    struct cursor_list list;
    struct cursor_list_item item;
    cursor_list_init(&list);
    assert_int_equal(cursor_list_begin(&list,
                                       SLICE("{\"cursors\":[{\"topic\":\"a\",\"after_seq\":1}],"
                                             "\"epoch\":1}"),
                                       &limits),
                     STATUS_INVALID_REQUEST);
    assert_false(cursor_list_next(&list, &item));
    cursor_list_release(&list);
}

static void a_text_that_is_not_json_may_be_read_as_lines(void **state) {
    (void)state;
    struct reading reading;
    const struct slice text = SLICE("{\"topic\":\"a\",\"after_seq\":1}\n \t\r\n{\"topic\":\n"
                                    "{\"stream_id\":\"b\",\"watermark\":2}");
    cursor_list_init(&reading.list);
    assert_int_equal(cursor_list_begin(&reading.list, text, &limits), STATUS_INVALID_JSON);
    assert_false(cursor_list_next(&reading.list, &reading.item));
    cursor_list_begin_lines(&reading.list, text, &limits);
    next(&reading, TOPIC_CURSOR_TOPIC, "a", 1);
    assert_true(cursor_list_next(&reading.list, &reading.item));
    assert_int_equal(reading.item.status, STATUS_INVALID_JSON);
    next(&reading, TOPIC_CURSOR_STREAM, "b", 2);
    over(&reading);
}

static void a_window_comes_with_its_cursor(void **state) {
    (void)state;
    struct reading reading;
    begin(&reading, "[{\"topic\":\"a\",\"after_seq\":1,\"window\":{\"head_seq\":25,"
                    "\"oldest_seq\":10,\"replay_budget_events\":200,\"more\":0}}]");
    next(&reading, TOPIC_CURSOR_TOPIC, "a", 1);
    assert_true(reading.item.has_window);
    assert_int_equal(reading.item.window.oldest_seq, 10);
    assert_int_equal(reading.item.window.head_seq, 25);
    assert_int_equal(reading.item.window.replay_budget_events, 200);
    over(&reading);
}

static void a_bad_cursor_has_a_status_and_the_next_one_follows(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum status status;
    } bad[] = {
        {"{\"topic\":\"a\"}", STATUS_INVALID_CURSOR},
        {"{\"after_seq\":1}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"stream_id\":\"b\",\"after_seq\":1}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":1,\"watermark\":1}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":-1}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":1.0}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":9007199254740992}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":\"one\"}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":1,\"window\":{\"oldest_seq\":1}}", STATUS_INVALID_CURSOR},
        {"{\"topic\":\"a\",\"after_seq\":1,\"window\":null}", STATUS_INVALID_REQUEST},
        {"{\"topic\":\"\",\"after_seq\":1}", STATUS_INVALID_TOPIC},
        {"{\"topic\":\"a\\u0000\",\"after_seq\":1}", STATUS_INVALID_TOPIC},
        {"{\"stream_id\":\"\",\"after_seq\":1}", STATUS_INVALID_CURSOR},
        {"{\"stream_id\":\"a\\nb\",\"after_seq\":1}", STATUS_INVALID_CURSOR},
        {"{\"stream_id\":\"a\\u0085\",\"after_seq\":1}", STATUS_INVALID_CURSOR},
        {"{\"topic\":7,\"after_seq\":1}", STATUS_INVALID_REQUEST},
        {"{\"topic\":\"a\",\"topic\":\"b\",\"after_seq\":1}", STATUS_JSON_DUPLICATE_KEY},
        {"\"a\"", STATUS_INVALID_REQUEST},
        {"[]", STATUS_INVALID_REQUEST},
        {"null", STATUS_INVALID_REQUEST},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct reading reading;
        char text[256];
        snprintf(text, sizeof(text), "[%s,{\"topic\":\"z\",\"after_seq\":3}]", bad[i].text);
        begin(&reading, text);
        assert_true(cursor_list_next(&reading.list, &reading.item));
        if (reading.item.status != bad[i].status)
            fail_msg("%s: %s", bad[i].text, status_code(reading.item.status));
        next(&reading, TOPIC_CURSOR_TOPIC, "z", 3);
        over(&reading);
    }
}

static void the_longest_name_is_accepted_and_one_more_byte_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *member;
        size_t size_max;
        enum status status;
    } kinds[] = {{"topic", TOPIC_NAME_BYTES_MAX, STATUS_INVALID_TOPIC},
                 {"stream_id", STREAM_ID_BYTES_MAX, STATUS_INVALID_CURSOR}};
    for (size_t i = 0; i < 2; i++) {
        for (size_t extra = 0; extra < 2; extra++) {
            struct reading reading;
            char name[STREAM_ID_BYTES_MAX + 2] = {0};
            char text[STREAM_ID_BYTES_MAX + 64];
            memset(name, 'n', kinds[i].size_max + extra);
            snprintf(text, sizeof(text), "[{\"%s\":\"%s\",\"after_seq\":1}]", kinds[i].member,
                     name);
            begin(&reading, text);
            assert_true(cursor_list_next(&reading.list, &reading.item));
            assert_int_equal(reading.item.status, extra ? kinds[i].status : STATUS_OK);
            over(&reading);
        }
    }
}

static void the_limits_of_the_caller_apply(void **state) {
    (void)state;
    struct cursor_list list;
    const struct json_limits small = {8, 1};
    cursor_list_init(&list);
    assert_ok(cursor_list_begin(&list, SLICE("{\"a\": 1}"), &small));
    assert_int_equal(cursor_list_begin(&list, SLICE("{\"ab\": 1}"), &small),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(cursor_list_begin(&list, SLICE("[[1]]"), &small), STATUS_JSON_TOO_DEEP);
    cursor_list_release(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_yields_its_cursors_in_order),
        cmocka_unit_test(a_map_may_have_topics_named_like_members),
        cmocka_unit_test(a_single_cursor_is_a_list),
        cmocka_unit_test(an_envelope_holds_any_list_and_an_epoch),
        cmocka_unit_test(a_position_may_be_a_text_with_an_epoch),
        cmocka_unit_test(envelopes_do_not_nest),
        cmocka_unit_test(an_epoch_is_a_string),
        cmocka_unit_test(a_text_that_is_not_json_may_be_read_as_lines),
        cmocka_unit_test(a_window_comes_with_its_cursor),
        cmocka_unit_test(a_bad_cursor_has_a_status_and_the_next_one_follows),
        cmocka_unit_test(the_longest_name_is_accepted_and_one_more_byte_is_refused),
        cmocka_unit_test(the_limits_of_the_caller_apply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
