#include "test.h"
#include "topic/cursor_list.h"

static void a_topic_cursor_becomes_a_stream_cursor_with_the_same_seq(void **state) {
    (void)state;
    static const uint64_t places[] = {0, 1, 41, UINT64_MAX};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct buffer memory;
        buffer_init(&memory, 100);
        assert_ok(buffer_append(&memory, "before ", 7));
        struct topic_cursor cursor = {
            .kind = TOPIC_CURSOR_TOPIC, .name = SLICE("run:a:b:events"), .after_seq = places[i]};
        assert_ok(topic_cursor_migrate(&cursor, &memory));
        assert_int_equal(cursor.kind, TOPIC_CURSOR_STREAM);
        assert_slice(cursor.name, "runtime.run.a:b.events");
        assert_true(cursor.after_seq == places[i]);
        buffer_release(&memory);
    }
}

static void a_stream_cursor_is_unchanged(void **state) {
    (void)state;
    struct buffer memory;
    buffer_init(&memory, 100);
    struct topic_cursor cursor = {
        .kind = TOPIC_CURSOR_STREAM, .name = SLICE("run:1:events"), .after_seq = 9};
    assert_ok(topic_cursor_migrate(&cursor, &memory));
    assert_slice(cursor.name, "run:1:events");
    assert_true(cursor.after_seq == 9);
    assert_int_equal(memory.size, 0);
}

static void a_full_buffer_leaves_the_cursor_unchanged(void **state) {
    (void)state;
    struct buffer memory;
    buffer_init(&memory, 10);
    struct topic_cursor cursor = {
        .kind = TOPIC_CURSOR_TOPIC, .name = SLICE("run:1:events"), .after_seq = 9};
    assert_int_equal(topic_cursor_migrate(&cursor, &memory), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(cursor.kind, TOPIC_CURSOR_TOPIC);
    assert_slice(cursor.name, "run:1:events");
    assert_int_equal(memory.size, 0);
    buffer_release(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topic_cursor_becomes_a_stream_cursor_with_the_same_seq),
        cmocka_unit_test(a_stream_cursor_is_unchanged),
        cmocka_unit_test(a_full_buffer_leaves_the_cursor_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
