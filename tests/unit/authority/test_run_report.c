#include "authority/run_report.h"

#include "vectors.h"

static void shapes_follow_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("run_summary"), *vector;
    size_t i;
    json_array_foreach(vectors_array(vectors, "shapes"), i, vector) {
        struct run_report report;
        struct run_fault fault = {"", ""};
        char *payload =
            json_dumps(json_object_get(vector, "payload"), JSON_COMPACT | JSON_SORT_KEYS);
        enum status status =
            run_report_read(vector_text(vector, "event_type"), slice_of(payload), &report, &fault);
        struct slice member = vector_text_or_null(vector, "member");
        if (status != vector_status(vector) ||
            (member.data && !slice_equal(member, slice_of(fault.member))))
            fail_msg("%s %s: %s, %s", vector_text(vector, "event_type").data, payload,
                     status_code(status), fault.member);
        free(payload);
    }
    json_decref(vectors);
}

static void members_of_other_types_are_absent(void **state) {
    (void)state;
    struct run_report report;
    struct run_fault fault;
    assert_ok(run_report_read(SLICE("run.usage"),
                              SLICE("{\"input_tokens\":1,\"model\":null,\"title\":\"T\"}"), &report,
                              &fault));
    assert_int_equal(report.kind, RUN_REPORT_USAGE);
    assert_true(report.members[RUN_MEMBER_INPUT_TOKENS].present);
    assert_false(report.members[RUN_MEMBER_MODEL].present);
    assert_false(report.members[RUN_MEMBER_TITLE].present);
    assert_ok(run_report_read(SLICE("run.updated"), SLICE("{\"model\":\"m\",\"title\":null}"),
                              &report, &fault));
    assert_false(report.members[RUN_MEMBER_MODEL].present);
    assert_true(report.members[RUN_MEMBER_TITLE].present);
}

static void a_payload_that_is_no_object_has_no_shape(void **state) {
    (void)state;
    struct run_report report;
    struct run_fault fault;
    assert_int_equal(run_report_read(SLICE("run.usage"), SLICE("[1]"), &report, &fault),
                     STATUS_INVALID_REQUEST);
    assert_string_equal(fault.member, "payload");
    assert_ok(run_report_read(SLICE("run.other"), SLICE("[1]"), &report, &fault));
    assert_int_equal(report.kind, RUN_REPORT_NONE);
}

static void escaped_texts_are_measured_decoded(void **state) {
    (void)state;
    char tag[6 * RUN_TAG_BYTES_MAX + 20] = "[\"";
    struct run_fault fault;
    for (size_t i = 0; i < RUN_TAG_BYTES_MAX; i++)
        strcat(tag, "\\\\");
    strcat(tag, "\"]");
    assert_ok(run_member_check(RUN_MEMBER_TAGS, (struct json_value){JSON_KIND_ARRAY, slice_of(tag)},
                               &fault));
    tag[strlen(tag) - 2] = '\0';
    strcat(tag, "x\"]");
    assert_int_equal(run_member_check(RUN_MEMBER_TAGS,
                                      (struct json_value){JSON_KIND_ARRAY, slice_of(tag)}, &fault),
                     STATUS_INVALID_REQUEST);
}

static void a_patch_may_not_let_metadata_grow_beyond_its_limit(void **state) {
    (void)state;
    static char base[RUN_METADATA_BYTES_MAX + 1];
    struct buffer out;
    buffer_init(&out, 4 * sizeof(base));
    memset(base, 'x', RUN_METADATA_BYTES_MAX);
    memcpy(base, "{\"a\":\"", 6);
    memcpy(base + RUN_METADATA_BYTES_MAX - 2, "\"}", 2);
    assert_ok(run_metadata_patch(slice_of(base), SLICE("{}"), &out));
    assert_int_equal(out.size, RUN_METADATA_BYTES_MAX);
    buffer_clear(&out);
    assert_ok(buffer_append(&out, "kept", 4));
    assert_int_equal(run_metadata_patch(slice_of(base), SLICE("{\"b\":1}"), &out),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&out), "kept");
    assert_ok(run_metadata_patch(slice_of(base), SLICE("{\"a\":null,\"b\":1}"), &out));
    assert_slice(buffer_slice(&out), "kept{\"b\":1}");
    buffer_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_follow_the_vectors),
        cmocka_unit_test(members_of_other_types_are_absent),
        cmocka_unit_test(a_payload_that_is_no_object_has_no_shape),
        cmocka_unit_test(escaped_texts_are_measured_decoded),
        cmocka_unit_test(a_patch_may_not_let_metadata_grow_beyond_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
