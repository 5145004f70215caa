#include "wire/ws_frame.h"

#include <wslay/wslay.h>

#include "base/utf8.h"
#include "test.h"

static void assert_bytes(const struct buffer *buffer, const char *bytes, size_t size) {
    assert_int_equal(buffer->size, size);
    assert_memory_equal(buffer->data, bytes, size);
}

static void the_server_examples_of_the_rfc(void **state) {
    (void)state;
    uint8_t header[WS_HEADER_BYTES_MAX];
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(ws_frame_write(&out, WS_TEXT, false, SLICE("Hello")));
    assert_bytes(&out, "\x81\x05Hello", 7);
    buffer_clear(&out);
    assert_ok(ws_frame_write(&out, WS_PING, false, SLICE("Hello")));
    assert_bytes(&out, "\x89\x05Hello", 7);
    buffer_clear(&out);
    assert_ok(ws_frame_write(&out, WS_TEXT, true, SLICE("\xf2\x48\xcd\xc9\xc9\x07\x00")));
    assert_bytes(&out, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", 9);
    assert_int_equal(ws_frame_header(header, WS_BINARY, false, 256), 4);
    assert_memory_equal(header, "\x82\x7e\x01\x00", 4);
    assert_int_equal(ws_frame_header(header, WS_BINARY, false, 65536), 10);
    assert_memory_equal(header, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00", 10);
    buffer_release(&out);
}

static ssize_t keep_header(const uint8_t *data, size_t size, int flags, void *user) {
    (void)flags;
    assert_ok(buffer_append(user, data, size));
    return (ssize_t)size;
}

static void headers_are_those_wslay_writes(void **state) {
    (void)state;
    static const uint64_t sizes[] = {
        0,        1,     124,   125,   126,      127,        255,        256,
        65534,    65535, 65536, 65537, 1u << 20, UINT32_MAX, 1ull << 32, 0x0123456789abcdef,
        INT64_MAX};
    const struct wslay_frame_callbacks callbacks = {.send_callback = keep_header};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int compressed = 0; compressed <= 1; compressed++) {
            uint8_t header[WS_HEADER_BYTES_MAX];
            struct buffer expected;
            struct wslay_frame_context *frames;
            struct wslay_frame_iocb frame = {.fin = 1,
                                             .rsv = compressed ? WSLAY_RSV1_BIT : WSLAY_RSV_NONE,
                                             .opcode = WS_BINARY,
                                             .payload_length = sizes[i]};
            buffer_init(&expected, 100);
            assert_int_equal(wslay_frame_context_init(&frames, &callbacks, &expected), 0);
            assert_int_equal(wslay_frame_send(frames, &frame), 0);
            assert_int_equal(ws_frame_header(header, WS_BINARY, compressed, sizes[i]),
                             expected.size);
            assert_memory_equal(header, expected.data, expected.size);
            wslay_frame_context_free(frames);
            buffer_release(&expected);
        }
    }
}

static void a_full_buffer_takes_no_part_of_a_frame(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 6);
    assert_int_equal(ws_frame_write(&out, WS_TEXT, false, SLICE("Hello")),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(out.size, 0);
    assert_ok(ws_frame_write(&out, WS_TEXT, false, SLICE("Hell")));
    buffer_release(&out);
}

static void a_close_frame_carries_code_and_reason(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(ws_close_write(&out, CLOSE_SLOW_CONSUMER, SLICE("slow")));
    assert_bytes(&out, "\x88\x06\x0f\xa0slow", 8);
    buffer_clear(&out);
    assert_ok(ws_close_write(&out, CLOSE_NORMAL, (struct slice){NULL, 0}));
    assert_bytes(&out, "\x88\x02\x03\xe8", 4);
    buffer_clear(&out);
    assert_ok(ws_close_write(&out, WS_CLOSE_CODE_ABSENT, SLICE("dropped")));
    assert_bytes(&out, "\x88\x00", 2);
    buffer_release(&out);
}

