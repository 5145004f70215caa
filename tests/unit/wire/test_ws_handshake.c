#include "wire/ws_handshake.h"

#include "test.h"

#define KEY       "dGhlIHNhbXBsZSBub25jZQ=="
#define NO_HEADER ((struct slice){NULL, 0})
#define RESPONSE                                                                                   \
    "HTTP/1.1 101 Switching Protocols\r\n"                                                         \
    "Upgrade: websocket\r\n"                                                                       \
    "Connection: Upgrade\r\n"                                                                      \
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
#define DEFLATE_LINE                                                                               \
    "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "                   \
    "client_no_context_takeover"

static const struct slice spoken[] = {{"phoenix", 7}, {"khala.v1", 8}};
static const struct ws_policy policy = {true, spoken, 2};

static struct ws_request plain_request(void) {
    return (struct ws_request){.upgrade = SLICE("websocket"),
                               .connection = SLICE("Upgrade"),
                               .key = SLICE(KEY),
                               .version = SLICE("13")};
}

static enum status shake(const struct ws_request *request, struct ws_agreement *agreement) {
    struct buffer out;
    buffer_init(&out, 4096);
    enum status status = ws_handshake(&out, request, &policy, agreement);
    assert_true((out.size > 0) == (status == STATUS_OK));
    buffer_release(&out);
    return status;
}

static void the_example_of_the_rfc(void **state) {
    (void)state;
    struct buffer out;
    struct ws_agreement agreement;
    struct ws_request request = plain_request();
    buffer_init(&out, 4096);
    assert_ok(ws_handshake(&out, &request, &policy, &agreement));
    assert_slice(buffer_slice(&out), RESPONSE "\r\n");
    assert_false(agreement.deflate);
    assert_null(agreement.protocol.data);
    buffer_release(&out);
}

static void the_response_names_what_was_agreed(void **state) {
    (void)state;
    struct buffer out;
    struct ws_agreement agreement;
    struct ws_request request = plain_request();
    buffer_init(&out, 4096);
    request.extensions = SLICE("permessage-deflate; server_max_window_bits=15");
    request.protocols = SLICE("other, khala.v1, phoenix");
    assert_ok(ws_handshake(&out, &request, &policy, &agreement));
    assert_slice(buffer_slice(&out), RESPONSE DEFLATE_LINE "; server_max_window_bits=15\r\n"
                                                           "Sec-WebSocket-Protocol: khala.v1\r\n"
                                                           "\r\n");
    buffer_clear(&out);
    request.extensions = SLICE("permessage-deflate; client_max_window_bits");
    request.protocols = SLICE("other");
    assert_ok(ws_handshake(&out, &request, &policy, &agreement));
    assert_slice(buffer_slice(&out), RESPONSE DEFLATE_LINE "\r\n\r\n");
    buffer_release(&out);
}

