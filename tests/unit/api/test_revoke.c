#include "api/revoke.h"

#include "../test.h"

static struct revoke_request request;

static enum status read_text(const char *text) {
    const char *why = NULL;
    return revoke_request_read(slice_of(text), &request, &why);
}

static void all_ids_of_a_request_are_read(void **state) {
    (void)state;
    assert_ok(
        read_text("{\"reason\":\"lost\",\"jtis\":[\"j\"],\"session_ids\":[\"s1\",\"s\\u0032\"],"
                  "\"device_ids\":null}"));
    assert_int_equal(request.count, 3);
    assert_int_equal(request.counts[REVOCATION_SESSION], 2);
    assert_int_equal(request.counts[REVOCATION_DEVICE], 0);
    assert_int_equal(request.counts[REVOCATION_TOKEN], 1);
    assert_int_equal(request.revocations[0].kind, REVOCATION_SESSION);
    assert_slice(request.revocations[1].id, "s2");
    assert_slice(request.revocations[1].reason, "lost");
    assert_int_equal(request.revocations[2].kind, REVOCATION_TOKEN);
    assert_slice(request.revocations[2].id, "j");
    revoke_request_release(&request);
}

static void a_request_with_any_unknown_part_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{}",
        "{\"session_ids\":[]}",
        "{\"session_ids\":{}}",
        "{\"session_ids\":[\"\"]}",
        "{\"session_ids\":[[\"s\"]]}",
        "{\"session_ids\":[\"s\"],\"session_id\":\"t\"}",
        "{\"session_ids\":[\"s\"],\"reason\":\"\"}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *why = NULL;
        assert_int_equal(revoke_request_read(slice_of(texts[i]), &request, &why),
                         STATUS_INVALID_REQUEST);
        assert_non_null(why);
    }
    assert_int_not_equal(read_text("{\"jtis\":[\"a\"],\"jtis\":[\"b\"]}"), STATUS_OK);
    assert_int_not_equal(read_text("[]"), STATUS_OK);
    assert_int_not_equal(read_text(""), STATUS_OK);
}

static void the_number_of_ids_is_limited(void **state) {
    (void)state;
    for (size_t count = REVOKE_IDS_MAX; count <= REVOKE_IDS_MAX + 1; count++) {
        struct buffer text;
        const char *why = NULL;
        buffer_init(&text, REVOKE_BYTES_MAX);
        assert_ok(buffer_append_slice(&text, SLICE("{\"jtis\":[\"x\"")));
        for (size_t i = 1; i < count; i++)
            assert_ok(buffer_append_slice(&text, SLICE(",\"x\"")));
        assert_ok(buffer_append_slice(&text, SLICE("]}")));
        enum status status = revoke_request_read(buffer_slice(&text), &request, &why);
        assert_int_equal(status, count > REVOKE_IDS_MAX ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (status == STATUS_OK)
            revoke_request_release(&request);
        buffer_release(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ids_of_a_request_are_read),
        cmocka_unit_test(a_request_with_any_unknown_part_is_refused),
        cmocka_unit_test(the_number_of_ids_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
