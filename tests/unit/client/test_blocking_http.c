#include "client/blocking_http.h"

#include <arpa/inet.h>
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

static void canned_listen(struct canned *canned, void *(*run)(void *user)) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    buffer_init(&canned->received, 1 << 20);
    canned->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(canned->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(canned->listener, 4), 0);
    assert_int_equal(getsockname(canned->listener, (struct sockaddr *)&address, &size), 0);
    snprintf(canned->url, sizeof(canned->url), "http://127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&canned->thread, NULL, run, canned), 0);
}

static void canned_start(struct canned *canned, const char *until, const char *answer) {
    *canned = (struct canned){.until = until, .answer = answer};
    canned_listen(canned, canned_thread);
}

static void canned_stop(struct canned *canned) {
    pthread_join(canned->thread, NULL);
    close(canned->listener);
    buffer_release(&canned->received);
}

struct asking {
    struct buffer *out;
    void *user;
    enum status (*next)(void *user, struct slice *piece, bool *is_last);
};

static enum status gather(void *user, unsigned http_status, struct slice piece) {
    const struct asking *asking = user;
    (void)http_status;
    return buffer_append_slice(asking->out, piece);
}

static enum status next_of(void *user, struct slice *piece, bool *is_last) {
    const struct asking *asking = user;
    return asking->next(asking->user, piece, is_last);
}

/* Asks once; the body is in out, the reason of a failure too. */
static enum status ask(struct canned *canned, struct blocking_request request, struct buffer *out,
                       unsigned *http_status) {
    struct blocking_http *client;
    buffer_init(out, 4096);
    struct asking asking = {out, request.user, request.next};
    request.on_body = gather;
    request.next = request.next ? next_of : NULL;
    request.user = &asking;
    assert_ok(blocking_http_open(&client, canned->url, NULL));
    enum status status = blocking_http_run(client, &request, http_status);
    if (status != STATUS_OK) {
        buffer_clear(out);
        assert_ok(buffer_append_slice(out, slice_of(blocking_http_error(client))));
    }
    blocking_http_close(client);
    return status;
}

