#include "vectors.h"
#include "wire/phoenix.h"

static const struct json_limits limits = {4096, 16};

static enum status decode(struct slice text, struct phoenix_message *message) {
    return phoenix_decode(text, &limits, message);
}

static void check_part(struct slice actual, json_t *row, const char *key) {
    struct slice expected = vector_text_or_null(row, key);
    if (!slice_equal(actual, expected) || !actual.data != !expected.data)
        fail_msg("%s of %s is %.*s", key, vector_text(row, "text").data, (int)actual.size,
                 actual.data ? actual.data : "");
}

static void check_payload(struct slice raw, json_t *expected) {
    json_t *payload = json_loadb(raw.data, raw.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_true(json_equal(payload, expected));
    assert_null(memchr(" \t\r\n", raw.data[0], 4));
    assert_null(memchr(" \t\r\n", raw.data[raw.size - 1], 4));
    json_decref(payload);
}

static void the_texts_of_the_vectors_have_their_parts(void **state) {
    (void)state;
    json_t *vectors = vectors_load("phoenix");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "decode"), index, row) {
        struct phoenix_message message;
        assert_ok(decode(vector_text(row, "text"), &message));
        check_part(message.join_ref, row, "join_ref");
        check_part(message.ref, row, "ref");
        check_part(message.topic, row, "topic");
        check_part(message.event, row, "event");
        check_payload(message.payload.raw, json_object_get(row, "payload"));
    }
    json_decref(vectors);
}

static void the_refused_texts_of_the_vectors_are_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("phoenix");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "refused"), index, row) {
        struct phoenix_message message;
        struct buffer text = vector_text_or_hex(row, "text", "hex");
        enum status status = decode(buffer_slice(&text), &message);
        if (status != vector_status(row))
            fail_msg("%s: %s", vector_text(row, "why").data, status_code(status));
        buffer_release(&text);
    }
    json_decref(vectors);
}

static void a_text_over_the_limit_is_refused(void **state) {
    (void)state;
    struct json_limits small = {10, 16};
    struct phoenix_message message;
    assert_int_equal(phoenix_decode(SLICE("[1,2,3,4,5]"), &small, &message),
                     STATUS_PAYLOAD_TOO_LARGE);
}

static void the_limits_are_those_of_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("phoenix");
    json_t *published = json_object_get(vectors, "limits");
    assert_int_equal(vector_number(published, "ref_bytes_max"), PHOENIX_REF_BYTES_MAX);
    assert_int_equal(vector_number(published, "topic_bytes_max"), PHOENIX_TOPIC_BYTES_MAX);
    assert_int_equal(vector_number(published, "event_bytes_max"), PHOENIX_EVENT_BYTES_MAX);
    assert_int_equal(vector_number(published, "depth_max"), limits.depth_max);
    json_decref(vectors);
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

static enum status encode(struct buffer *out, json_t *row, struct slice payload) {
    struct slice kind = vector_text(row, "kind");
    struct phoenix_address address = {vector_text_or_null(row, "join_ref"),
                                      vector_text_or_null(row, "ref"), vector_text(row, "topic")};
    if (slice_equal(kind, SLICE("reply"))) {
        bool ok = slice_equal(vector_text(row, "status"), SLICE("ok"));
        assert_true(ok || slice_equal(vector_text(row, "status"), SLICE("error")));
        return phoenix_write_reply(out, &address, ok, payload);
    }
    if (slice_equal(kind, SLICE("close")))
        return phoenix_write_close(out, address.join_ref, address.topic);
    if (slice_equal(kind, SLICE("error"))) {
        address.ref = address.join_ref;
        return phoenix_write(out, &address, SLICE("phx_error"), SLICE("{}"));
    }
    struct slice event = vector_text(row, "event");
    if (slice_equal(kind, SLICE("push")))
        return phoenix_write_push(out, address.join_ref, address.topic, event, payload);
    assert_slice(kind, "message");
    return phoenix_write(out, &address, event, payload);
}

static void every_kind_of_message_is_written_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("phoenix");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "encode"), index, row) {
        struct buffer out;
        struct phoenix_message message;
        bool reply = json_object_get(row, "response") != NULL;
        char *payload = json_dumps(json_object_get(row, reply ? "response" : "payload"),
                                   JSON_COMPACT | JSON_ENCODE_ANY);
        buffer_init(&out, 1000);
        assert_ok(encode(&out, row, payload ? slice_of(payload) : SLICE("")));
        if (!slice_equal(buffer_slice(&out), vector_text(row, "text")))
            fail_msg("%s is written %.*s", vector_text(row, "text").data, (int)out.size, out.data);
        assert_ok(decode(buffer_slice(&out), &message));
        check_part(message.join_ref, row, "join_ref");
        check_part(message.topic, row, "topic");
        free(payload);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void a_payload_is_written_as_it_stands(void **state) {
    (void)state;
    struct phoenix_address address = {PHOENIX_NULL, SLICE("2"), SLICE("t")};
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(phoenix_write(&out, &address, SLICE("e"), SLICE("{ \"b\":1.0,\"a\":\"\\u0061\" }")));
    assert_slice(buffer_slice(&out), "[null,\"2\",\"t\",\"e\",{ \"b\":1.0,\"a\":\"\\u0061\" }]");
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
        cmocka_unit_test(the_texts_of_the_vectors_have_their_parts),
        cmocka_unit_test(the_refused_texts_of_the_vectors_are_refused),
        cmocka_unit_test(a_text_over_the_limit_is_refused),
        cmocka_unit_test(the_limits_are_those_of_the_vectors),
        cmocka_unit_test(parts_are_bounded_by_their_decoded_size),
        cmocka_unit_test(all_parts_at_their_longest_fit),
        cmocka_unit_test(every_kind_of_message_is_written_as_the_vectors_say),
        cmocka_unit_test(a_payload_is_written_as_it_stands),
        cmocka_unit_test(a_message_that_does_not_fit_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