static void a_long_reason_is_cut_between_characters(void **state) {
    (void)state;
    /* Characters of one to four bytes, beginning at every offset around the cut. */
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x80"};
    for (size_t kind = 0; kind < 4; kind++) {
        size_t width = strlen(characters[kind]);
        for (size_t prefix = 118; prefix <= 124; prefix++) {
            struct buffer out, reason;
            buffer_init(&out, 1000);
            buffer_init(&reason, 1000);
            for (size_t i = 0; i < prefix; i++)
                assert_ok(buffer_append_byte(&reason, 'x'));
            for (size_t i = 0; i < 5; i++)
                assert_ok(buffer_append_slice(&reason, slice_of(characters[kind])));
            size_t whole = prefix >= 123 ? 0 : (123 - prefix) / width;
            size_t expected = prefix >= 123 ? 123 : prefix + (whole < 5 ? whole : 5) * width;
            assert_ok(ws_close_write(&out, CLOSE_GOING_AWAY, buffer_slice(&reason)));
            assert_int_equal(out.size, 2 + 2 + expected);
            assert_int_equal(out.data[1], 2 + expected);
            assert_memory_equal(out.data + 4, reason.data, expected);
            assert_true(utf8_valid(slice_from(buffer_slice(&out), 4)));
            buffer_release(&reason);
            buffer_release(&out);
        }
    }
}

static void close_codes_on_the_wire(void **state) {
    (void)state;
    static const unsigned valid[] = {1000, 1003, 1007, 1014, 3000, 3999, 4000, 4999};
    static const unsigned invalid[] = {0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535};
    for (size_t i = 0; i < sizeof(valid) / sizeof(valid[0]); i++)
        assert_true(ws_close_code_valid(valid[i]));
    for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++)
        assert_false(ws_close_code_valid(invalid[i]));
}

static void every_status_has_a_close_code(void **state) {
    (void)state;
    static const struct {
        enum status status;
        enum close_code code;
    } cases[] = {
        {STATUS_OK, CLOSE_NORMAL},
        {STATUS_WS_PROTOCOL_ERROR, CLOSE_PROTOCOL_ERROR},
        {STATUS_INVALID_UTF8, CLOSE_INVALID_UTF8},
        {STATUS_WS_MESSAGE_TOO_BIG, CLOSE_TOO_BIG},
        {STATUS_PAYLOAD_TOO_LARGE, CLOSE_TOO_BIG},
        {STATUS_INVALID_MESSAGE, CLOSE_INVALID_MESSAGE},
        {STATUS_INVALID_JSON, CLOSE_INVALID_MESSAGE},
        {STATUS_BAD_TOPIC, CLOSE_INVALID_MESSAGE},
        {STATUS_SHUTTING_DOWN, CLOSE_GOING_AWAY},
        {STATUS_SLOW_CONSUMER, CLOSE_SLOW_CONSUMER},
        {STATUS_SLOW_CONSUMER_EVICTED, CLOSE_SLOW_CONSUMER},
        {STATUS_INVALID_TOKEN, CLOSE_AUTH_FAILED},
        {STATUS_TOKEN_REPLAYED, CLOSE_AUTH_FAILED},
        {STATUS_TOKEN_EXPIRED, CLOSE_TOKEN_EXPIRED},
        {STATUS_REAUTH_REQUIRED, CLOSE_TOKEN_EXPIRED},
        {STATUS_TOKEN_REVOKED, CLOSE_POLICY_VIOLATION},
        {STATUS_ORIGIN_NOT_ALLOWED, CLOSE_POLICY_VIOLATION},
        {STATUS_FORBIDDEN_TOPIC, CLOSE_POLICY_VIOLATION},
        {STATUS_RATE_LIMITED, CLOSE_POLICY_VIOLATION},
        {STATUS_OUT_OF_MEMORY, CLOSE_INTERNAL_ERROR},
        {STATUS_STORE_UNAVAILABLE, CLOSE_INTERNAL_ERROR},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(ws_close_code(cases[i].status), cases[i].code);
    for (int status = 0; status < STATUS_COUNT; status++)
        assert_true(strlen(close_message(ws_close_code((enum status)status))) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_examples_of_the_rfc),
        cmocka_unit_test(headers_are_those_wslay_writes),
        cmocka_unit_test(a_full_buffer_takes_no_part_of_a_frame),
        cmocka_unit_test(a_close_frame_carries_code_and_reason),
        cmocka_unit_test(a_long_reason_is_cut_between_characters),
        cmocka_unit_test(close_codes_on_the_wire),
        cmocka_unit_test(every_status_has_a_close_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