static void a_full_buffer_is_left_as_it_was(void **state) {
    (void)state;
    struct ws_agreement agreement;
    struct ws_request request = plain_request();
    request.extensions = SLICE("permessage-deflate");
    request.protocols = SLICE("phoenix");
    for (size_t size_max = 1; size_max < 260; size_max += 7) {
        struct buffer out;
        buffer_init(&out, size_max);
        assert_int_equal(ws_handshake(&out, &request, &policy, &agreement),
                         STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(out.size, 0);
        buffer_release(&out);
    }
}

static void upgrade_and_connection_are_lists_without_case(void **state) {
    (void)state;
    static const struct {
        struct slice upgrade, connection;
        enum status status;
    } cases[] = {
        {SLICE("WebSocket"), SLICE("keep-alive, Upgrade"), STATUS_OK},
        {SLICE("h2c , websocket"), SLICE("UPGRADE,keep-alive"), STATUS_OK},
        {SLICE(",websocket,"), SLICE("\tupgrade "), STATUS_OK},
        {SLICE("websocket2"), SLICE("Upgrade"), STATUS_WS_BAD_HANDSHAKE},
        {SLICE("websocket/13"), SLICE("Upgrade"), STATUS_WS_BAD_HANDSHAKE},
        {SLICE("websocket"), SLICE("keep-alive"), STATUS_WS_BAD_HANDSHAKE},
        {SLICE("websocket"), SLICE("Upgrade keep-alive"), STATUS_WS_BAD_HANDSHAKE},
        {SLICE(""), SLICE("Upgrade"), STATUS_WS_BAD_HANDSHAKE},
        {NO_HEADER, SLICE("Upgrade"), STATUS_WS_BAD_HANDSHAKE},
        {SLICE("websocket"), NO_HEADER, STATUS_WS_BAD_HANDSHAKE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ws_agreement agreement;
        struct ws_request request = plain_request();
        request.upgrade = cases[i].upgrade;
        request.connection = cases[i].connection;
        assert_int_equal(shake(&request, &agreement), cases[i].status);
    }
}

static void only_version_13(void **state) {
    (void)state;
    static const struct slice others[] = {{"8", 1}, {"12", 2}, {"013", 3}, {"13, 8", 5}, {"", 0}};
    struct ws_agreement agreement;
    struct ws_request request = plain_request();
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        request.version = others[i];
        request.key = NO_HEADER;
        assert_int_equal(shake(&request, &agreement), STATUS_WS_UNSUPPORTED_VERSION);
    }
    request = plain_request();
    request.version = NO_HEADER;
    assert_int_equal(shake(&request, &agreement), STATUS_WS_BAD_HANDSHAKE);
    request = plain_request();
    request.version = SLICE("8");
    request.upgrade = NO_HEADER;
    assert_int_equal(shake(&request, &agreement), STATUS_WS_BAD_HANDSHAKE);
}

static void the_key_is_canonical_base64_of_16_bytes(void **state) {
    (void)state;
    static const struct {
        const char *key;
        enum status status;
    } cases[] = {
        {KEY, STATUS_OK},
        {"AAAAAAAAAAAAAAAAAAAAAA==", STATUS_OK},
        {"/////////////////////w==", STATUS_OK},
        {"+/+/+/+/+/+/+/+/+/+/+w==", STATUS_OK},
        {"dGhlIHNhbXBsZSBub25jZR==", STATUS_WS_BAD_HANDSHAKE}, /* bits set in the padding */
        {"dGhlIHNhbXBsZSBub25jZQ=A", STATUS_WS_BAD_HANDSHAKE},
        {"dGhlIHNhbXBsZSBub25jZQAA", STATUS_WS_BAD_HANDSHAKE}, /* 18 bytes */
        {"dGhlIHNhbXBsZSBub25jZQE=", STATUS_WS_BAD_HANDSHAKE}, /* 17 bytes */
        {"dGhlIHNhbXBsZSBub25j====", STATUS_WS_BAD_HANDSHAKE},
        {"dGhlIHNhbXBsZSBub25jZQ", STATUS_WS_BAD_HANDSHAKE},
        {"dGhlIHNhbXBsZSBub25jZQ==A", STATUS_WS_BAD_HANDSHAKE},
        {" GhlIHNhbXBsZSBub25jZQ==", STATUS_WS_BAD_HANDSHAKE},
        {"dGhlIHNhbXBsZSBub25jZQ= ", STATUS_WS_BAD_HANDSHAKE},
        {"dGhlIHNhbXBs_SBub25jZQ==", STATUS_WS_BAD_HANDSHAKE},
        {"dGhlIHNhbXBs\nSBub25jZQ==", STATUS_WS_BAD_HANDSHAKE},
        {"", STATUS_WS_BAD_HANDSHAKE},
    };
    struct ws_agreement agreement;
    struct ws_request request = plain_request();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        request.key = slice_of(cases[i].key);
        assert_int_equal(shake(&request, &agreement), cases[i].status);
    }
    request.key = NO_HEADER;
    assert_int_equal(shake(&request, &agreement), STATUS_WS_BAD_HANDSHAKE);
}

