#include "dialect/phoenix/subscribe_request.h"

#include "delivery/publisher.h"

#define EPOCH      "0190c5b5-0000-7000-8000-000000000001"
#define TOPICS_MAX 8

static const struct json_limits limits = {1 << 20, 16};

static enum status read_text(struct subscribe *subscribe, const char *text) {
    struct json_value payload;
    assert_ok(json_parse(slice_of(text), &limits, &payload));
    return subscribe_read(subscribe, payload, TOPICS_MAX);
}

static void read_ok(struct subscribe *subscribe, const char *text) {
    assert_ok(read_text(subscribe, text));
}

static void assert_cursor(const struct subscribe *subscribe, size_t index, uint64_t after_seq) {
    assert_true(index < subscribe->count);
    assert_true(subscribe->items[index].has_cursor);
    assert_int_equal(subscribe->items[index].position.seq, after_seq);
}

static void topics_and_options_are_read_with_their_defaults(void **state) {
    (void)state;
    struct subscribe subscribe;
    read_ok(&subscribe, "{\"topics\":[\"a\",\"\\u0062\",\"a\"]}");
    assert_int_equal(subscribe.count, 2);
    assert_slice(subscribe.items[0].topic, "a");
    assert_slice(subscribe.items[1].topic, "b");
    assert_false(subscribe.items[0].has_cursor);
    assert_int_equal(subscribe.batch_size, 200);
    assert_false(subscribe.bootstrap || subscribe.frames);
    subscribe_release(&subscribe);
    read_ok(&subscribe, "{\"topics\":[\"a\"],\"streams\":null,\"bootstrap\":true,\"frames\":true,"
                        "\"replay_batch_size\":1000,\"epoch\":\"" EPOCH "\",\"more\":{}}");
    assert_true(subscribe.bootstrap && subscribe.frames);
    assert_string_equal(subscribe.epoch.text, EPOCH);
    assert_int_equal(subscribe.batch_size, 1000);
    subscribe_release(&subscribe);
    assert_int_equal(subscribe.form, FRAME_FULL);
    read_ok(&subscribe, "{\"topics\":[\"a\"],\"form\":\"lean\"}");
    assert_int_equal(subscribe.form, FRAME_LEAN);
    subscribe_release(&subscribe);
    read_ok(&subscribe, "{\"topics\":[\"a\",\"b\",\"c\"],\"epoch\":\"e1\",\"resume_after\":"
                        "[{\"topic\":\"a\",\"watermark\":4,\"epoch\":\"e2\"},"
                        "{\"stream_id\":\"runtime.topic.b\",\"after_seq\":\"5@e3\"},"
                        "{\"topic\":\"c\",\"after_seq\":6}]}");
    assert_cursor(&subscribe, 0, 4);
    assert_string_equal(subscribe.items[0].position.epoch.text, "e2");
    assert_cursor(&subscribe, 1, 5);
    assert_string_equal(subscribe.items[1].position.epoch.text, "e3");
    assert_string_equal(subscribe.items[2].position.epoch.text, "e1");
    subscribe_release(&subscribe);
}

static void a_request_of_another_shape_is_refused_and_frees_its_memory(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum status status;
    } cases[] = {
        {"[]", STATUS_BAD_SUBSCRIPTION},
        {"{}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":null}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":{}}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[null]}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"topics\":[\"b\"]}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"form\":\"slim\"}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"form\":1}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"form\":\"leanleanleanleanlean\"}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"\"]}", STATUS_BAD_TOPIC},
        {"{\"topics\":[\"a\\u0000\"]}", STATUS_BAD_TOPIC},
        {"{\"topics\":[\"1\",\"2\",\"3\",\"4\",\"5\"],\"streams\":[\"6\",\"7\",\"8\",\"9\"]}",
         STATUS_LIMIT_REACHED},
        {"{\"topics\":[\"a\"],\"resume_after\":1}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"resume_after\":[1]}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"resume_after\":{\"a\":1.5}}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"resume_after\":{\"a\":9007199254740992}}", STATUS_BAD_SUBSCRIPTION},
        {"{\"topics\":[\"a\"],\"replay_batch_size\":1.0}", STATUS_BAD_SUBSCRIPTION},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct subscribe subscribe;
        assert_int_equal(read_text(&subscribe, cases[i].text), cases[i].status);
        subscribe_release(&subscribe);
    }
}

