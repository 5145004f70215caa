#include "auth/compatibility.h"

#include "test.h"

static const struct json_limits limits = {4096, 8};

static struct json_value parse(const char *text) {
    struct json_value value;
    assert_ok(json_parse(slice_of(text), &limits, &value));
    return value;
}

static void a_query_has_the_three_members(void **state) {
    (void)state;
    struct compatibility_claim claim = {.schema_version.size = 0};
    compatibility_claim_query(
        &claim, SLICE("vsn=2.0.0&client_build_id=20260101T000000Z&protocol_version=khala%2ews.v1"
                      "&schema_version=3"));
    struct compatibility_client client = compatibility_claim_client(&claim);
    assert_slice(client.client_build_id, "20260101T000000Z");
    assert_slice(client.protocol_version, "khala.ws.v1");
    assert_true(client.has_schema_version);
    assert_int_equal(client.schema_version, 3);
}

static void members_of_the_payload_replace_those_of_the_query(void **state) {
    (void)state;
    struct compatibility_claim claim = {.schema_version.size = 0};
    compatibility_claim_query(&claim,
                              SLICE("client_build_id=a&protocol_version=b&schema_version=1"));
    compatibility_claim_json(
        &claim, parse("{\"client_build_id\":\"c\\u0064\",\"protocol_version\":null,\"other\":[],"
                      "\"schema_version\":2}"));
    struct compatibility_client client = compatibility_claim_client(&claim);
    assert_slice(client.client_build_id, "cd");
    assert_slice(client.protocol_version, "b");
    assert_int_equal(client.schema_version, 2);
    compatibility_claim_json(&claim, parse("{\"schema_version\":\"7\"}"));
    assert_int_equal(compatibility_claim_client(&claim).schema_version, 7);
    compatibility_claim_json(&claim, parse("[]"));
    assert_int_equal(compatibility_claim_client(&claim).schema_version, 7);
}

static void a_malformed_member_is_empty(void **state) {
    (void)state;
    static const char *const payloads[] = {
        "{\"client_build_id\":[],\"schema_version\":-1}",
        "{\"client_build_id\":true,\"schema_version\":1.5}",
        "{\"client_build_id\":{},\"schema_version\":1e3}",
        "{\"client_build_id\":\"\",\"schema_version\":99999999999999999999999}",
        "{\"client_build_id\":\"\",\"schema_version\":\" 1\"}",
        "{\"client_build_id\":\"a\",\"client_build_id\":\"b\",\"schema_version\":1}",
        ("{\"client_build_id\":"
         "\"01234567890123456789012345678901234567890123456789012345678901234\","
         "\"schema_version\":\"\"}"),
    };
    static const char *const queries[] = {
        "client_build_id=a&client_build_id=b&schema_version=1&schema_version=1",
        "client_build_id=%zz&schema_version=%00",
        "client_build_id=01234567890123456789012345678901234567890123456789012345678901234",
        "schema_version=0x1",
    };
    for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
        struct compatibility_claim claim = {.client_build_id = {3, "old"},
                                            .schema_version = {1, "1"}};
        compatibility_claim_json(&claim, parse(payloads[i]));
        assert_int_equal(compatibility_claim_client(&claim).client_build_id.size, 0);
        assert_false(compatibility_claim_client(&claim).has_schema_version);
    }
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        struct compatibility_claim claim = {.schema_version.size = 0};
        compatibility_claim_query(&claim, slice_of(queries[i]));
        assert_int_equal(compatibility_claim_client(&claim).client_build_id.size, 0);
        assert_false(compatibility_claim_client(&claim).has_schema_version);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_has_the_three_members),
        cmocka_unit_test(members_of_the_payload_replace_those_of_the_query),
        cmocka_unit_test(a_malformed_member_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