enum outcome { REFUSED, DECLINED, ACCEPTED, ACCEPTED_WITH_BITS };

static const struct {
    const char *extensions;
    enum outcome outcome;
} offers[] = {
    {"", DECLINED},
    {"permessage-deflate", ACCEPTED},
    {" permessage-deflate ", ACCEPTED},
    {"permessage-deflate; client_max_window_bits", ACCEPTED},
    {"permessage-deflate;client_max_window_bits=8", ACCEPTED},
    {"permessage-deflate;client_max_window_bits=15", ACCEPTED},
    {"permessage-deflate;client_max_window_bits=\"9\"", ACCEPTED},
    {"permessage-deflate;client_max_window_bits=\"1\\5\"", ACCEPTED},
    {"permessage-deflate;client_max_window_bits = 10", ACCEPTED},
    {"permessage-deflate;server_no_context_takeover;client_no_context_takeover", ACCEPTED},
    {"permessage-deflate;server_max_window_bits=15", ACCEPTED_WITH_BITS},
    {"permessage-deflate;server_max_window_bits=\"15\"", ACCEPTED_WITH_BITS},
    /* Shared frames use 15. */
    {"permessage-deflate;server_max_window_bits=14", DECLINED},
    {"permessage-deflate;server_max_window_bits=8", DECLINED},
    /* The next offer is the fallback. */
    {"permessage-deflate;server_max_window_bits=10, permessage-deflate", ACCEPTED},
    {"permessage-deflate, permessage-deflate;server_max_window_bits=15", ACCEPTED},
    {"x-webkit-deflate-frame, permessage-deflate", ACCEPTED},
    {",, permessage-deflate,,", ACCEPTED},
    {"mux; max-channels=4; flow-control, deflate-stream", DECLINED},
    {"mux; quoted=\"token\"", DECLINED},
    /* Values out of range, missing or not wanted. */
    {"permessage-deflate;client_max_window_bits=7", DECLINED},
    {"permessage-deflate;client_max_window_bits=16", DECLINED},
    {"permessage-deflate;client_max_window_bits=08", DECLINED},
    {"permessage-deflate;client_max_window_bits=015", DECLINED},
    {"permessage-deflate;client_max_window_bits=150", DECLINED},
    {"permessage-deflate;client_max_window_bits=x", DECLINED},
    {"permessage-deflate;client_max_window_bits=1x", DECLINED},
    {"permessage-deflate;server_max_window_bits", DECLINED},
    {"permessage-deflate;server_max_window_bits=0", DECLINED},
    {"permessage-deflate;server_no_context_takeover=1", DECLINED},
    {"permessage-deflate;client_no_context_takeover=\"true\"", DECLINED},
    /* Twice, or unknown. */
    {"permessage-deflate;server_no_context_takeover;server_no_context_takeover", DECLINED},
    {"permessage-deflate;client_max_window_bits;client_max_window_bits=9", DECLINED},
    {"permessage-deflate;server_max_window_bits=15;server_max_window_bits=15", DECLINED},
    {"permessage-deflate;level=9", DECLINED},
    {"permessage-deflate;Client_max_window_bits", DECLINED},
    {"permessage-deflatex", DECLINED},
    /* Not of the grammar. */
    {"permessage-deflate;", REFUSED},
    {"permessage-deflate;;client_max_window_bits", REFUSED},
    {"permessage-deflate; =9", REFUSED},
    {"permessage-deflate; client_max_window_bits=", REFUSED},
    {"permessage-deflate; client_max_window_bits=\"\"", REFUSED},
    {"permessage-deflate; client_max_window_bits=\"", REFUSED},
    {"permessage-deflate; client_max_window_bits=\"9", REFUSED},
    {"permessage-deflate; client_max_window_bits=9\"", REFUSED},
    {"permessage-deflate; client_max_window_bits=\"9\\\"", REFUSED},
    {"permessage-deflate; client_max_window_bits=\"9 \"", REFUSED},
    {"permessage-deflate; client_max_window_bits=\"9,9\"", REFUSED},
    {"permessage-deflate; client_max_window_bits=9=9", REFUSED},
    {"permessage-deflate; client_max_window_bits=1 5", REFUSED},
    {"permessage-deflate client_max_window_bits", REFUSED},
    {"permessage-deflate, \"x\"", REFUSED},
    {"permessage-deflate, a b", REFUSED},
    {"; permessage-deflate", REFUSED},
    {"permessage-deflate; caf\xc3\xa9", REFUSED},
    {"permessage-deflate\x01", REFUSED},
};