static const struct blocking_request get_x = {.method = "GET", .target = "/x", .key = "k"};

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
    struct blocking_request request = {.method = "POST",
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

static enum status next_piece(void *user, struct slice *piece, bool *is_last) {
    struct pieces *pieces = user;
    *piece = slice_of(pieces->texts[pieces->index++]);
    *is_last = pieces->texts[pieces->index] == NULL;
    return STATUS_OK;
}

static void a_body_in_pieces_is_chunked(void **state) {
    (void)state;
    static const char *const texts[] = {"one\n", "", "three\n", NULL};
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    struct pieces pieces = {texts, 0};
    canned_start(&canned, "0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    struct blocking_request request = {.method = "POST",
                                       .target = "/",
                                       .content_type = "application/x-ndjson",
                                       .user = &pieces,
                                       .next = next_piece};
    assert_ok(ask(&canned, request, &out, &http_status));
    assert_slice(buffer_slice(&out), "ok");
    assert_non_null(
        strstr(canned.received.data, "\r\n\r\n4\r\none\n\r\n6\r\nthree\n\r\n0\r\n\r\n"));
    buffer_release(&out);
    canned_stop(&canned);
}

static enum status endless_piece(void *user, struct slice *piece, bool *is_last) {
    static char zeros[65536];
    (void)user;
    *piece = (struct slice){zeros, sizeof(zeros)};
    *is_last = false;
    return STATUS_OK;
}

static void an_answer_that_comes_before_the_body_is_sent_is_read(void **state) {
    (void)state;
    struct canned canned;
    struct buffer out;
    unsigned http_status = 0;
    canned_start(&canned, NULL, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    struct blocking_request request = {
        .method = "POST", .target = "/", .content_type = "text/plain", .next = endless_piece};
    assert_ok(ask(&canned, request, &out, &http_status));
    assert_int_equal(http_status, 401);
    assert_slice(buffer_slice(&out), "no");
    buffer_release(&out);
    canned_stop(&canned);
}

static void a_url_is_a_host_and_maybe_a_port(void **state) {
    (void)state;
    static const char *const good[] = {"http://localhost",     "http://localhost:4100",
                                       "http://127.0.0.1:80/", "http://[::1]:4100",
                                       "https://localhost",    "https://[::1]:4100/"};
    static const char *const bad[] = {
        "",           "localhost:4100", "https://",     "httpx://a", "https://a/b",   "http://",
        "http://a/b", "http://a?x=1",   "http://u:p@a", "ftp://a",   "http://a:99999"};
    struct blocking_http *client;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok(blocking_http_open(&client, good[i], NULL));
        blocking_http_close(client);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (blocking_http_open(&client, bad[i], NULL) != STATUS_INVALID_REQUEST)
            fail_msg("'%s' is taken", bad[i]);
}

static void an_unreachable_server_is_reported(void **state) {
    (void)state;
    struct blocking_http *client;
    unsigned http_status;
    const struct blocking_request request = get_x;
    assert_ok(blocking_http_open(&client, "http://127.0.0.1:1", NULL));
    assert_int_equal(blocking_http_run(client, &request, &http_status), STATUS_SYSTEM_ERROR);
    assert_non_null(strstr(blocking_http_error(client), "Connection refused"));
    blocking_http_close(client);
}

/* Answers each request of one connection, and ends. */
static void *patient_thread(void *user) {
    struct canned *canned = user;
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    int peer = accept(canned->listener, NULL, NULL);
    char piece[4096];
    close(canned->listener);
    while (read(peer, piece, sizeof(piece)) > 0)
        if (write(peer, answer, strlen(answer)) < 0)
            abort();
    close(peer);
    return NULL;
}

static void the_connection_is_kept(void **state) {
    (void)state;
    struct canned canned;
    struct blocking_http *client;
    unsigned http_status = 0;
    canned_listen(&canned, patient_thread);
    assert_ok(blocking_http_open(&client, canned.url, NULL));
    for (int i = 0; i < 3; i++) {
        assert_ok(blocking_http_run(client, &get_x, &http_status));
        assert_int_equal(http_status, 200);
    }
    blocking_http_close(client);
    pthread_join(canned.thread, NULL);
    buffer_release(&canned.received);
}

static enum status stop(void *user, unsigned http_status, struct slice piece) {
    const int *fd = user;
    (void)http_status;
    (void)piece;
    return write(*fd, "x", 1) == 1 ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

static enum status refuse(void *user, unsigned http_status, struct slice piece) {
    (void)user;
    (void)http_status;
    (void)piece;
    return STATUS_INVALID_JSON;
}

static void a_request_can_be_stopped(void **state) {
    (void)state;
    struct canned canned;
    struct blocking_http *client;
    unsigned http_status = 0;
    int stops[2];
    assert_int_equal(pipe(stops), 0);
    canned_start(&canned, "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nhe");
    struct blocking_request request = get_x;
    request.stop_fd = stops[0];
    request.user = &stops[1];
    request.on_body = stop;
    assert_ok(blocking_http_open(&client, canned.url, NULL));
    /* The server ends its side too; whichever is seen first. */
    enum status status = blocking_http_run(client, &request, &http_status);
    assert_true(status == STATUS_SHUTTING_DOWN || status == STATUS_SYSTEM_ERROR);
    blocking_http_close(client);
    canned_stop(&canned);
    canned_start(&canned, "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhe");
    request = get_x;
    request.on_body = refuse;
    assert_ok(blocking_http_open(&client, canned.url, NULL));
    assert_int_equal(blocking_http_run(client, &request, &http_status), STATUS_INVALID_JSON);
    blocking_http_close(client);
    canned_stop(&canned);
    close(stops[0]);
    close(stops[1]);
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
        cmocka_unit_test(the_connection_is_kept),
        cmocka_unit_test(a_request_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
