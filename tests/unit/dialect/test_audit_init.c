#include "dialect/audit_init.h"

#include "../test.h"

#define HEAD "{\"type\":\"init\",\"version\":1,\"capability\":\"key\",\"nonce\":\"n1\",\"ts\":1700"

static void an_init_is_read_with_all_its_members(void **state) {
    (void)state;
    struct audit_init init;
    const char *problem = NULL;
    struct slice text =
        SLICE(HEAD ",\"later\":[{}],\"filters\":{\"entities\":[\"run:\\u0061\",\"worker\"],"
                   "\"event_types\":[\"run.log\"]},\"after_cursor\":"
                   "\"MTcwMDAwMDAwMDAwMDowMThiY2ZlNS02ODAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDA\"}");
    assert_ok(audit_init_read(text, false, &init, &problem));
    assert_slice(init.capability, "key");
    assert_slice(init.nonce, "n1");
    assert_int_equal(init.at_ms, 1700);
    assert_true(init.has_cursor);
    assert_int_equal(init.cursor.timestamp_ms, 1700000000000);
    assert_true(audit_init_filters(&init));
    assert_int_equal(init.entities.count, 2);
    assert_slice(init.entities.names[0], "run:a");
    audit_init_release(&init);
}

#define CURSOR "MTcwMDAwMDAwMDAwMDowMThiY2ZlNS02ODAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDA"
#define OTHER  "MTcwMDAwMDAwMDAwMTowMThiY2ZlNS02ODAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDA"

static void start_cursor_means_after_cursor(void **state) {
    (void)state;
    struct audit_init init;
    const char *problem = NULL;
    struct slice equal =
        SLICE(HEAD ",\"start_cursor\":\"" CURSOR "\",\"after_cursor\":\"" CURSOR "\"}");
    struct slice different =
        SLICE(HEAD ",\"start_cursor\":\"" CURSOR "\",\"after_cursor\":\"" OTHER "\"}");
    assert_ok(audit_init_read(equal, false, &init, &problem));
    assert_true(init.has_cursor);
    audit_init_release(&init);
    assert_int_equal(audit_init_read(different, false, &init, &problem), STATUS_INVALID_MESSAGE);
    assert_string_equal(problem, "after_cursor and start_cursor differ");
}

static bool wants(const char *filters, const char *type, const char *key) {
    struct audit_init init;
    const char *problem = NULL;
    char text[512];
    int size = snprintf(text, sizeof(text), HEAD ",\"filters\":%s}", filters);
    assert_ok(audit_init_read((struct slice){text, (size_t)size}, false, &init, &problem));
    bool answer = audit_init_wants(
        &init, &(struct frame_content){.kind = slice_of(type), .document_key = slice_of(key)});
    audit_init_release(&init);
    return answer;
}

static void filters_let_through_the_events_they_name(void **state) {
    (void)state;
    assert_true(wants("null", "run.log", "run:a"));
    assert_true(wants("{}", "run.log", "run:a"));
    assert_false(wants("{\"entities\":[]}", "run.log", "run:a"));
    assert_true(wants("{\"entities\":[\"run\"]}", "run.log", "run:a:b"));
    assert_false(wants("{\"entities\":[\"ru\"]}", "run.log", "run:a"));
    assert_true(wants("{\"entities\":[\"run:a\"]}", "run.log", "run:a"));
    assert_false(wants("{\"entities\":[\"run:a\"]}", "run.log", "run:a:b"));
    assert_false(wants("{\"entities\":[\"run\"],\"event_types\":[\"x\"]}", "run.log", "run:a"));
    assert_true(wants("{\"event_types\":[\"x\",\"run.log\"]}", "run.log", "run:a"));
}

static void a_message_that_is_no_init_is_refused_with_its_problem(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "{",
        "{}",
        "{\"type\":\"init\"}",
        "{\"type\":\"init\",\"version\":1,\"capability\":\"\",\"nonce\":\"\",\"ts\":1}",
        HEAD ",\"ts\":2}",
        HEAD ",\"after_cursor\":7}",
        HEAD ",\"after_cursor\":\"x\"}",
        HEAD ",\"filters\":1}",
        HEAD ",\"filters\":{\"entities\":{}}}",
        HEAD ",\"filters\":{\"entities\":[null]}}",
        HEAD ",\"filters\":{\"entities\":[],\"entities\":[]}}",
        HEAD ",\"filters\":{\"runs\":[]}}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct audit_init init;
        const char *problem = NULL;
        assert_int_equal(audit_init_read(slice_of(texts[i]), false, &init, &problem),
                         STATUS_INVALID_MESSAGE);
        assert_non_null(problem);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_init_is_read_with_all_its_members),
        cmocka_unit_test(start_cursor_means_after_cursor),
        cmocka_unit_test(filters_let_through_the_events_they_name),
        cmocka_unit_test(a_message_that_is_no_init_is_refused_with_its_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
