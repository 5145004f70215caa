#include "test.h"

#include "wire/http1_response.h"

static const struct http1_peer node = {.is_node = true};
static struct http1_answer answer;
static struct buffer body;

/* Reads the stream in pieces of that many bytes; the rest of the stream is in left. */
static enum status read_stream(const char *stream, size_t piece_bytes, struct slice *left) {
    enum status status = STATUS_OK;
    *left = slice_of(stream);
    http1_answer_release(&answer);
    buffer_release(&body);
    buffer_init(&body, 4096);
    while (status == STATUS_OK && left->size > 0 && !http1_answer_is_done(&answer)) {
        struct slice piece = {left->data, left->size < piece_bytes ? left->size : piece_bytes};
        struct slice input = piece;
        status = http1_answer_read(&answer, &input, &body);
        *left = slice_from(*left, piece.size - input.size);
    }
    return status;
}

static enum status read_text(const char *stream) {
    struct slice left;
    return read_stream(stream, SIZE_MAX, &left);
}

static int set_up(void **state) {
    (void)state;
    http1_answer_init(&answer, &node);
    buffer_init(&body, 4096);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    http1_answer_release(&answer);
    buffer_release(&body);
    return 0;
}

static void a_body_of_known_length_is_read(void **state) {
    (void)state;
    struct slice left, value;
    for (size_t piece = 1; piece < 100; piece++) {
        assert_ok(read_stream("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
                              "Retry-After:  1 \r\nContent-Length: 3\r\n\r\n{}\nHTTP",
                              piece, &left));
        assert_true(http1_answer_is_done(&answer));
        assert_int_equal(answer.http_status, 404);
        assert_true(answer.keep_alive);
        assert_false(answer.chunked);
        assert_slice(buffer_slice(&body), "{}\n");
        assert_true(http1_answer_find(&answer, SLICE("retry-after"), &value));
        assert_slice(value, "1");
        assert_slice(left, "HTTP");
    }
}

static void chunks_are_joined_after_an_interim_answer(void **state) {
    (void)state;
    struct slice left;
    for (size_t piece = 1; piece < 100; piece++) {
        assert_ok(read_stream("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
                              "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                              "5\r\nhello\r\nA\r\n, the rest\r\n0\r\n\r\n",
                              piece, &left));
        assert_true(http1_answer_is_done(&answer));
        assert_true(answer.is_continued);
        assert_false(answer.keep_alive);
        assert_slice(buffer_slice(&body), "hello, the rest");
        assert_int_equal(left.size, 0);
    }
}

static void an_answer_is_not_done_before_its_end(void **state) {
    (void)state;
    assert_ok(read_text("HTTP/1.1 100 Continue\r\n\r\n"));
    assert_true(answer.is_continued && !answer.has_head);
    assert_ok(read_text("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"));
    assert_true(answer.has_head && !http1_answer_is_done(&answer));
    assert_ok(read_text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r"));
    assert_false(http1_answer_is_done(&answer));
    assert_ok(read_text("HTTP/1.1 204 No Content\r\n\r\n"));
    assert_true(http1_answer_is_done(&answer));
}

static void bad_answers_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n folded\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_text(bad[i]), STATUS_BAD_REQUEST);
        struct slice more = SLICE("HTTP/1.1 204 No Content\r\n\r\n");
        assert_int_equal(http1_answer_read(&answer, &more, &body), STATUS_BAD_REQUEST);
    }
}

/* A proxy may stand before the server, or a webhook's receiver may be any server. */
static void answers_of_any_server_are_read(void **state) {
    (void)state;
    static const struct slice names[] = {SLICE("retry-after")};
    static const struct http1_peer any = {.names = names, .name_count = 1};
    struct slice left, value;
    char many[64 * (HTTP1_ANSWER_HEADERS_MAX + 4)] = "HTTP/1.0 200 OK\r\n";
    for (size_t piece = 1; piece < 100; piece++) {
        http1_answer_release(&answer);
        http1_answer_init(&answer, &any);
        assert_ok(read_stream("HTTP/1.1 429 Slow\r\nX-Cache: miss\r\nRetry-After: 7\r\nX: \r\n"
                              "Transfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\n"
                              "Retry-After: 9\r\n\r\n",
                              piece, &left));
        assert_true(http1_answer_is_done(&answer) && answer.keep_alive);
        assert_int_equal(answer.header_count, 1);
        assert_true(http1_answer_find(&answer, SLICE("Retry-After"), &value));
        assert_slice(value, "7");
        assert_slice(buffer_slice(&body), "hello");
        /* A body that ends with the connection. */
        assert_ok(read_stream("HTTP/1.0 200 OK\r\n\r\nhello", piece, &left));
        assert_false(http1_answer_is_done(&answer));
        assert_ok(http1_answer_end(&answer));
        assert_true(http1_answer_is_done(&answer) && !answer.keep_alive);
        assert_slice(buffer_slice(&body), "hello");
        assert_ok(read_stream("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                              "Connection: Upgrade\r\n\r\nframes",
                              piece, &left));
        assert_true(answer.is_upgrade);
        assert_slice(left, "frames");
    }
    for (size_t i = 0; i <= HTTP1_ANSWER_HEADERS_MAX; i++)
        strcat(many, "Retry-After: 1\r\n");
    strcat(many, "Content-Length: 9\r\n\r\nhello");
    assert_ok(read_text(many));
    assert_int_equal(answer.header_count, HTTP1_ANSWER_HEADERS_MAX);
    assert_int_equal(http1_answer_end(&answer), STATUS_BAD_REQUEST);
    assert_int_equal(read_text("HTTP/1.1 200 OK\r\nRetry-After: \x01\r\n\r\n"), STATUS_BAD_REQUEST);
    assert_int_equal(read_text("SSH-2.0-OpenSSH\r\n"), STATUS_BAD_REQUEST);
}

static void a_long_head_is_refused(void **state) {
    (void)state;
    struct slice line = SLICE("X: 0123456789012345678901234567890123456789\r\n");
    struct slice input = SLICE("HTTP/1.1 200 OK\r\n");
    enum status status = http1_answer_read(&answer, &input, &body);
    for (size_t i = 0; status == STATUS_OK && i < HTTP1_ANSWER_HEAD_BYTES_MAX; i++) {
        input = line;
        status = http1_answer_read(&answer, &input, &body);
    }
    assert_int_equal(status, STATUS_HEADERS_TOO_LARGE);
    char many[64 * (HTTP1_ANSWER_HEADERS_MAX + 2)] = "HTTP/1.1 200 OK\r\n";
    for (size_t i = 0; i <= HTTP1_ANSWER_HEADERS_MAX; i++)
        strcat(many, "X: 1\r\n");
    strcat(many, "\r\n");
    assert_int_equal(read_text(many), STATUS_HEADERS_TOO_LARGE);
}

static void a_body_that_does_not_fit_is_refused(void **state) {
    (void)state;
    struct slice input = SLICE("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    buffer_release(&body);
    buffer_init(&body, 4);
    assert_int_equal(http1_answer_read(&answer, &input, &body), STATUS_PAYLOAD_TOO_LARGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_body_of_known_length_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chunks_are_joined_after_an_interim_answer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_answer_is_not_done_before_its_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_answers_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_of_any_server_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_head_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_that_does_not_fit_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
