#include "auth/compatibility.h"

#include "test.h"

static const struct compatibility_window window = {
    .is_enforced = true,
    .protocol_version = {"khala.ws.v1", 11},
    .client_build_id_min = {"20260101T000000Z", 16},
    .client_build_id_max = {"20261231T235959Z", 16},
    .schema_version_min = 2,
    .schema_version_max = 3,
};

static void clients_are_accepted_by_the_table(void **state) {
    (void)state;
    static const struct {
        const char *build;
        const char *protocol;
        int schema; /* -1: none */
        enum status status;
    } rows[] = {
        {"20260601T000000Z", "khala.ws.v1", 2, STATUS_OK},
        {"20260101T000000Z", "khala.ws.v1", 3, STATUS_OK},
        {"20261231T235959Z", "khala.ws.v1", 2, STATUS_OK},
        {"", "khala.ws.v1", 2, STATUS_INVALID_CLIENT_BUILD},
        {"  \t", "wrong", 9, STATUS_INVALID_CLIENT_BUILD},
        {"20250101T000000Z", "khala.ws.v2", 9, STATUS_UNSUPPORTED_PROTOCOL_VERSION},
        {"20260601T000000Z", "", 2, STATUS_UNSUPPORTED_PROTOCOL_VERSION},
        {"20250101T000000Z", "khala.ws.v1", 1, STATUS_UNSUPPORTED_SCHEMA_VERSION},
        {"20260601T000000Z", "khala.ws.v1", 4, STATUS_UNSUPPORTED_SCHEMA_VERSION},
        {"20260601T000000Z", "khala.ws.v1", -1, STATUS_UNSUPPORTED_SCHEMA_VERSION},
        {"20251231T235959Z", "khala.ws.v1", 2, STATUS_UPGRADE_REQUIRED},
        {"20260101T00000", "khala.ws.v1", 2, STATUS_UPGRADE_REQUIRED},
        {"20270101T000000Z", "khala.ws.v1", 2, STATUS_UNSUPPORTED_CLIENT_BUILD},
        {"20261231T235959Z1", "khala.ws.v1", 2, STATUS_UNSUPPORTED_CLIENT_BUILD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct compatibility_client client = {
            .client_build_id = slice_of(rows[i].build),
            .protocol_version = slice_of(rows[i].protocol),
            .has_schema_version = rows[i].schema >= 0,
            .schema_version = rows[i].schema >= 0 ? (uint64_t)rows[i].schema : 0,
        };
        struct compatibility_window open = window;
        open.is_enforced = false;
        if (compatibility_check(&window, &client) != rows[i].status)
            fail_msg("row %zu", i);
        assert_ok(compatibility_check(&open, &client));
        open.is_enforced = true;
        open.client_build_id_max = (struct slice){"", 0};
        if (rows[i].status == STATUS_UNSUPPORTED_CLIENT_BUILD)
            assert_ok(compatibility_check(&open, &client));
    }
}

static void a_refusal_names_the_accepted_versions(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1024);
    assert_ok(compatibility_write_json(&window, STATUS_UPGRADE_REQUIRED, &out));
    assert_slice(
        buffer_slice(&out),
        "{\"code\":\"upgrade_required\",\"message\":\"The client build is too old.\","
        "\"retryable\":false,\"upgrade_required\":true,\"surface\":\"khala_websocket\","
        "\"protocol_version\":\"khala.ws.v1\",\"min_client_build_id\":\"20260101T000000Z\","
        "\"max_client_build_id\":\"20261231T235959Z\",\"min_schema_version\":2,"
        "\"max_schema_version\":3}");
    buffer_release(&out);
    buffer_init(&out, 100);
    assert_int_equal(compatibility_write_json(&window, STATUS_UPGRADE_REQUIRED, &out),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(out.size, 0);
    buffer_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_are_accepted_by_the_table),
        cmocka_unit_test(a_refusal_names_the_accepted_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
