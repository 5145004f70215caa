#include "wire/sse.h"

#include "../../support/sse_reader.h"
#include "test.h"

static const struct slice absent = {NULL, 0};

static void an_event_has_its_lines_in_order(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    struct sse_event event = {SLICE("41"), SLICE("update"), SLICE("{\"a\":1}")};
    assert_ok(sse_event(&out, &event));
    assert_slice(buffer_slice(&out), "id: 41\nevent: update\ndata: {\"a\":1}\n\n");
    buffer_release(&out);
}

static void optional_fields_leave_no_line(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    struct sse_event event = {absent, absent, SLICE("x")};
    assert_ok(sse_event(&out, &event));
    assert_slice(buffer_slice(&out), "data: x\n\n");
    buffer_clear(&out);
    struct sse_event forgetting = {SLICE(""), SLICE(""), absent};
    assert_ok(sse_event(&out, &forgetting));
    assert_slice(buffer_slice(&out), "id: \ndata: \n\n");
    buffer_release(&out);
}

static void every_line_end_makes_a_data_line(void **state) {
    (void)state;
    static const struct {
        const char *data;
        const char *lines;
    } cases[] = {
        {"a\nb", "data: a\ndata: b\n\n"},
        {"a\r\nb", "data: a\ndata: b\n\n"},
        {"a\rb", "data: a\ndata: b\n\n"},
        {"a\n", "data: a\ndata: \n\n"},
        {"a\r", "data: a\ndata: \n\n"},
        {"a\r\n", "data: a\ndata: \n\n"},
        {"\n\r", "data: \ndata: \ndata: \n\n"},
        {"\r\r\n\n", "data: \ndata: \ndata: \ndata: \n\n"},
        {" a:b", "data:  a:b\n\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buffer out;
        buffer_init(&out, 1000);
        struct sse_event event = {absent, absent, slice_of(cases[i].data)};
        assert_ok(sse_event(&out, &event));
        assert_slice(buffer_slice(&out), cases[i].lines);
        buffer_release(&out);
    }
}

static void a_field_that_would_break_its_line_is_refused(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(buffer_append(&out, "kept", 4));
    const struct sse_event refused[] = {
        {SLICE("a\nb"), absent, SLICE("x")},     {SLICE("a\rb"), absent, SLICE("x")},
        {SLICE("a\0b"), absent, SLICE("x")},     {SLICE("\n"), absent, SLICE("x")},
        {SLICE("1"), SLICE("a\nb"), SLICE("x")}, {SLICE("1"), SLICE("a\r"), SLICE("x")},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(sse_event(&out, &refused[i]), STATUS_INVALID_MESSAGE);
        assert_slice(buffer_slice(&out), "kept");
    }
    buffer_release(&out);
}

static void an_event_is_written_whole_or_not_at_all(void **state) {
    (void)state;
    const struct sse_event event = {SLICE("41"), SLICE("update"), SLICE("first\nsecond")};
    const size_t whole = strlen("id: 41\nevent: update\ndata: first\ndata: second\n\n");
    for (size_t size_max = 1; size_max <= whole; size_max++) {
        struct buffer out;
        buffer_init(&out, size_max);
        enum status status = sse_event(&out, &event);
        assert_int_equal(status, size_max < whole ? STATUS_PAYLOAD_TOO_LARGE : STATUS_OK);
        assert_int_equal(out.size, size_max < whole ? 0 : whole);
        buffer_release(&out);
    }
}

static void comments_and_retry_dispatch_nothing(void **state) {
    (void)state;
    struct buffer out;
    struct sse_reader reader;
    buffer_init(&out, 1000);
    sse_reader_init(&reader);
    assert_ok(sse_comment(&out, absent));
    assert_slice(buffer_slice(&out), ": \n\n");
    assert_ok(sse_comment(&out, SLICE("two\ndata: forged")));
    assert_ok(sse_retry(&out, 2500));
    sse_read(&reader, buffer_slice(&out));
    assert_int_equal(reader.event_count, 0);
    assert_int_equal(reader.retry_ms, 2500);
    sse_reader_release(&reader);
    buffer_release(&out);
}

static struct slice random_text(uint64_t *seed, char *text, size_t size_max, const char *alphabet) {
    size_t size = test_random(seed) % (size_max + 1);
    for (size_t i = 0; i < size; i++)
        text[i] = alphabet[test_random(seed) % strlen(alphabet)];
    return (struct slice){text, size};
}

static void what_is_written_reads_back_the_same(void **state) {
    (void)state;
    uint64_t seed = 7;
    struct sse_reader reader;
    struct buffer out, expected;
    sse_reader_init(&reader);
    buffer_init(&out, 10000);
    buffer_init(&expected, 1000);
    for (size_t round = 1; round <= 3000; round++) {
        char id[8], name[8], data[24];
        bool with_id = test_random(&seed) % 2;
        struct sse_event event = {random_text(&seed, id, sizeof(id), "ab: 1"),
                                  random_text(&seed, name, sizeof(name), "xy: "),
                                  random_text(&seed, data, sizeof(data), "a\n\r: data")};
        struct slice id_before = buffer_slice(&reader.event_id);
        char kept[8];
        memcpy(kept, id_before.data ? id_before.data : "", id_before.size);
        struct slice id_expected = with_id ? event.id : (struct slice){kept, id_before.size};
        if (!with_id)
            event.id = absent;
        buffer_clear(&out);
        buffer_clear(&expected);
        assert_ok(sse_event(&out, &event));
        sse_normalize(&expected, event.data);
        sse_read(&reader, buffer_slice(&out));
        assert_int_equal(reader.event_count, round);
        assert_true(slice_equal(buffer_slice(&reader.event_data), buffer_slice(&expected)));
        assert_true(slice_equal(buffer_slice(&reader.event_id), id_expected));
        assert_true(slice_equal(buffer_slice(&reader.event_type),
                                event.event.size > 0 ? event.event : SLICE("message")));
    }
    buffer_release(&expected);
    buffer_release(&out);
    sse_reader_release(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_has_its_lines_in_order),
        cmocka_unit_test(optional_fields_leave_no_line),
        cmocka_unit_test(every_line_end_makes_a_data_line),
        cmocka_unit_test(a_field_that_would_break_its_line_is_refused),
        cmocka_unit_test(an_event_is_written_whole_or_not_at_all),
        cmocka_unit_test(comments_and_retry_dispatch_nothing),
        cmocka_unit_test(what_is_written_reads_back_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
