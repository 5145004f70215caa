#include "authority/event_write.h"
#include "test.h"

static void assert_text(const struct buffer *out, const char *wanted) {
    assert_slice(buffer_slice(out), wanted);
}

static struct store_event event_of(void) {
    struct store_event event = {
        .entity_kind = ENTITY_RUN,
        .entity_id = SLICE("r\"1"),
        .seq = 7,
        .type = SLICE("tool.called"),
        .payload = SLICE("{\"a\":[1,2]}"),
        .event_id = {{0x01, 0x8f, 0x3b, 0x7e, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x0a}},
        .cursor = {{0x01, 0x8f, 0x3b, 0x7e, 0x10, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x01}},
        .recorded_at_ms = 1714690068000,
        .owner = {.user_id = SLICE("u\"1"), .org_id = SLICE("o1")},
        .chain_version = STORE_CHAIN_VERSION,
    };
    memset(event.payload_hash, 0x22, SHA256_BYTES);
    memset(event.prev_chain_hash, 0x11, SHA256_BYTES);
    memset(event.chain_hash, 0xfe, SHA256_BYTES);
    return event;
}

#define HEX8(byte)  byte byte byte byte byte byte byte byte
#define HEX32(byte) HEX8(byte) HEX8(byte) HEX8(byte) HEX8(byte)

static void the_json_of_an_event_has_its_documented_fields(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 4096);
    struct store_event event = event_of();
    assert_ok(event_write_json(&out, &event));
    assert_text(&out,
                "{\"event_id\":\"018f3b7e-0000-7000-8000-00000000000a\","
                "\"cursor\":\"MTcxNDY5MDA2ODQ4MDowMThmM2I3ZS0xMDAwLTcwMDAtODAwMC0wMDAwMDAwMDAwM"
                "DE\",\"entity\":\"run\",\"entity_id\":\"r\\\"1\",\"seq\":7,"
                "\"event_type\":\"tool.called\",\"payload\":{\"a\":[1,2]},"
                "\"payload_hash\":\"sha256:" HEX32(
                    "22") "\","
                          "\"owner\":{\"user_id\":\"u\\\"1\",\"org_id\":\"o1\"},"
                          "\"recorded_at\":1714690068000,"
                          "\"prev_chain_hash\":\"sha256:" HEX32(
                              "11") "\","
                                    "\"chain_hash\":\"sha256:" HEX32("fe") "\"}");
    buffer_release(&out);
}

static void an_event_of_chain_version_1_names_its_version(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 4096);
    struct store_event event = event_of();
    event.chain_version = 1;
    event.owner = (struct owner){0};
    assert_ok(event_write_json(&out, &event));
    assert_non_null(memmem(out.data, out.size, "\"owner\":{},", 11));
    const char *end = HEX32("fe") "\",\"chain_version\":1}";
    assert_memory_equal(out.data + out.size - strlen(end), end, strlen(end));
    buffer_release(&out);
}

static void the_json_of_a_run_has_its_documented_fields(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 4096);
    struct store_entity run = {
        .kind = ENTITY_RUN,
        .id = SLICE("r1"),
        .status = SLICE("running"),
        .owner.user_id = SLICE("u1"),
        .thread_id = SLICE("t1"),
        .metadata = SLICE("{\"k\":1}"),
        .created_at_ms = 5,
        .started_at_ms = 6,
        .head_seq = 9,
    };
    assert_ok(run_write_json(&out, &run));
    assert_text(&out, "{\"run_id\":\"r1\",\"status\":\"running\",\"owner_user_id\":\"u1\","
                      "\"owner_guest_scope\":null,\"org_id\":null,\"worker_id\":null,"
                      "\"thread_id\":\"t1\",\"metadata\":{\"k\":1},\"created_at\":5,"
                      "\"started_at\":6,\"finished_at\":null,\"latest_seq\":9,"
                      "\"head_hash\":\"sha256:" HEX32("00") "\"}");
    buffer_release(&out);
}

static void the_json_of_a_worker_has_its_documented_fields_and_liveness(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 4096);
    struct store_entity worker = {
        .kind = ENTITY_WORKER,
        .id = SLICE("w1"),
        .status = SLICE("running"),
        .owner.guest_scope = SLICE("g1"),
        .adapter = SLICE("in_memory"),
        .created_at_ms = 5,
        .started_at_ms = 5,
        .last_heartbeat_at_ms = 1000,
        .head_seq = 2,
    };
    assert_ok(worker_write_json(&out, &worker, 121001));
    assert_text(&out, "{\"worker_id\":\"w1\",\"status\":\"running\",\"owner_user_id\":null,"
                      "\"owner_guest_scope\":\"g1\",\"org_id\":null,\"workspace_ref\":null,"
                      "\"codex_home_ref\":null,\"adapter\":\"in_memory\",\"metadata\":{},"
                      "\"created_at\":5,\"started_at\":5,\"stopped_at\":null,"
                      "\"last_heartbeat_at\":1000,\"liveness\":\"stale\",\"latest_seq\":2,"
                      "\"head_hash\":\"sha256:" HEX32("00") "\"}");
    buffer_release(&out);
}

static void a_full_buffer_keeps_its_earlier_content(void **state) {
    (void)state;
    struct store_event event = event_of();
    struct store_entity run = {.kind = ENTITY_RUN, .id = SLICE("r1")};
    struct store_entity worker = {.kind = ENTITY_WORKER, .id = SLICE("w1")};
    for (size_t size_max = 4; size_max < 200; size_max++) {
        struct buffer out;
        buffer_init(&out, size_max);
        assert_ok(buffer_append(&out, "kept", 4));
        assert_int_equal(event_write_json(&out, &event), STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(run_write_json(&out, &run), STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(worker_write_json(&out, &worker, 1), STATUS_PAYLOAD_TOO_LARGE);
        assert_text(&out, "kept");
        buffer_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_json_of_an_event_has_its_documented_fields),
        cmocka_unit_test(an_event_of_chain_version_1_names_its_version),
        cmocka_unit_test(the_json_of_a_run_has_its_documented_fields),
        cmocka_unit_test(the_json_of_a_worker_has_its_documented_fields_and_liveness),
        cmocka_unit_test(a_full_buffer_keeps_its_earlier_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