static void a_cursor_finds_its_topic_by_either_name(void **state) {
    (void)state;
    static const char *const cursors[] = {
        "{\"run:x:events\":7}",
        "[{\"topic\":\"run:x:events\",\"watermark\":7}]",
        "[{\"stream_id\":\"runtime.run.x.events\",\"after_seq\":7}]",
        "[{\"topic\":\"nobody\",\"after_seq\":1},{\"topic\":\"run:x:events\",\"after_seq\":7}]",
    };
    for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++) {
        char text[512];
        struct subscribe subscribe;
        snprintf(text, sizeof(text),
                 "{\"topics\":[\"run:x:events\"],\"streams\":[\"runtime.run.x.events\"],"
                 "\"resume_after\":%s}",
                 cursors[i]);
        read_ok(&subscribe, text);
        assert_int_equal(subscribe.count, 2);
        assert_cursor(&subscribe, 0, 7);
        assert_cursor(&subscribe, 1, 7);
        subscribe_release(&subscribe);
    }
}

static void names_that_share_a_stream_keep_their_own_cursors(void **state) {
    (void)state;
    struct subscribe subscribe;
    read_ok(&subscribe, "{\"topics\":[\"a.b\",\"a:b\"],\"resume_after\":{\"a.b\":1,\"a:b\":2}}");
    assert_cursor(&subscribe, 0, 1);
    assert_cursor(&subscribe, 1, 2);
    subscribe_release(&subscribe);
    read_ok(&subscribe, "{\"topics\":[\"a.b\"],\"resume_after\":"
                        "[{\"stream_id\":\"runtime.topic.a.b\",\"after_seq\":3}]}");
    assert_cursor(&subscribe, 0, 3);
    subscribe_release(&subscribe);
}

static enum status read_cursors(struct subscribe *subscribe, const char *cursors) {
    char text[512];
    snprintf(text, sizeof(text),
             "{\"topics\":[\"run:x:events\",\"runtime.topic.a.b\"],"
             "\"streams\":[\"runtime.run.x.events\"],\"epoch\":\"e1\",\"resume_after\":%s}",
             cursors);
    return read_text(subscribe, text);
}

static void different_cursors_of_one_topic_are_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "{\"run:x:events\":12,\"run:x:events\":18}",
        "{\"run:x:events\":18,\"runtime.run.x.events\":12}",
        "{\"runtime.run.x.events\":18,\"runtime.run.x.events\":12}",
        "[{\"topic\":\"run:x:events\",\"after_seq\":1},"
        "{\"stream_id\":\"runtime.run.x.events\",\"after_seq\":2}]",
        "[{\"stream_id\":\"runtime.run.x.events\",\"after_seq\":2},"
        "{\"topic\":\"run:x:events\",\"after_seq\":1}]",
        "[{\"topic\":\"run:x:events\",\"after_seq\":1},"
        "{\"topic\":\"run:x:events\",\"after_seq\":0}]",
        "[{\"topic\":\"run:x:events\",\"after_seq\":3,\"epoch\":\"e2\"},"
        "{\"topic\":\"run:x:events\",\"after_seq\":\"3@e3\"}]",
        "[{\"topic\":\"run:x:events\",\"after_seq\":3,\"epoch\":\"e2\"},"
        "{\"topic\":\"run:x:events\",\"after_seq\":3}]",
        "{\"a:b\":1,\"a.b\":2}", /* either may be the topic of the stream */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct subscribe subscribe;
        assert_int_equal(read_cursors(&subscribe, cases[i]), STATUS_BAD_SUBSCRIPTION);
        assert_non_null(subscribe.fault);
        subscribe_release(&subscribe);
    }
}

