#include "wire/websocket/ws_deflate.h"

#include "vectors.h"

static enum status inflate_into(size_t size_max, struct slice payload, struct buffer *out) {
    struct ws_inflater inflater;
    ws_inflater_init(&inflater);
    buffer_init(out, size_max);
    enum status status = ws_inflate(&inflater, out, payload);
    ws_inflater_release(&inflater);
    return status;
}

static void the_payloads_of_the_vectors_inflate(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "inflate"), index, row) {
        struct buffer out;
        struct buffer payload = vector_hex(row, "hex");
        if (inflate_into(100, buffer_slice(&payload), &out) != STATUS_OK ||
            !slice_equal(buffer_slice(&out), vector_text(row, "message")))
            fail_msg("%s", vector_text(row, "why").data);
        buffer_release(&payload);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void the_example_of_the_rfc_deflates(void **state) {
    (void)state;
    struct ws_deflater deflater;
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(ws_deflater_init(&deflater, 1));
    for (int round = 0; round < 2; round++) {
        buffer_clear(&out);
        assert_ok(ws_deflate(&deflater, &out, SLICE("Hello")));
        /* The same both times: no message leaves a trace for the next. */
        assert_int_equal(out.size, 7);
        assert_memory_equal(out.data, "\xf2\x48\xcd\xc9\xc9\x07\x00", 7);
    }
    buffer_clear(&out);
    assert_ok(ws_deflate(&deflater, &out, (struct slice){NULL, 0}));
    assert_int_equal(out.size, 1);
    assert_int_equal(out.data[0], 0);
    ws_deflater_release(&deflater);
    buffer_release(&out);
}

static void an_incomplete_message_is_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "inflate_refused"), index, row) {
        struct buffer out;
        struct buffer payload = vector_hex(row, "hex");
        if (inflate_into(100, buffer_slice(&payload), &out) != STATUS_WS_PROTOCOL_ERROR)
            fail_msg("%s", vector_text(row, "why").data);
        assert_int_equal(out.size, 0);
        buffer_release(&payload);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void messages_are_independent(void **state) {
    (void)state;
    struct ws_inflater inflater;
    struct buffer out;
    ws_inflater_init(&inflater);
    buffer_init(&out, 100);
    assert_ok(ws_inflate(&inflater, &out, SLICE("\xf2\x48\xcd\xc9\xc9\x07\x00")));
    assert_int_equal(ws_inflate(&inflater, &out, SLICE("\xf2\x00\x11\x00\x00")),
                     STATUS_WS_PROTOCOL_ERROR);
    assert_ok(ws_inflate(&inflater, &out, SLICE("\xf2\x48\xcd\xc9\xc9\x07\x00")));
    assert_slice(buffer_slice(&out), "HelloHello");
    buffer_release(&out);
    ws_inflater_release(&inflater);
}

static void a_bomb_ends_at_the_maximum(void **state) {
    (void)state;
    const size_t plain_bytes = 16u << 20;
    struct ws_deflater deflater;
    struct buffer bomb, out;
    char *zeros = calloc(1, plain_bytes);
    assert_non_null(zeros);
    buffer_init(&bomb, plain_bytes);
    assert_ok(ws_deflater_init(&deflater, 9));
    assert_ok(ws_deflate(&deflater, &bomb, (struct slice){zeros, plain_bytes}));
    assert_true(bomb.size < plain_bytes / 500);
    assert_int_equal(inflate_into(10000, buffer_slice(&bomb), &out), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(out.size, 0);
    assert_true(out.capacity <= 10000);
    buffer_release(&out);
    assert_int_equal(inflate_into(plain_bytes - 1, buffer_slice(&bomb), &out),
                     STATUS_PAYLOAD_TOO_LARGE);
    buffer_release(&out);
    assert_ok(inflate_into(plain_bytes, buffer_slice(&bomb), &out));
    assert_int_equal(out.size, plain_bytes);
    buffer_release(&out);
    buffer_release(&bomb);
    ws_deflater_release(&deflater);
    free(zeros);
}

static void a_message_may_fill_the_buffer_exactly(void **state) {
    (void)state;
    struct buffer out;
    for (size_t size_max = 1; size_max < 5; size_max++) {
        assert_int_equal(inflate_into(size_max, SLICE("\xf2\x48\xcd\xc9\xc9\x07\x00"), &out),
                         STATUS_PAYLOAD_TOO_LARGE);
        buffer_release(&out);
    }
    assert_ok(inflate_into(5, SLICE("\xf2\x48\xcd\xc9\xc9\x07\x00"), &out));
    assert_slice(buffer_slice(&out), "Hello");
    buffer_release(&out);
}

static void a_deflated_message_fits_or_leaves_no_part(void **state) {
    (void)state;
    struct ws_deflater deflater;
    assert_ok(ws_deflater_init(&deflater, 6));
    bool fitted = false;
    for (size_t size_max = 1; size_max < 64; size_max++) {
        struct buffer out;
        buffer_init(&out, size_max);
        enum status status = ws_deflate(&deflater, &out, SLICE("Hello"));
        /* Four bytes of room for the flush, and one that shows there was room. */
        assert_int_equal(status, size_max >= 12 ? STATUS_OK : STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(out.size, status == STATUS_OK ? 7 : 0);
        fitted = status == STATUS_OK;
        buffer_release(&out);
    }
    assert_true(fitted);
    ws_deflater_release(&deflater);
}

static void random_messages_come_back(void **state) {
    (void)state;
    uint64_t seed = 11;
    char *message = malloc(200000);
    assert_non_null(message);
    for (int level = 1; level <= 9; level++) {
        struct ws_deflater deflater;
        struct ws_inflater inflater;
        ws_inflater_init(&inflater);
        assert_ok(ws_deflater_init(&deflater, level));
        for (int round = 0; round < 20; round++) {
            size_t size = test_random(&seed) % (round % 4 == 0 ? 200000 : 2000);
            unsigned alphabet = 1u << (test_random(&seed) % 9);
            for (size_t i = 0; i < size; i++)
                message[i] = (char)(test_random(&seed) % alphabet);
            struct buffer packed, plain;
            buffer_init(&packed, 1 << 20);
            buffer_init(&plain, size ? size : 1);
            assert_ok(ws_deflate(&deflater, &packed, (struct slice){message, size}));
            assert_ok(ws_inflate(&inflater, &plain, buffer_slice(&packed)));
            assert_true(slice_equal(buffer_slice(&plain), (struct slice){message, size}));
            buffer_release(&plain);
            buffer_release(&packed);
        }
        ws_inflater_release(&inflater);
        ws_deflater_release(&deflater);
    }
    free(message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_payloads_of_the_vectors_inflate),
        cmocka_unit_test(the_example_of_the_rfc_deflates),
        cmocka_unit_test(an_incomplete_message_is_refused),
        cmocka_unit_test(messages_are_independent),
        cmocka_unit_test(a_bomb_ends_at_the_maximum),
        cmocka_unit_test(a_message_may_fill_the_buffer_exactly),
        cmocka_unit_test(a_deflated_message_fits_or_leaves_no_part),
        cmocka_unit_test(random_messages_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
