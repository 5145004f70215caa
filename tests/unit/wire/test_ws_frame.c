#include "wire/websocket/ws_frame.h"

#include <wslay/wslay.h>

#include "base/utf8.h"
#include "vectors.h"

static void check_frame(const struct buffer *out, json_t *row) {
    struct buffer frame = vector_hex(row, "frame");
    if (!slice_equal(buffer_slice(out), buffer_slice(&frame)))
        fail_msg("no frame %s", vector_text(row, "frame").data);
    buffer_release(&frame);
}

static void frames_are_those_of_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "server"), index, row) {
        struct buffer out;
        struct buffer payload = vector_text_or_hex(row, "payload", "payload_hex");
        buffer_init(&out, 1000);
        assert_ok(ws_frame_write(&out, (enum ws_opcode)vector_number(row, "opcode"),
                                 vector_flag(row, "compressed"), buffer_slice(&payload)));
        check_frame(&out, row);
        buffer_release(&payload);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void headers_are_those_of_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "headers"), index, row) {
        uint8_t header[WS_HEADER_BYTES_MAX];
        struct buffer expected = vector_hex(row, "header");
        size_t size =
            ws_frame_header(header, (enum ws_opcode)vector_number(row, "opcode"),
                            vector_flag(row, "compressed"), vector_number(row, "payload_bytes"));
        assert_int_equal(size, expected.size);
        assert_memory_equal(header, expected.data, size);
        buffer_release(&expected);
    }
    json_decref(vectors);
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

static void a_payload_that_is_there_is_wrapped_in_its_place(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 70000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct buffer written, wrapped, payload;
        buffer_init(&payload, 100000);
        buffer_init(&written, 100000);
        buffer_init(&wrapped, 100000);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_ok(buffer_append_byte(&payload, (char)('a' + j % 26)));
        assert_ok(buffer_append_slice(&written, SLICE("before")));
        assert_ok(buffer_append_slice(&wrapped, SLICE("before")));
        assert_ok(ws_frame_write(&written, WS_TEXT, false, buffer_slice(&payload)));
        for (size_t gap = 0; gap <= WS_HEADER_BYTES_MAX; gap++) {
            wrapped.size = strlen("before");
            assert_ok(buffer_append(&wrapped, "----------", gap));
            assert_ok(buffer_append_slice(&wrapped, buffer_slice(&payload)));
            assert_ok(ws_frame_wrap(&wrapped, strlen("before"), gap, WS_TEXT));
            assert_true(slice_equal(buffer_slice(&wrapped), buffer_slice(&written)));
        }
        buffer_release(&payload);
        buffer_release(&written);
        buffer_release(&wrapped);
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
    assert_int_equal(ws_frame_wrap(&out, 2, 0, WS_TEXT), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(out.size, 6);
    buffer_release(&out);
}

static void close_frames_are_those_of_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "close"), index, row) {
        struct buffer out;
        buffer_init(&out, 1000);
        assert_ok(
            ws_close_write(&out, (unsigned)vector_number(row, "code"), vector_text(row, "reason")));
        check_frame(&out, row);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void an_absent_reason_is_an_empty_one(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(ws_close_write(&out, CLOSE_NORMAL, (struct slice){NULL, 0}));
    assert_slice(buffer_slice(&out), "\x88\x02\x03\xe8");
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

static void close_codes_are_judged_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    json_t *codes = json_object_get(vectors, "close_codes");
    size_t index;
    json_t *code;
    json_array_foreach(vectors_array(codes, "valid"), index, code)
        assert_true(ws_close_code_valid((unsigned)json_integer_value(code)));
    json_array_foreach(vectors_array(codes, "invalid"), index, code)
        assert_false(ws_close_code_valid((unsigned)json_integer_value(code)));
    json_decref(vectors);
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
        {STATUS_RATE_LIMITED, CLOSE_TRY_AGAIN_LATER},
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
        cmocka_unit_test(frames_are_those_of_the_vectors),
        cmocka_unit_test(headers_are_those_of_the_vectors),
        cmocka_unit_test(headers_are_those_wslay_writes),
        cmocka_unit_test(a_payload_that_is_there_is_wrapped_in_its_place),
        cmocka_unit_test(a_full_buffer_takes_no_part_of_a_frame),
        cmocka_unit_test(close_frames_are_those_of_the_vectors),
        cmocka_unit_test(an_absent_reason_is_an_empty_one),
        cmocka_unit_test(a_long_reason_is_cut_between_characters),
        cmocka_unit_test(close_codes_are_judged_as_the_vectors_say),
        cmocka_unit_test(every_status_has_a_close_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
