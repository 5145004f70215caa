#include "authority/event_write.h"
#include "test.h"

#define HEX8(byte)  byte byte byte byte byte byte byte byte
#define HEX32(byte) HEX8(byte) HEX8(byte) HEX8(byte) HEX8(byte)
#define LINE                                                                                       \
    "018f3b7e-0000-7000-8000-00000000000a,"                                                        \
    "MTcxNDY5MDA2ODQ4MDowMThmM2I3ZS0xMDAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDE,run,\"r,\"\"1\",7,"       \
    "tool.called,\"{\"\"a\"\":[1,2]}\",sha256:" HEX32(                                             \
        "22") ",u1,,\"o,1\",1714690068000,sha256:" HEX32("11") ",sha256:" HEX32("fe") ",2\r\n"

static struct store_event event_of(void) {
    struct store_event event = {
        .entity_kind = ENTITY_RUN,
        .entity_id = SLICE("r,\"1"),
        .seq = 7,
        .type = SLICE("tool.called"),
        .payload = SLICE("{\"a\":[1,2]}"),
        .event_id = {{0x01, 0x8f, 0x3b, 0x7e, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x0a}},
        .cursor = {{0x01, 0x8f, 0x3b, 0x7e, 0x10, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x01}},
        .recorded_at_ms = 1714690068000,
        .owner = {.user_id = SLICE("u1"), .org_id = SLICE("o,1")},
        .chain_version = STORE_CHAIN_VERSION,
    };
    memset(event.payload_hash, 0x22, SHA256_BYTES);
    memset(event.prev_chain_hash, 0x11, SHA256_BYTES);
    memset(event.chain_hash, 0xfe, SHA256_BYTES);
    return event;
}

static void an_event_is_a_line_of_its_columns(void **state) {
    (void)state;
    struct buffer out;
    struct store_event event = event_of();
    buffer_init(&out, 4096);
    assert_ok(event_write_csv(&out, &event));
    assert_slice(buffer_slice(&out), LINE);
    buffer_release(&out);
}

static void a_line_has_room_for_the_largest_numbers(void **state) {
    (void)state;
    struct buffer out;
    struct store_event event = event_of();
    event.seq = UINT64_MAX;
    event.recorded_at_ms = UINT64_MAX - 1;
    buffer_init(&out, 4096);
    assert_ok(event_write_csv(&out, &event));
    assert_non_null(memmem(out.data, out.size, ",18446744073709551615,", 22));
    assert_non_null(memmem(out.data, out.size, ",18446744073709551614,", 22));
    buffer_release(&out);
}

static void a_line_is_written_completely_or_not_at_all(void **state) {
    (void)state;
    struct store_event event = event_of();
    for (size_t room = 0; room <= sizeof(LINE) - 1; room++) {
        struct buffer out;
        buffer_init(&out, room + 1);
        assert_ok(buffer_append_byte(&out, '|'));
        bool fits = room == sizeof(LINE) - 1;
        assert_int_equal(event_write_csv(&out, &event),
                         fits ? STATUS_OK : STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(out.size, fits ? room + 1 : 1);
        buffer_release(&out);
    }
}

static void the_header_has_as_many_columns_as_a_line(void **state) {
    (void)state;
    size_t commas = 0;
    for (const char *at = EVENT_CSV_HEADER; *at; at++)
        commas += *at == ',';
    assert_int_equal(commas, 14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_a_line_of_its_columns),
        cmocka_unit_test(a_line_has_room_for_the_largest_numbers),
        cmocka_unit_test(a_line_is_written_completely_or_not_at_all),
        cmocka_unit_test(the_header_has_as_many_columns_as_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