static void equal_cursors_of_one_topic_are_one(void **state) {
    (void)state;
    static const char *const cases[] = {
        "{\"run:x:events\":7,\"run:x:events\":7}",
        "{\"run:x:events\":7,\"runtime.run.x.events\":\"7@e1\"}",
        "[{\"topic\":\"run:x:events\",\"after_seq\":7,\"epoch\":\"e1\"},"
        "{\"stream_id\":\"runtime.run.x.events\",\"after_seq\":7}]",
        "[{\"topic\":\"nothing\",\"after_seq\":1},{\"topic\":\"nothing\",\"after_seq\":2},"
        "{\"topic\":\"run:x:events\",\"after_seq\":7}]",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct subscribe subscribe;
        assert_ok(read_cursors(&subscribe, cases[i]));
        assert_cursor(&subscribe, 0, 7);
        assert_string_equal(subscribe.items[0].position.epoch.text, "e1");
        subscribe_release(&subscribe);
    }
    struct subscribe subscribe;
    assert_ok(read_cursors(&subscribe, "{\"run:x:events\":\"0@e2\",\"runtime.run.x.events\":0}"));
    assert_cursor(&subscribe, 0, 0);
    subscribe_release(&subscribe);
}

static void a_request_may_have_as_many_cursors_as_topics(void **state) {
    (void)state;
    struct subscribe subscribe;
    read_ok(&subscribe, "{\"topics\":[\"h\"],\"resume_after\":"
                        "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":8}}");
    assert_cursor(&subscribe, 0, 8);
    subscribe_release(&subscribe);
    assert_int_equal(read_text(&subscribe,
                               "{\"topics\":[\"h\"],\"resume_after\":{\"a\":1,\"b\":1,\"c\":1,"
                               "\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"h\":1}}"),
                     STATUS_BAD_SUBSCRIPTION);
    subscribe_release(&subscribe);
}

static void streams_become_topics_and_each_topic_is_listed_once(void **state) {
    struct publisher *publisher = *state;
    struct subscribe subscribe;
    read_ok(&subscribe,
            "{\"topics\":[\"" RUN_TOPIC "\",\"x:y\"],"
            "\"streams\":[\"runtime.run.r.events\",\"runtime.topic.x.y\"],"
            "\"resume_after\":[{\"stream_id\":\"runtime.topic.x.y\",\"after_seq\":4}]}");
    assert_int_equal(subscribe.count, 4);
    assert_ok(subscribe_resolve(&subscribe, publisher->session));
    /* No topic has the stream id of x:y: another name of it may appear first. */
    assert_int_equal(subscribe.count, 3);
    assert_slice(subscribe.items[0].topic, RUN_TOPIC);
    assert_slice(subscribe.items[1].topic, "x:y");
    assert_slice(subscribe.items[2].topic, "runtime.topic.x.y");
    assert_cursor(&subscribe, 1, 4);
    assert_cursor(&subscribe, 2, 4);
    subscribe_release(&subscribe);
    read_ok(&subscribe, "{\"topics\":[\"runtime.run.r.events\",\"" RUN_TOPIC "\",\"z\"]}");
    assert_ok(subscribe_resolve(&subscribe, publisher->session));
    assert_int_equal(subscribe.count, 2);
    assert_slice(subscribe.items[0].topic, RUN_TOPIC);
    assert_slice(subscribe.items[1].topic, "z");
    subscribe_release(&subscribe);
    assert_int_equal(read_text(&subscribe, "{\"streams\":[\"nothing.of.ours\"]}"),
                     STATUS_BAD_TOPIC);
    subscribe_release(&subscribe);
}

static int setup(void **state) {
    struct publisher *publisher = publisher_open(NULL);
    publisher_commit(publisher, 4);
    *state = publisher;
    return 0;
}

static int teardown(void **state) {
    publisher_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topics_and_options_are_read_with_their_defaults),
        cmocka_unit_test(a_request_of_another_shape_is_refused_and_frees_its_memory),
        cmocka_unit_test(a_cursor_finds_its_topic_by_either_name),
        cmocka_unit_test(names_that_share_a_stream_keep_their_own_cursors),
        cmocka_unit_test(different_cursors_of_one_topic_are_refused),
        cmocka_unit_test(equal_cursors_of_one_topic_are_one),
        cmocka_unit_test(a_request_may_have_as_many_cursors_as_topics),
        cmocka_unit_test_setup_teardown(streams_become_topics_and_each_topic_is_listed_once, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
