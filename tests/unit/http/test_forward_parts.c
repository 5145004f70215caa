/* The parts of forwarding that need no writer: heads, lines and the proof of a node. */
#include "http/forward/forward_parts.h"
#include "test.h"
#include "wire/http1.h"

static const struct http1_limits limits = {8192, 16384, 64};

static const struct http1_request *parse(struct http1_parser *parser, const char *text) {
    struct slice input = slice_of(text);
    struct http1_event event;
    http1_parser_init(parser, &limits);
    assert_ok(http1_next(parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    return http1_parser_request(parser);
}

static void only_fields_from_end_to_end_are_forwarded(void **state) {
    (void)state;
    struct http1_parser parser;
    struct buffer out;
    buffer_init(&out, 4096);
    struct forward_head head = {
        .request = parse(&parser, "POST /v1/runs?token=t%20 HTTP/1.1\r\nHost: a:1\r\n"
                                  "Authorization: Bearer x\r\nConnection: keep-alive, X-Hop\r\n"
                                  "X-Hop: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\n"
                                  "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
                                  "X-Request-Id: theirs\r\nKhala-Forwarded-Proof: p\r\n"
                                  "Content-Type: application/json\r\n\r\n"),
        .request_id = SLICE("id"),
        .node_id = SLICE("node"),
        .proof = SLICE("proof"),
        .content_length = 7,
    };
    assert_ok(forward_head_write(&out, &head));
    assert_slice(buffer_slice(&out), "POST /v1/runs?token=t%20 HTTP/1.1\r\nHost: a:1\r\n"
                                     "Authorization: Bearer x\r\nContent-Type: application/json\r\n"
                                     "X-Request-Id: id\r\nKhala-Forwarded: node\r\n"
                                     "Khala-Forwarded-Proof: proof\r\nContent-Length: 7\r\n\r\n");
    buffer_clear(&out);
    head.is_chunked = head.expects_continue = true;
    assert_ok(forward_head_write(&out, &head));
    assert_true(slice_ends(buffer_slice(&out), SLICE("Expect: 100-continue\r\n"
                                                     "Transfer-Encoding: chunked\r\n\r\n")));
    http1_parser_release(&parser);
    buffer_release(&out);
}

static void an_answer_keeps_its_fields(void **state) {
    (void)state;
    struct http1_answer answer;
    struct http1_header fields[HTTP1_ANSWER_HEADERS_MAX];
    struct buffer body;
    struct slice input = SLICE("HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nDate: d\r\n"
                               "Retry-After: 2\r\nContent-Length: 0\r\n\r\n");
    http1_answer_init(&answer, &(const struct http1_peer){.is_node = true});
    buffer_init(&body, 16);
    assert_ok(http1_answer_read(&answer, &input, &body));
    assert_int_equal(forward_head_fields(&answer, fields), 2);
    assert_slice(fields[0].name, "Date");
    assert_slice(fields[1].value, "2");
    http1_answer_release(&answer);
}

static void only_whole_lines_are_passed_on(void **state) {
    (void)state;
    struct forward_lines lines = {.form = FORWARD_LINES_NDJSON};
    struct slice text = SLICE("{\"index\":0,\"status\":200}\n{\"index\":7,\"status\":409}\n{\"ind");
    assert_int_equal(forward_lines_take(&lines, text, false), 50);
    assert_int_equal(lines.next_index, 8);
    assert_true(lines.has_passed && !lines.is_inside);
    assert_int_equal(forward_lines_take(&lines, SLICE("{\"ind"), false), 0);
    assert_int_equal(forward_lines_take(&lines, SLICE("{\"index\":12,"), true), 12);
    assert_true(lines.is_inside);
    assert_int_equal(lines.next_index, 13);
    assert_int_equal(forward_lines_take(&lines, SLICE("\"index\":99}\nrest"), false), 12);
    assert_false(lines.is_inside);
    assert_int_equal(lines.next_index, 13);
}

static void lines_of_an_array_are_counted(void **state) {
    (void)state;
    struct forward_lines lines = {.form = FORWARD_LINES_ARRAY};
    struct slice text = SLICE("[{\"index\":0,\"status\":200},\n{\"index\":1}");
    assert_int_equal(forward_lines_take(&lines, text, false), 27);
    assert_int_equal(lines.next_index, 1);
    assert_int_equal(forward_lines_take(&lines, SLICE("{\"index\":1}]\n"), false), 13);
    assert_int_equal(lines.next_index, 2);
}

static void a_proof_needs_the_key(void **state) {
    (void)state;
    struct http1_parser parser;
    struct operator_key key, other;
    char proof[NODE_PROOF_SIZE + 1], text[512];
    assert_ok(operator_key_load(&key, "the-key-of-the-cluster", ""));
    assert_ok(operator_key_load(&other, "another-key", ""));
    node_proof_write(&key, SLICE("node"), proof);
    snprintf(
        text, sizeof(text),
        "POST / HTTP/1.1\r\nHost: a\r\nKhala-Forwarded: node\r\nKhala-Forwarded-Proof: %s\r\n\r\n",
        proof);
    const struct http1_request *request = parse(&parser, text);
    assert_true(node_proof_check(&key, request));
    assert_false(node_proof_check(&other, request));
    operator_key_set_previous(&other, SLICE("the-key-of-the-cluster"));
    assert_true(node_proof_check(&other, request));
    http1_parser_release(&parser);
    snprintf(
        text, sizeof(text),
        "POST / HTTP/1.1\r\nHost: a\r\nKhala-Forwarded: nodf\r\nKhala-Forwarded-Proof: %s\r\n\r\n",
        proof);
    assert_false(node_proof_check(&key, parse(&parser, text)));
    http1_parser_release(&parser);
    request = parse(&parser, "POST / HTTP/1.1\r\nHost: a\r\nKhala-Forwarded: node\r\n\r\n");
    assert_false(node_proof_check(&key, request));
    http1_parser_release(&parser);
}

static void a_refusal_names_its_status(void **state) {
    (void)state;
    assert_int_equal(
        forward_refusal(403, SLICE("{\"error\":\"forbidden_topic\",\"message\":\"\"}")),
        STATUS_FORBIDDEN_TOPIC);
    assert_int_equal(forward_refusal(200, SLICE("{\"error\":\"forbidden_topic\"}")), STATUS_OK);
    assert_int_equal(forward_refusal(403, SLICE("{\"error\":\"forbidden_topic")), STATUS_OK);
    assert_int_equal(forward_refusal(403, SLICE("{\"error\":\"forbidden\"}")), STATUS_OK);
    assert_int_equal(forward_refusal(502, SLICE("<html>")), STATUS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_fields_from_end_to_end_are_forwarded),
        cmocka_unit_test(an_answer_keeps_its_fields),
        cmocka_unit_test(only_whole_lines_are_passed_on),
        cmocka_unit_test(lines_of_an_array_are_counted),
        cmocka_unit_test(a_proof_needs_the_key),
        cmocka_unit_test(a_refusal_names_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
