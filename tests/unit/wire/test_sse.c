#include "wire/sse.h"

#include "../../support/sse_reader.h"
#include "vectors.h"

static const struct slice absent = {NULL, 0};

static struct sse_event event_of(json_t *row) {
    return (struct sse_event){vector_text_or_null(row, "id"), vector_text(row, "event"),
                              vector_text(row, "data")};
}

static void check_text(const struct buffer *out, json_t *row) {
    if (!slice_equal(buffer_slice(out), vector_text(row, "text")))
        fail_msg("%s is written %.*s", vector_text(row, "text").data, (int)out->size, out->data);
}

static void check_read_back(struct slice text, struct sse_event event) {
    struct sse_reader reader;
    struct buffer data;
    sse_reader_init(&reader);
    buffer_init(&data, 1000);
    sse_normalize(&data, event.data);
    sse_read(&reader, text);
    assert_int_equal(reader.event_count, 1);
    assert_true(slice_equal(buffer_slice(&reader.event_data), buffer_slice(&data)));
    assert_true(slice_equal(buffer_slice(&reader.event_id), event.id));
    assert_true(slice_equal(buffer_slice(&reader.event_type),
                            event.event.size > 0 ? event.event : SLICE("message")));
    buffer_release(&data);
    sse_reader_release(&reader);
}

static void events_are_written_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("sse");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "events"), index, row) {
        struct buffer out;
        struct sse_event event = event_of(row);
        buffer_init(&out, 1000);
        assert_ok(sse_event(&out, &event));
        check_text(&out, row);
        check_read_back(buffer_slice(&out), event);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void comments_and_retries_are_written_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("sse");
    struct buffer out;
    size_t index;
    json_t *row;
    buffer_init(&out, 1000);
    json_array_foreach(vectors_array(vectors, "comments"), index, row) {
        buffer_clear(&out);
        assert_ok(sse_comment(&out, vector_text(row, "comment")));
        check_text(&out, row);
    }
    json_array_foreach(vectors_array(vectors, "retries"), index, row) {
        buffer_clear(&out);
        assert_ok(sse_retry(&out, vector_number(row, "retry_ms")));
        check_text(&out, row);
    }
    buffer_release(&out);
    json_decref(vectors);
}

static void absent_texts_are_empty_ones(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    struct sse_event event = {absent, absent, absent};
    assert_ok(sse_event(&out, &event));
    assert_ok(sse_comment(&out, absent));
    assert_slice(buffer_slice(&out), "data: \n\n: \n\n");
    buffer_release(&out);
}

static void the_refused_fields_of_the_vectors_are_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("sse");
    struct buffer out;
    size_t index;
    json_t *row;
    buffer_init(&out, 1000);
    assert_ok(buffer_append(&out, "kept", 4));
    json_array_foreach(vectors_array(vectors, "refused"), index, row) {
        struct sse_event event = event_of(row);
        if (sse_event(&out, &event) != vector_status(row))
            fail_msg("%s is not refused", vector_text(row, "why").data);
        assert_slice(buffer_slice(&out), "kept");
    }
    buffer_release(&out);
    json_decref(vectors);
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

static void written_events_read_back_unchanged(void **state) {
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
        cmocka_unit_test(events_are_written_as_the_vectors_say),
        cmocka_unit_test(comments_and_retries_are_written_as_the_vectors_say),
        cmocka_unit_test(absent_texts_are_empty_ones),
        cmocka_unit_test(the_refused_fields_of_the_vectors_are_refused),
        cmocka_unit_test(an_event_is_written_whole_or_not_at_all),
        cmocka_unit_test(comments_and_retry_dispatch_nothing),
        cmocka_unit_test(written_events_read_back_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
