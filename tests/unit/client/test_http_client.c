#include "client/http_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "test.h"

/* A server of one connection that takes the request up to a mark and answers what it was told. */
struct canned {
    int listener;
    pthread_t thread;
    char url[64];
    const char *until; /* the request is read until this has come; NULL: not at all */
    const char *answer;
    struct buffer received;
};

static void *canned_thread(void *user) {
    struct canned *canned = user;
    int peer = accept(canned->listener, NULL, NULL);
    char piece[4096];
    ssize_t size;
    while (canned->until &&
           (canned->received.size == 0 || !strstr(canned->received.data, canned->until)) &&
           (size = read(peer, piece, sizeof(piece) - 1)) > 0) {
        piece[size] = '\0';
        assert_ok(buffer_append(&canned->received, piece, (size_t)size + 1));
        canned->received.size--;
    }
    if (write(peer, canned->answer, strlen(canned->answer)) < 0)
        abort();
    shutdown(peer, SHUT_WR);
    while (read(peer, piece, sizeof(piece)) > 0)
        ;
    close(peer);
    return NULL;
}

static void canned_start(struct canned *canned, const char *until, const char *answer) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    *canned = (struct canned){.until = until, .answer = answer};
    buffer_init(&canned->received, 1 << 20);
    canned->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(canned->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(canned->listener, 4), 0);
    assert_int_equal(getsockname(canned->listener, (struct sockaddr *)&address, &size), 0);
    snprintf(canned->url, sizeof(canned->url), "http://127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&canned->thread, NULL, canned_thread, canned), 0);
}

static void canned_stop(struct canned *canned) {
    pthread_join(canned->thread, NULL);
    close(canned->listener);
    buffer_release(&canned->received);
}

static enum status gather(void *user, unsigned http_status, struct slice piece) {
    (void)http_status;
    return buffer_append_slice(user, piece);
}

/* Asks once; the body is in out, the reason of a failure too. */
static enum status ask(struct canned *canned, struct http_client_request request,
                       struct buffer *out, unsigned *http_status) {
    struct http_client *client;
    buffer_init(out, 4096);
    request.on_body = gather;
    request.user = out;
    assert_ok(http_client_open(&client, canned->url));
    enum status status = http_client_exchange(client, &request, http_status);
    if (status != STATUS_OK) {
        buffer_clear(out);
        assert_ok(buffer_append_slice(out, slice_of(http_client_error(client))));
    }
    http_client_close(client);
    return status;
}

static const struct http_client_request get_x = {.method = "GET", .target = "/x", .key = "k"};

static void answers(const char *text, unsigned expected_status, const char *expected_body) {
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    canned_start(&canned, "\r\n\r\n", text);
    enum status status = ask(&canned, get_x, &out, &http_status);
    if (status != STATUS_OK)
        fail_msg("%s: %.*s", text, (int)out.size, out.data);
    assert_int_equal(http_status, expected_status);
    assert_slice(buffer_slice(&out), expected_body);
    buffer_release(&out);
    canned_stop(&canned);
}

static void an_answer_may_end_in_any_way_of_http(void **state) {
    (void)state;
    answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, "");
    answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            200, "hello");
    answers("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", 200, "hello");
    answers("HTTP/1.1 204 No Content\r\n\r\n", 204, "");
    answers("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", 201,
            "ok");
}

static void fails(const char *text, const char *reason) {
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    canned_start(&canned, "\r\n\r\n", text);
    assert_int_equal(ask(&canned, get_x, &out, &http_status), STATUS_SYSTEM_ERROR);
    assert_ok(buffer_append_byte(&out, '\0'));
    if (!strstr(out.data, reason))
        fail_msg("'%s' does not say '%s'", out.data, reason);
    buffer_release(&out);
    canned_stop(&canned);
}

