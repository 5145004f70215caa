#include "wire/websocket/ws_handshake.h"

#include "vectors.h"

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

static struct slice header(json_t *row, json_t *usual, const char *name) {
    json_t *headers = json_object_get(row, "headers");
    return vector_text_or_null(json_object_get(headers, name) ? headers : usual, name);
}

/* The usual headers, with those of the row over them. */
static struct ws_request request_of(json_t *row, json_t *handshake) {
    json_t *usual = json_object_get(handshake, "headers");
    return (struct ws_request){.upgrade = header(row, usual, "Upgrade"),
                               .connection = header(row, usual, "Connection"),
                               .key = header(row, usual, "Sec-WebSocket-Key"),
                               .version = header(row, usual, "Sec-WebSocket-Version")};
}

/* The status is the row's, or STATUS_OK; the response has the row's answer as that field. */
static void check_response(const struct ws_request *request, json_t *row, const char *field) {
    struct buffer out, expected;
    struct ws_agreement agreement;
    bool refused = json_object_get(row, "status") && vector_status(row) != STATUS_OK;
    struct slice answer = vector_text_or_null(row, "answer");
    buffer_init(&out, 4096);
    buffer_init(&expected, 4096);
    if (!refused)
        assert_ok(buffer_append_slice(&expected, SLICE(RESPONSE)));
    if (answer.data)
        assert_ok(buffer_printf(&expected, "%s: %s\r\n", field, answer.data));
    if (!refused)
        assert_ok(buffer_append_slice(&expected, SLICE("\r\n")));
    enum status status = ws_handshake(&out, request, &policy, &agreement);
    char *described = json_dumps(row, JSON_COMPACT);
    if (status != (refused ? vector_status(row) : STATUS_OK))
        fail_msg("%s: %s", described, status_code(status));
    if (!slice_equal(buffer_slice(&out), buffer_slice(&expected)))
        fail_msg("%s: %.*s", described, (int)out.size, out.data);
    if (!refused) {
        bool extension = request->extensions.data && answer.data;
        assert_int_equal(agreement.deflate, extension);
        assert_true(slice_equal(agreement.protocol, request->protocols.data ? answer : NO_HEADER));
    }
    free(described);
    buffer_release(&expected);
    buffer_release(&out);
}

static void a_key_has_its_accept(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    json_t *handshake = json_object_get(vectors, "handshake");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(handshake, "keys"), index, row) {
        struct buffer out, expected;
        struct ws_agreement agreement;
        struct ws_request request = request_of(NULL, handshake);
        request.key = vector_text(row, "key");
        buffer_init(&out, 4096);
        buffer_init(&expected, 100);
        assert_ok(buffer_printf(&expected, "Sec-WebSocket-Accept: %s\r\n\r\n",
                                vector_text(row, "accept").data));
        assert_ok(ws_handshake(&out, &request, &policy, &agreement));
        assert_true(slice_ends(buffer_slice(&out), buffer_slice(&expected)));
        buffer_release(&expected);
        buffer_release(&out);
    }
    json_decref(vectors);
}

static void requests_are_judged_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    json_t *handshake = json_object_get(vectors, "handshake");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(handshake, "requests"), index, row) {
        struct ws_request request = request_of(row, handshake);
        check_response(&request, row, "");
    }
    json_decref(vectors);
}

static void extensions_are_answered_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    json_t *handshake = json_object_get(vectors, "handshake");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(handshake, "extensions"), index, row) {
        struct ws_request request = request_of(NULL, handshake);
        request.extensions = vector_text(row, "offer");
        check_response(&request, row, "Sec-WebSocket-Extensions");
    }
    json_decref(vectors);
}

static void protocols_are_answered_as_the_vectors_say(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    json_t *handshake = json_object_get(vectors, "handshake");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(handshake, "protocols_spoken"), index, row)
        assert_slice(spoken[index], json_string_value(row));
    json_array_foreach(vectors_array(handshake, "protocols"), index, row) {
        struct ws_request request = request_of(NULL, handshake);
        request.protocols = vector_text(row, "offer");
        check_response(&request, row, "Sec-WebSocket-Protocol");
    }
    json_decref(vectors);
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
    request.extensions = SLICE("permessage-deflate; server_max_window_bits=9, permessage-deflate");
    request.protocols = (struct slice){NULL, 0};
    assert_ok(ws_handshake(&out, &request, &policy, &agreement));
    assert_slice(buffer_slice(&out), RESPONSE DEFLATE_LINE "; server_max_window_bits=9\r\n\r\n");
    assert_int_equal(agreement.server_window_bits, 9);
    buffer_clear(&out);
    request.extensions = SLICE("permessage-deflate; client_max_window_bits");
    request.protocols = SLICE("other");
    assert_ok(ws_handshake(&out, &request, &policy, &agreement));
    assert_slice(buffer_slice(&out), RESPONSE DEFLATE_LINE "\r\n\r\n");
    buffer_release(&out);
}

static void repeated_fields_are_joined_where_the_standard_allows_it(void **state) {
    (void)state;
    struct http1_header headers[] = {
        {SLICE("Upgrade"), SLICE("websocket")},
        {SLICE("Connection"), SLICE("keep-alive")},
        {SLICE("connection"), SLICE("Upgrade")},
        {SLICE("Sec-WebSocket-Protocol"), SLICE("a")},
        {SLICE("sec-websocket-protocol"), SLICE("b, c")},
        {SLICE("Sec-WebSocket-Protocol"), SLICE("d")},
        {SLICE("Sec-WebSocket-Extensions"), SLICE("x")},
        {SLICE("Sec-WebSocket-Extensions"), SLICE("y; z=1")},
        {SLICE("Sec-WebSocket-Key"), SLICE("k")},
        {SLICE("Sec-WebSocket-Version"), SLICE("13")},
        {SLICE("Other"), SLICE("13")},
    };
    struct http1_request http = {.headers = headers, .header_count = 11};
    struct ws_request request;
    struct buffer memory;
    buffer_init(&memory, 4096);
    assert_ok(ws_request_read(&http, &memory, &request));
    assert_slice(request.upgrade, "websocket");
    assert_slice(request.connection, "keep-alive,Upgrade");
    assert_slice(request.protocols, "a,b, c,d");
    assert_slice(request.extensions, "x,y; z=1");
    assert_slice(request.key, "k");
    assert_slice(request.version, "13");
    static const char *const once[] = {"sec-websocket-KEY", "Sec-WebSocket-Version"};
    for (size_t i = 0; i < 2; i++) {
        headers[10].name = slice_of(once[i]);
        buffer_clear(&memory);
        assert_int_equal(ws_request_read(&http, &memory, &request), STATUS_WS_BAD_HANDSHAKE);
    }
    buffer_release(&memory);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_has_its_accept),
        cmocka_unit_test(requests_are_judged_as_the_vectors_say),
        cmocka_unit_test(extensions_are_answered_as_the_vectors_say),
        cmocka_unit_test(protocols_are_answered_as_the_vectors_say),
        cmocka_unit_test(the_response_names_what_was_agreed),
        cmocka_unit_test(repeated_fields_are_joined_where_the_standard_allows_it),
        cmocka_unit_test(a_full_buffer_is_left_as_it_was),
        cmocka_unit_test(compression_can_be_turned_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
