/* The bytes that an exchange answers, over a real connection. */
#include "http/exchange.h"

#include "http/http_fixture.h"

static struct http_fixture fixture;
static void (*handler)(struct exchange *exchange);

static void handle(struct exchange *exchange) {
    handler(exchange);
}

static const struct route test_rows[] = {
    {HTTP1_METHOD_GET, "/here/{name}", handle, 0, 0, 0, NULL},
    {HTTP1_METHOD_POST, "/body", handle, 16, 0, 0, NULL},
    {HTTP1_METHOD_GET, "/operators", handle, 0, ROUTE_OPERATOR, KEY_ROLE_BIT(KEY_ROLE_ADMIN), NULL},
};

static int open_fixture(void **state) {
    (void)state;
    memset(&fixture, 0, sizeof(fixture));
    handler = NULL;
    assert_ok(operator_key_load(&fixture.http.operator_key, "the-operator-key", ""));
    fixture_http_open(&fixture, conn_accept);
    fixture.http.routes = (struct route_table){test_rows, sizeof(test_rows) / sizeof(test_rows[0])};
    return 0;
}

static int close_fixture(void **state) {
    (void)state;
    return fixture_http_close(&fixture);
}

/* The answer to the request. It is complete when the connection reads again. */
static const char *ask(const char *request) {
    static char answer[65536];
    size_t size = 0;
    memset(answer, 0, sizeof(answer));
    assert_int_equal(write(fixture.client, request, strlen(request)), strlen(request));
    while (size == 0) {
        io_loop_turn(&fixture.io, false);
        ssize_t taken = recv(fixture.client, answer, sizeof(answer) - 1, MSG_DONTWAIT);
        size += taken > 0 ? (size_t)taken : 0;
    }
    return answer;
}

static void answer_parameter(struct exchange *exchange) {
    exchange_answer(exchange, 200, SLICE("text/plain"), exchange->match.parameters[0]);
}

static void a_handler_receives_decoded_path_parameters(void **state) {
    (void)state;
    handler = answer_parameter;
    const char *answer = ask("GET /here/a%2Fb HTTP/1.1\r\nHost: khala\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(answer, "Content-Length: 3\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\na/b"));
}

static void an_error_has_the_standard_body_and_the_callers_request_id(void **state) {
    (void)state;
    const char *answer =
        ask("GET /nowhere HTTP/1.1\r\nHost: khala\r\nX-Request-Id: mine-7\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 404 Not Found\r\n"));
    assert_non_null(strstr(answer, "X-Request-Id: mine-7\r\n"));
    assert_non_null(strstr(answer, "{\"error\":\"not_found\",\"message\":\""));
    assert_non_null(strstr(answer, "\"request_id\":\"mine-7\"}\n"));
}

static void a_wrong_method_is_answered_with_the_allowed_methods(void **state) {
    (void)state;
    const char *answer = ask("DELETE /here/x HTTP/1.1\r\nHost: khala\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 405 "));
    assert_non_null(strstr(answer, "Allow: GET, HEAD\r\n"));
}

static void a_request_without_the_operator_key_is_challenged(void **state) {
    (void)state;
    const char *answer = ask("GET /operators HTTP/1.1\r\nHost: khala\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 401 "));
    assert_non_null(strstr(answer, "WWW-Authenticate: Bearer realm=\"khala\"\r\n"));
    assert_non_null(strstr(answer, "\"reason_code\":\"missing_authorization\""));
}

static void a_body_above_the_routes_limit_is_refused_before_the_handler(void **state) {
    (void)state;
    const char *answer = ask("POST /body HTTP/1.1\r\nHost: khala\r\nContent-Length: 17\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 413 "));
    assert_non_null(strstr(answer, "Connection: close\r\n"));
}

static void answer_full(struct exchange *exchange) {
    exchange_answer_status(exchange, STATUS_LIMIT_REACHED);
}

static void a_full_queue_names_the_time_of_a_retry(void **state) {
    (void)state;
    handler = answer_full;
    const char *answer = ask("GET /here/x HTTP/1.1\r\nHost: khala\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 503 "));
    assert_non_null(strstr(answer, "Retry-After: 1\r\n"));
}

static void no_piece(struct exchange *exchange) {
    (void)exchange;
}

static const struct exchange_stream pieces = {.sent = no_piece};

static void answer_in_pieces(struct exchange *exchange) {
    exchange->stream = &pieces;
    exchange_begin(exchange, 200, SLICE("text/plain"));
    assert_true(exchange_send(exchange, SLICE("first ")));
    exchange_end(exchange, SLICE("last"));
}

static void an_answer_in_pieces_is_chunked_for_http_1_1(void **state) {
    (void)state;
    handler = answer_in_pieces;
    const char *answer = ask("GET /here/x HTTP/1.1\r\nHost: khala\r\n\r\n");
    assert_non_null(strstr(answer, "Transfer-Encoding: chunked\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\n6\r\nfirst \r\n"));
}

static void an_answer_in_pieces_ends_with_the_connection_for_http_1_0(void **state) {
    (void)state;
    handler = answer_in_pieces;
    const char *answer = ask("GET /here/x HTTP/1.0\r\nHost: khala\r\n\r\n");
    assert_null(strstr(answer, "Transfer-Encoding"));
    assert_non_null(strstr(answer, "Connection: close\r\n"));
}

static void a_head_request_is_answered_without_a_body(void **state) {
    (void)state;
    handler = answer_parameter;
    const char *answer = ask("HEAD /here/abc HTTP/1.1\r\nHost: khala\r\n\r\n");
    assert_non_null(strstr(answer, "Content-Length: 3\r\n"));
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(a_handler_receives_decoded_path_parameters),
        TEST(an_error_has_the_standard_body_and_the_callers_request_id),
        TEST(a_wrong_method_is_answered_with_the_allowed_methods),
        TEST(a_request_without_the_operator_key_is_challenged),
        TEST(a_body_above_the_routes_limit_is_refused_before_the_handler),
        TEST(a_full_queue_names_the_time_of_a_retry),
        TEST(an_answer_in_pieces_is_chunked_for_http_1_1),
        TEST(an_answer_in_pieces_ends_with_the_connection_for_http_1_0),
        TEST(a_head_request_is_answered_without_a_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