static void an_incomplete_answer_is_reported(void **state) {
    (void)state;
    fails("", "closed the connection");
    fails("HTTP/1.1 200 OK\r\nContent-Le", "broke off");
    fails("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "broke off");
    fails("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "broke off");
    fails("SSH-2.0-OpenSSH\r\n", "not HTTP");
}

static void a_request_carries_its_key_and_its_body(void **state) {
    (void)state;
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    canned_start(&canned, "{\"a\":1}", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    struct http_client_request request = {.method = "POST",
                                          .target = "/a?b=c",
                                          .key = "secret",
                                          .content_type = "application/json",
                                          .body = SLICE("{\"a\":1}")};
    assert_ok(ask(&canned, request, &out, &http_status));
    const char *received = canned.received.data;
    assert_true(
        slice_starts(slice_of(received), SLICE("POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")));
    assert_non_null(strstr(received, "\r\nAuthorization: Bearer secret\r\n"));
    assert_non_null(strstr(received, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(received, "\r\nContent-Length: 7\r\n\r\n{\"a\":1}"));
    buffer_release(&out);
    canned_stop(&canned);
}

struct pieces {
    const char *const *texts;
    size_t index;
};

static enum status next_piece(void *user, bool idle, struct slice *piece, bool *end) {
    struct pieces *pieces = user;
    assert_false(idle);
    *piece = slice_of(pieces->texts[pieces->index++]);
    *end = pieces->texts[pieces->index] == NULL;
    return STATUS_OK;
}

static void a_body_in_pieces_is_chunked(void **state) {
    (void)state;
    static const char *const texts[] = {"one\n", "", "three\n", NULL};
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    struct pieces pieces = {texts, 0};
    int ready = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    struct http_client_source source = {ready, -1, &pieces, next_piece};
    canned_start(&canned, "0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    struct http_client_request request = {
        .method = "POST", .target = "/", .content_type = "application/x-ndjson", .source = &source};
    assert_ok(ask(&canned, request, &out, &http_status));
    assert_slice(buffer_slice(&out), "ok");
    assert_non_null(
        strstr(canned.received.data, "\r\n\r\n4\r\none\n\r\n6\r\nthree\n\r\n0\r\n\r\n"));
    buffer_release(&out);
    canned_stop(&canned);
    close(ready);
}

static enum status endless_piece(void *user, bool idle, struct slice *piece, bool *end) {
    static char zeros[65536];
    (void)user;
    (void)idle;
    *piece = (struct slice){zeros, sizeof(zeros)};
    *end = false;
    return STATUS_OK;
}

static void an_answer_that_comes_before_the_body_is_sent_is_read(void **state) {
    (void)state;
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    int ready = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    struct http_client_source source = {ready, -1, NULL, endless_piece};
    canned_start(&canned, NULL, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    struct http_client_request request = {
        .method = "POST", .target = "/", .content_type = "text/plain", .source = &source};
    assert_ok(ask(&canned, request, &out, &http_status));
    assert_int_equal(http_status, 401);
    assert_slice(buffer_slice(&out), "no");
    buffer_release(&out);
    canned_stop(&canned);
    close(ready);
}

static void a_url_is_a_host_and_maybe_a_port(void **state) {
    (void)state;
    static const char *const good[] = {"http://localhost",     "http://localhost:4100",
                                       "http://127.0.0.1:80/", "http://[::1]:4100",
                                       "https://localhost",    "https://[::1]:4100/"};
    static const char *const bad[] = {
        "",           "localhost:4100", "https://",     "httpx://a", "https://a/b",   "http://",
        "http://a/b", "http://a?x=1",   "http://u:p@a", "ftp://a",   "http://a:99999"};
    struct http_client *client;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok(http_client_open(&client, good[i]));
        http_client_close(client);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (http_client_open(&client, bad[i]) != STATUS_INVALID_REQUEST)
            fail_msg("'%s' is taken", bad[i]);
}

static void an_unreachable_server_is_reported(void **state) {
    (void)state;
    struct http_client *client;
    unsigned http_status;
    struct buffer out;
    struct http_client_request request = get_x;
    buffer_init(&out, 16);
    request.on_body = gather;
    request.user = &out;
    assert_ok(http_client_open(&client, "http://127.0.0.1:1"));
    assert_int_equal(http_client_exchange(client, &request, &http_status), STATUS_SYSTEM_ERROR);
    assert_non_null(strstr(http_client_error(client), "Connection refused"));
    http_client_close(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_may_end_in_any_way_of_http),
        cmocka_unit_test(an_incomplete_answer_is_reported),
        cmocka_unit_test(a_request_carries_its_key_and_its_body),
        cmocka_unit_test(a_body_in_pieces_is_chunked),
        cmocka_unit_test(an_answer_that_comes_before_the_body_is_sent_is_read),
        cmocka_unit_test(a_url_is_a_host_and_maybe_a_port),
        cmocka_unit_test(an_unreachable_server_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
