#include "test.h"
#include "wire/phoenix.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct json_limits limits = {4096, 16};

static enum status decode(struct slice text, struct phoenix_message *message) {
    return phoenix_decode(text, &limits, message);
}

static void decodes_the_five_parts(void **state) {
    (void)state;
    struct phoenix_message message;
    assert_ok(
        decode(SLICE(" [ \"3\" , \"7\",\"sync:v1\",\"phx_join\", {\"a\": [1]} ] "), &message));
    assert_slice(message.join_ref, "3");
    assert_slice(message.ref, "7");
    assert_slice(message.topic, "sync:v1");
    assert_slice(message.event, "phx_join");
    assert_slice(message.payload.raw, "{\"a\": [1]}");
    assert_int_equal(message.payload.kind, JSON_KIND_OBJECT);
}

static void null_references_differ_from_empty_ones(void **state) {
    (void)state;
    struct phoenix_message message;
    assert_ok(decode(SLICE("[null,\"\",\"phoenix\",\"heartbeat\",null]"), &message));
    assert_null(message.join_ref.data);
    assert_non_null(message.ref.data);
    assert_int_equal(message.ref.size, 0);
    assert_int_equal(message.payload.kind, JSON_KIND_NULL);
}

static void decodes_escapes_in_every_part(void **state) {
    (void)state;
    struct phoenix_message message;
    assert_ok(decode(SLICE("[\"\\u0031\",\"\\t2\",\"\\u00e9\\ud83d\\ude80\",\"a\\\"b\",\"\\n\"]"),
                     &message));
    assert_slice(message.join_ref, "1");
    assert_slice(message.ref, "\t2");
    assert_slice(message.topic, "\xc3\xa9\xf0\x9f\x9a\x80");
    assert_slice(message.event, "a\"b");
    assert_slice(message.payload.raw, "\"\\n\"");
}

static void refuses_other_shapes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum status status;
    } cases[] = {
        {"[]", STATUS_INVALID_MESSAGE},
        {"[\"1\",\"2\",\"t\",\"e\"]", STATUS_INVALID_MESSAGE},
        {"[\"1\",\"2\",\"t\",\"e\",{},{}]", STATUS_INVALID_MESSAGE},
        {"[1,\"2\",\"t\",\"e\",{}]", STATUS_INVALID_MESSAGE},
        {"[\"1\",false,\"t\",\"e\",{}]", STATUS_INVALID_MESSAGE},
        {"[\"1\",\"2\",null,\"e\",{}]", STATUS_INVALID_MESSAGE},
        {"[\"1\",\"2\",\"t\",null,{}]", STATUS_INVALID_MESSAGE},
        {"[\"1\",\"2\",[],\"e\",{}]", STATUS_INVALID_MESSAGE},
        {"{\"topic\":\"t\"}", STATUS_INVALID_MESSAGE},
        {"\"text\"", STATUS_INVALID_MESSAGE},
        {"null", STATUS_INVALID_MESSAGE},
        {"", STATUS_INVALID_JSON},
        {"[\"1\",\"2\",\"t\",\"e\",{]", STATUS_INVALID_JSON},
        {"[\"1\",\"2\",\"t\",\"e\",{}],", STATUS_INVALID_JSON},
        {"[\"1\",\"2\",\"\xff\",\"e\",{}]", STATUS_INVALID_UTF8},
        {"[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", STATUS_JSON_TOO_DEEP},
    };
    struct phoenix_message message;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(decode(slice_of(cases[i].text), &message), cases[i].status);
    struct json_limits small = {10, 16};
    assert_int_equal(phoenix_decode(SLICE("[1,2,3,4,5]"), &small, &message),
                     STATUS_PAYLOAD_TOO_LARGE);
}