static void offers_are_accepted_declined_or_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
        struct ws_agreement agreement;
        struct ws_request request = plain_request();
        request.extensions = slice_of(offers[i].extensions);
        enum status status = shake(&request, &agreement);
        enum outcome outcome = status != STATUS_OK           ? REFUSED
                               : agreement.window_bits_named ? ACCEPTED_WITH_BITS
                               : agreement.deflate           ? ACCEPTED
                                                             : DECLINED;
        if (outcome != offers[i].outcome)
            fail_msg("%s: outcome %d", offers[i].extensions, (int)outcome);
        if (outcome == REFUSED)
            assert_int_equal(status, STATUS_WS_BAD_HANDSHAKE);
    }
}

static void compression_can_be_turned_off(void **state) {
    (void)state;
    const struct ws_policy without = {false, NULL, 0};
    struct ws_agreement agreement;
    struct ws_request request = plain_request();
    struct buffer out;
    buffer_init(&out, 4096);
    request.extensions = SLICE("permessage-deflate");
    request.protocols = SLICE("phoenix");
    assert_ok(ws_handshake(&out, &request, &without, &agreement));
    assert_slice(buffer_slice(&out), RESPONSE "\r\n");
    request.extensions = SLICE("permessage-deflate;");
    assert_int_equal(ws_handshake(&out, &request, &without, &agreement), STATUS_WS_BAD_HANDSHAKE);
    buffer_release(&out);
}

static void a_protocol_list_holds_tokens(void **state) {
    (void)state;
    static const struct {
        const char *protocols;
        const char *agreed;
        enum status status;
    } cases[] = {
        {"phoenix", "phoenix", STATUS_OK},
        {"phoenix, base64url.bearer.phx.eyJ", "phoenix", STATUS_OK},
        {"khala.v1,phoenix", "khala.v1", STATUS_OK},
        {"Phoenix", NULL, STATUS_OK},
        {",phoenix,", "phoenix", STATUS_OK},
        {"", NULL, STATUS_OK},
        {"a b", NULL, STATUS_WS_BAD_HANDSHAKE},
        {"phoenix, \"x\"", NULL, STATUS_WS_BAD_HANDSHAKE},
        {"phoenix\r\nSet-Cookie: x", NULL, STATUS_WS_BAD_HANDSHAKE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ws_agreement agreement;
        struct ws_request request = plain_request();
        request.protocols = slice_of(cases[i].protocols);
        assert_int_equal(shake(&request, &agreement), cases[i].status);
        if (cases[i].status != STATUS_OK)
            continue;
        if (cases[i].agreed)
            assert_slice(agreement.protocol, cases[i].agreed);
        else
            assert_null(agreement.protocol.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_rfc),
        cmocka_unit_test(the_response_names_what_was_agreed),
        cmocka_unit_test(a_full_buffer_is_left_as_it_was),
        cmocka_unit_test(upgrade_and_connection_are_lists_without_case),
        cmocka_unit_test(only_version_13),
        cmocka_unit_test(the_key_is_canonical_base64_of_16_bytes),
        cmocka_unit_test(offers_are_accepted_declined_or_refused),
        cmocka_unit_test(compression_can_be_turned_off),
        cmocka_unit_test(a_protocol_list_holds_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
