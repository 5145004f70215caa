#include "test.h"

#include "wire/http1_response.h"

static void a_whole_response_is_written(void **state) {
    (void)state;
    struct buffer buffer;
    const struct http1_header extra[] = {{{"WWW-Authenticate", 16}, {"Bearer", 6}}};
    struct http1_response response = {.http_status = 401,
                                      .keep_alive = true,
                                      .content_type = SLICE("application/json"),
                                      .body = SLICE("{}"),
                                      .headers = extra,
                                      .header_count = 1};
    buffer_init(&buffer, 1000);
    assert_ok(http1_response_write(&buffer, &response));
    assert_slice(buffer_slice(&buffer), "HTTP/1.1 401 Unauthorized\r\nConnection: keep-alive\r\n"
                                        "WWW-Authenticate: Bearer\r\n"
                                        "Content-Type: application/json\r\n"
                                        "Content-Length: 2\r\n\r\n{}");
    buffer_clear(&buffer);
    response.to_head = true;
    response.keep_alive = false;
    response.header_count = 0;
    assert_ok(http1_response_write(&buffer, &response));
    assert_slice(buffer_slice(&buffer), "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n"
                                        "Content-Type: application/json\r\n"
                                        "Content-Length: 2\r\n\r\n");
    buffer_clear(&buffer);
    response = (struct http1_response){.http_status = 200};
    assert_ok(http1_response_write(&buffer, &response));
    assert_slice(buffer_slice(&buffer),
                 "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    buffer_release(&buffer);
}

static void statuses_without_body_get_none(void **state) {
    (void)state;
    struct buffer buffer;
    struct http1_response response = {.http_status = 204,
                                      .keep_alive = true,
                                      .content_type = SLICE("text/plain"),
                                      .body = SLICE("no")};
    buffer_init(&buffer, 1000);
    assert_ok(http1_response_write(&buffer, &response));
    assert_slice(buffer_slice(&buffer),
                 "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n");
    buffer_clear(&buffer);
    response.http_status = 304;
    assert_ok(http1_response_write(&buffer, &response));
    assert_slice(buffer_slice(&buffer),
                 "HTTP/1.1 304 Not Modified\r\nConnection: keep-alive\r\n\r\n");
    buffer_release(&buffer);
}

static void a_response_can_be_chunked(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    assert_ok(http1_response_begin(&buffer, 200, true));
    assert_ok(http1_response_header(&buffer, SLICE("A"), SLICE("b\tc \xc3\xa9")));
    assert_ok(http1_response_end_chunked(&buffer));
    assert_ok(http1_chunk(&buffer, SLICE("0123456789abcdef!")));
    assert_ok(http1_chunk(&buffer, SLICE("")));
    assert_ok(http1_chunk(&buffer, SLICE("z")));
    for (int i = 0; i < 2; i++) {
        size_t begin = buffer.size;
        assert_ok(http1_chunk_begin(&buffer));
        if (i > 0)
            assert_ok(buffer_append_slice(&buffer, SLICE("0123456789abcdef!")));
        assert_ok(http1_chunk_close(&buffer, begin));
    }
    assert_ok(http1_chunk_end(&buffer));
    assert_slice(buffer_slice(&buffer),
                 "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nA: b\tc \xc3\xa9\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n"
                 "11\r\n0123456789abcdef!\r\n1\r\nz\r\n"
                 "00000011\r\n0123456789abcdef!\r\n0\r\n\r\n");
    buffer_release(&buffer);
}

static void an_upgrade_answer_is_bare(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    assert_ok(http1_response_begin(&buffer, 101, true));
    assert_ok(http1_response_header(&buffer, SLICE("Connection"), SLICE("Upgrade")));
    assert_ok(http1_response_end_bare(&buffer));
    assert_slice(buffer_slice(&buffer),
                 "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n");
    buffer_release(&buffer);
}

static void every_status_of_the_table_has_a_phrase(void **state) {
    (void)state;
    for (unsigned i = 0; i < STATUS_COUNT; i++) {
        struct buffer buffer;
        buffer_init(&buffer, 200);
        assert_ok(http1_response_begin(&buffer, (unsigned)status_http((enum status)i), true));
        assert_ok(buffer_append_byte(&buffer, 0));
        assert_null(strchr(buffer.data, '<'));
        buffer_release(&buffer);
    }
}

static void no_value_can_add_a_line(void **state) {
    (void)state;
    static const struct slice unclean[] = {{"a\r\nB: c", 7}, {"a\n", 2},  {"\r", 1},
                                           {"a\0", 2},       {"\x7f", 1}, {"\x01", 1}};
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    for (size_t i = 0; i < sizeof(unclean) / sizeof(unclean[0]); i++) {
        assert_int_equal(http1_response_header(&buffer, SLICE("A"), unclean[i]),
                         STATUS_INTERNAL_ERROR);
        struct http1_response response = {.http_status = 200, .content_type = unclean[i]};
        assert_int_equal(http1_response_write(&buffer, &response), STATUS_INTERNAL_ERROR);
        assert_int_equal(buffer.size, 0);
    }
    buffer_release(&buffer);
}

static void a_full_buffer_is_left_as_it_was(void **state) {
    (void)state;
    const struct http1_response response = {
        .http_status = 200, .content_type = SLICE("text/plain"), .body = SLICE("hello")};
    struct buffer whole;
    buffer_init(&whole, 1000);
    assert_ok(http1_response_write(&whole, &response));
    for (size_t size_max = 1; size_max < whole.size; size_max++) {
        struct buffer buffer;
        buffer_init(&buffer, size_max);
        assert_int_equal(http1_response_write(&buffer, &response), STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(buffer.size, 0);
        buffer_release(&buffer);
    }
    struct buffer buffer;
    buffer_init(&buffer, 9);
    assert_int_equal(http1_chunk(&buffer, SLICE("hello")), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(http1_response_header(&buffer, SLICE("A"), SLICE("hello")),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(http1_response_end_length(&buffer, 1), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(buffer.size, 0);
    buffer_clear(&buffer);
    assert_ok(http1_chunk(&buffer, SLICE("hell")));
    assert_slice(buffer_slice(&buffer), "4\r\nhell\r\n");
    buffer_release(&buffer);
    buffer_release(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_response_is_written),
        cmocka_unit_test(statuses_without_body_get_none),
        cmocka_unit_test(a_response_can_be_chunked),
        cmocka_unit_test(an_upgrade_answer_is_bare),
        cmocka_unit_test(every_status_of_the_table_has_a_phrase),
        cmocka_unit_test(no_value_can_add_a_line),
        cmocka_unit_test(a_full_buffer_is_left_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
