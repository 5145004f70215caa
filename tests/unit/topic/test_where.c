/* Conditions of subscriptions to summaries, by the vectors, and their limits. */
#include "topic/where.h"
#include "vectors.h"

#define TEXT_BYTES_MAX (1 << 16)

static struct buffer text_of(json_t *value) {
    struct buffer out;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(text);
    buffer_init(&out, TEXT_BYTES_MAX);
    assert_ok(buffer_append_slice(&out, slice_of(text)));
    free(text);
    return out;
}

/* The fields of a document as a row records them. */
static struct buffer fields_of(json_t *document) {
    struct buffer text = text_of(document), out;
    struct where_fields fields;
    buffer_init(&out, TEXT_BYTES_MAX);
    assert_ok(where_fields_read(buffer_slice(&text), &fields));
    assert_ok(where_fields_write(&out, &fields));
    buffer_release(&text);
    return out;
}

static enum where_outcome outcome_of(struct slice name) {
    static const struct slice names[] = {
        [WHERE_HIDDEN] = SLICE("hidden"),
        [WHERE_WHOLE] = SLICE("whole"),
        [WHERE_REMOVED] = SLICE("removed"),
    };
    size_t i = 0;
    while (!slice_equal(names[i], name))
        assert_true(++i < sizeof(names) / sizeof(names[0]));
    return (enum where_outcome)i;
}

static void read_where(json_t *value, struct where *where) {
    struct buffer text = text_of(value);
    struct slice unknown;
    assert_ok(where_read(buffer_slice(&text), where, &unknown));
    buffer_release(&text);
}

/* The record of a frame, made as the projector and the hub make it. */
static struct buffer record_of(json_t *vector) {
    json_t *was = json_object_get(vector, "was");
    struct buffer now = fields_of(json_object_get(vector, "now"));
    struct buffer row, before, record;
    struct where_fields fields;
    buffer_init(&row, TEXT_BYTES_MAX);
    buffer_init(&before, TEXT_BYTES_MAX);
    buffer_init(&record, TEXT_BYTES_MAX);
    enum where_before kind = was ? WHERE_FIRST : WHERE_UNKNOWN;
    if (json_is_object(was)) {
        buffer_release(&before);
        before = fields_of(was);
        kind = slice_equal(buffer_slice(&before), buffer_slice(&now)) ? WHERE_SAME : WHERE_CHANGED;
    }
    assert_ok(where_record_write(&row, kind, buffer_slice(&before)));
    assert_ok(where_fields_read(buffer_slice(&now), &fields));
    assert_ok(where_record_complete(&record, row.size > 0 ? buffer_slice(&row) : (struct slice){0},
                                    &fields));
    buffer_release(&now);
    buffer_release(&row);
    buffer_release(&before);
    return record;
}

static void frames_have_the_outcomes_of_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("where");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "frames"), index, vector) {
        struct where where;
        struct buffer record = record_of(vector);
        read_where(json_object_get(vector, "where"), &where);
        assert_int_equal(where_judge(&where, buffer_slice(&record)),
                         outcome_of(vector_text(vector, "outcome")));
        buffer_release(&record);
    }
    json_decref(vectors);
}

static void conditions_are_refused_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("where");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "refused"), index, vector) {
        struct buffer text = text_of(json_object_get(vector, "where"));
        struct where where;
        struct slice unknown;
        enum status status = where_read(buffer_slice(&text), &where, &unknown);
        assert_true(slice_equal(slice_of(status_code(status)), vector_text(vector, "status")));
        if (status == STATUS_UNKNOWN_PARAMETER)
            assert_true(slice_equal(unknown, vector_text(vector, "field")));
        buffer_release(&text);
    }
    json_decref(vectors);
}

static enum status read_text(const char *text, struct where *where) {
    struct slice unknown;
    return where_read(slice_of(text), where, &unknown);
}

static void equal_conditions_have_equal_bytes(void **state) {
    (void)state;
    struct where a, b;
    assert_ok(read_text("{\"status\":[\"b\",\"a\",\"b\"],\"tag\":\"x\"}", &a));
    assert_ok(read_text(" {\"tags\" : [\"x\"], \"status\" : [\"a\", \"\\u0062\"]}", &b));
    assert_true(where_equal(&a, &b));
    assert_int_equal(where_size(&a), offsetof(struct where, text) + 3);
    assert_ok(read_text("{\"status\":[\"a\"],\"tag\":[\"b\",\"x\"]}", &b));
    assert_false(where_equal(&a, &b));
    assert_ok(read_text("{\"status\":[\"ab\"],\"tag\":\"x\"}", &b));
    assert_false(where_equal(&a, &b));
}

/* {"tag": [count texts of so many bytes, which differ at their ends]} */
static struct buffer condition(size_t count, size_t bytes) {
    struct buffer out;
    buffer_init(&out, TEXT_BYTES_MAX);
    assert_ok(buffer_append_slice(&out, SLICE("{\"tag\":[")));
    for (size_t i = 0; i < count; i++)
        assert_ok(buffer_printf(&out, "%s\"%0*zu\"", i > 0 ? "," : "", (int)bytes, i));
    assert_ok(buffer_append_slice(&out, SLICE("]}")));
    return out;
}

static void values_have_a_number_and_a_size(void **state) {
    (void)state;
    static const struct {
        size_t count, bytes;
        enum status status;
    } rows[] = {
        {WHERE_VALUES_MAX, 10, STATUS_OK},
        {WHERE_VALUES_MAX + 1, 10, STATUS_INVALID_REQUEST},
        {1, WHERE_VALUE_BYTES_MAX, STATUS_OK},
        {1, WHERE_VALUE_BYTES_MAX + 1, STATUS_INVALID_REQUEST},
        {WHERE_TEXT_BYTES_MAX / WHERE_VALUE_BYTES_MAX, WHERE_VALUE_BYTES_MAX, STATUS_OK},
        {WHERE_TEXT_BYTES_MAX / WHERE_VALUE_BYTES_MAX + 1, WHERE_VALUE_BYTES_MAX,
         STATUS_INVALID_REQUEST},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buffer text = condition(rows[i].count, rows[i].bytes);
        struct where where;
        struct slice unknown;
        assert_int_equal(where_read(buffer_slice(&text), &where, &unknown), rows[i].status);
        buffer_release(&text);
    }
}

static void a_damaged_record_hides_nothing(void **state) {
    (void)state;
    static const char *const records[] = {"",
                                          "{",
                                          "[]",
                                          "{\"now\":1}",
                                          "{\"was\":null}",
                                          "{\"now\":{\"status\":\"running\"},\"was\":7}"};
    struct where where;
    assert_ok(read_text("{\"status\":\"running\"}", &where));
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++)
        assert_int_equal(where_judge(&where, slice_of(records[i])), WHERE_WHOLE);
    assert_int_equal(where_judge(&where, SLICE("{\"now\":{},\"was\":7}")), WHERE_REMOVED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_have_the_outcomes_of_the_vectors),
        cmocka_unit_test(conditions_are_refused_as_the_vectors_say),
        cmocka_unit_test(equal_conditions_have_equal_bytes),
        cmocka_unit_test(values_have_a_number_and_a_size),
        cmocka_unit_test(a_damaged_record_hides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