/* A message whose given part is that many times the given text. */
static enum status decode_repeated(size_t part, const char *unit, size_t count) {
    struct buffer text;
    buffer_init(&text, 8192);
    for (size_t i = 0; i < 4; i++) {
        assert_ok(buffer_append_slice(&text, i ? SLICE(",\"") : SLICE("[\"")));
        for (size_t n = 0; i == part && n < count; n++)
            assert_ok(buffer_append_slice(&text, slice_of(unit)));
        assert_ok(buffer_append_byte(&text, '"'));
    }
    assert_ok(buffer_append_slice(&text, SLICE(",{}]")));
    struct phoenix_message message;
    enum status status = decode(buffer_slice(&text), &message);
    if (status == STATUS_OK) {
        struct slice parts[] = {message.join_ref, message.ref, message.topic, message.event};
        assert_int_equal(parts[part].size, count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(parts[part].data[i], 'a');
    }
    buffer_release(&text);
    return status;
}

static void parts_are_bounded_by_their_decoded_size(void **state) {
    (void)state;
    static const size_t sizes_max[] = {PHOENIX_REF_BYTES_MAX, PHOENIX_REF_BYTES_MAX,
                                       PHOENIX_TOPIC_BYTES_MAX, PHOENIX_EVENT_BYTES_MAX};
    for (size_t part = 0; part < 4; part++) {
        size_t size_max = sizes_max[part];
        assert_ok(decode_repeated(part, "a", size_max));
        assert_ok(decode_repeated(part, "\\u0061", size_max));
        assert_int_equal(decode_repeated(part, "a", size_max + 1), STATUS_INVALID_MESSAGE);
        assert_int_equal(decode_repeated(part, "\\u0061", size_max + 1), STATUS_INVALID_MESSAGE);
    }
}

static void all_parts_at_their_longest_fit(void **state) {
    (void)state;
    struct buffer text;
    buffer_init(&text, 8192);
    static const size_t sizes[] = {PHOENIX_REF_BYTES_MAX, PHOENIX_REF_BYTES_MAX,
                                   PHOENIX_TOPIC_BYTES_MAX, PHOENIX_EVENT_BYTES_MAX};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(buffer_append_slice(&text, i ? SLICE(",\"") : SLICE("[\"")));
        for (size_t n = 0; n < sizes[i]; n++)
            assert_ok(buffer_printf(&text, "\\u%04x", (unsigned)('a' + i)));
        assert_ok(buffer_append_byte(&text, '"'));
    }
    assert_ok(buffer_append_slice(&text, SLICE(",1]")));
    struct json_limits roomy = {8192, 1};
    struct phoenix_message message;
    assert_ok(phoenix_decode(buffer_slice(&text), &roomy, &message));
    struct slice parts[] = {message.join_ref, message.ref, message.topic, message.event};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(parts[i].size, sizes[i]);
        assert_int_equal(parts[i].data[0], 'a' + (int)i);
        assert_int_equal(parts[i].data[sizes[i] - 1], 'a' + (int)i);
    }
    buffer_release(&text);
}

static void writes_every_kind_of_message(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    struct phoenix_address address = {SLICE("1"), SLICE("2"), SLICE("sync:\"v1\"")};
    assert_ok(phoenix_write_reply(&out, &address, true, SLICE("{\"a\":1}")));
    assert_slice(buffer_slice(&out),
                 "[\"1\",\"2\",\"sync:\\\"v1\\\"\",\"phx_reply\",{\"status\":\"ok\","
                 "\"response\":{\"a\":1}}]");
    buffer_clear(&out);
    struct phoenix_address heartbeat = {PHOENIX_NULL, SLICE("9"), SLICE("phoenix")};
    assert_ok(phoenix_write_reply(&out, &heartbeat, false, SLICE("{}")));
    assert_slice(buffer_slice(&out),
                 "[null,\"9\",\"phoenix\",\"phx_reply\",{\"status\":\"error\",\"response\":{}}]");
    buffer_clear(&out);
    assert_ok(
        phoenix_write_push(&out, PHOENIX_NULL, SLICE("t"), SLICE("sync:frame"), SLICE("[1]")));
    assert_slice(buffer_slice(&out), "[null,null,\"t\",\"sync:frame\",[1]]");
    buffer_clear(&out);
    assert_ok(phoenix_write_push(&out, SLICE("4"), SLICE("t"), SLICE("e"), SLICE("{}")));
    assert_slice(buffer_slice(&out), "[\"4\",null,\"t\",\"e\",{}]");
    buffer_clear(&out);
    assert_ok(phoenix_write_close(&out, SLICE("4"), SLICE("t")));
    assert_ok(phoenix_write_error(&out, SLICE("4"), SLICE("t")));
    assert_slice(buffer_slice(&out),
                 "[\"4\",\"4\",\"t\",\"phx_close\",{}][\"4\",\"4\",\"t\",\"phx_error\",{}]");
    buffer_release(&out);
}

static void a_message_that_does_not_fit_leaves_nothing(void **state) {
    (void)state;
    struct phoenix_address address = {SLICE("1"), SLICE("2"), SLICE("t")};
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(phoenix_write_reply(&out, &address, true, SLICE("{}")));
    size_t needed = out.size;
    buffer_release(&out);
    for (size_t room = 1; room < needed; room++) {
        buffer_init(&out, room + 1);
        assert_ok(buffer_append_byte(&out, 'x'));
        assert_int_equal(phoenix_write_reply(&out, &address, true, SLICE("{}")),
                         STATUS_PAYLOAD_TOO_LARGE);
        assert_slice(buffer_slice(&out), "x");
        buffer_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_the_five_parts),
        cmocka_unit_test(null_references_differ_from_empty_ones),
        cmocka_unit_test(decodes_escapes_in_every_part),
        cmocka_unit_test(refuses_other_shapes),
        cmocka_unit_test(parts_are_bounded_by_their_decoded_size),
        cmocka_unit_test(all_parts_at_their_longest_fit),
        cmocka_unit_test(writes_every_kind_of_message),
        cmocka_unit_test(a_message_that_does_not_fit_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
