/* Connections over a real loop and a real socket, in cases that a peer cannot cause: late answers,
 * and closing in every state. Sanitizers report leaks. */
#include "http/conn.h"

#include <netinet/tcp.h>
#include <sys/resource.h>

#include "http/conn_outlet.h"
#include "http/http_fixture.h"

#define GET_LIVE "GET /healthz/live HTTP/1.1\r\nHost: khala\r\n\r\n"

static struct http_fixture fixture;
static int open_fixture(void **state) {
    (void)state;
    memset(&fixture, 0, sizeof(fixture));
    fixture_http_open(&fixture, conn_accept);
    return 0;
}

static int close_fixture(void **state) {
    (void)state;
    return fixture_http_close(&fixture);
}

/* A connection in the state CONN_HANDLING: the answer to its request is due. The peer has pipelined
 * the bytes that follow. */
static struct exchange *receive_request(struct conn *conn, const char *behind) {
    struct slice input = SLICE(GET_LIVE);
    struct http1_event event;
    assert_ok(http1_next(&conn->http->parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    assert_ok(http1_next(&conn->http->parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_DONE);
    transport_read_stop(&conn->transport);
    deadline_drop(&conn->deadline);
    conn->exchange = exchange_new(conn, http1_parser_request(&conn->http->parser));
    conn->state = CONN_HANDLING;
    conn->keep_alive = true;
    assert_ok(buffer_append_slice(&conn->http->unread, slice_of(behind)));
    return conn->exchange;
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        count++;
    }
    return count;
}

static void an_accepted_socket_has_the_options_of_its_listener(void **state) {
    (void)state;
    int fd = fixture_newest(&fixture)->transport.watch.fd;
    int value = 0;
    socklen_t size = sizeof(value);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    assert_int_equal(value, 1);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, &size), 0);
    assert_int_equal(value, ANSWER_UNSENT_BYTES_MAX);
}

static void pipelined_requests_continue_after_a_late_answer(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&fixture);
    char received[4096] = "";
    struct exchange *exchange = receive_request(conn, GET_LIVE GET_LIVE "GET /hea");
    exchange_answer_json(exchange, 200, SLICE("\"late\""));
    assert_int_equal(conn->state, CONN_READING);
    assert_null(conn->exchange);
    assert_int_equal(conn->deadline.kind, DEADLINE_REQUEST);
    assert_int_equal(conn->http->unread.size, 0);
    assert_true(read(fixture.client, received, sizeof(received) - 1) > 0);
    assert_int_equal(count_of(received, "HTTP/1.1 200 OK"), 3);
    assert_int_equal(count_of(received, "\"late\""), 1);
    assert_int_equal(count_of(received, "\"live\""), 2);
}

static void a_late_answer_that_closes_the_connection_drops_pipelined_requests(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&fixture);
    char received[4096] = "";
    struct exchange *exchange = receive_request(conn, GET_LIVE);
    conn->keep_alive = false;
    exchange_answer_json(exchange, 200, SLICE("\"late\""));
    assert_int_equal(conn->state, CONN_LINGERING);
    assert_int_equal(conn->http->unread.capacity, 0);
    assert_int_equal(http1_parser_bytes(&conn->http->parser), 0);
    assert_true(read(fixture.client, received, sizeof(received) - 1) > 0);
    assert_int_equal(count_of(received, "HTTP/1.1"), 1);
}

static void an_exchange_outlives_its_connection_until_the_last_reference_returns(void **state) {
    (void)state;
    struct exchange *exchange = receive_request(fixture_newest(&fixture), "");
    assert_ok(buffer_append_slice(&exchange->body, SLICE("kept")));
    exchange_ref(exchange);
    exchange_ref(exchange);
    assert_int_equal(exchange->refs, 2);
    conn_close(fixture_newest(&fixture));
    fixture_turn_until(&fixture, 0);
    assert_null(exchange->conn);
    assert_null(exchange->request);
    assert_false(exchange_unref(exchange));
    assert_slice(buffer_slice(&exchange->body), "kept");
    assert_false(exchange_unref(exchange));
}

static void a_call_that_returns_in_time_finds_its_connection(void **state) {
    (void)state;
    struct exchange *exchange = receive_request(fixture_newest(&fixture), "");
    char received[4096] = "";
    exchange_ref(exchange);
    assert_true(exchange_unref(exchange));
    exchange_answer_json(exchange, 200, SLICE("\"late\""));
    assert_true(read(fixture.client, received, sizeof(received) - 1) > 0);
    assert_int_equal(count_of(received, "\"late\""), 1);
}

static int freed_count;

static void count_freed(void *work) {
    (void)work;
    freed_count++;
}

static void the_work_of_an_exchange_is_freed_with_it(void **state) {
    (void)state;
    freed_count = 0;
    struct exchange *exchange = receive_request(fixture_newest(&fixture), "");
    exchange->work = &freed_count;
    exchange->work_free = count_freed;
    exchange_ref(exchange);
    conn_close(fixture_newest(&fixture));
    assert_int_equal(freed_count, 0);
    assert_false(exchange_unref(exchange));
    assert_int_equal(freed_count, 1);
}

static void closing_while_an_answer_is_written_frees_its_memory(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&fixture);
    static char body[1000000];
    int size = 4096;
    assert_int_equal(
        setsockopt(conn->transport.watch.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    memset(body, 'x', sizeof(body));
    exchange_answer_json(receive_request(conn, ""), 200, (struct slice){body, sizeof(body)});
    assert_int_equal(conn->state, CONN_WRITING);
    assert_int_equal(conn->deadline.kind, DEADLINE_UNREAD);
    conn_close(conn);
    fixture_turn_until(&fixture, 0);
}

/* Pushes bytes and a push behind them to a socket that takes a part at once, and reads both. */
static void push_behind(size_t before_size, size_t push_size) {
    struct conn *conn = fixture_newest(&fixture);
    char *bytes = malloc(before_size + push_size);
    struct push *push;
    int size = 4096;
    assert_int_equal(
        setsockopt(conn->transport.watch.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    memset(bytes, 'b', before_size);
    memset(bytes + before_size, 'p', push_size);
    assert_ok(push_make(&push, (struct slice){bytes + before_size, push_size}));
    deadline_drop(&conn->deadline);
    conn->state = CONN_PUSHING;
    struct outlet *outlet = conn_outlet(conn);
    assert_int_equal(outlet->table->push(outlet, (struct slice){bytes, before_size}, push),
                     OUTLET_BLOCKED);
    /* There is no session to tell when all is written. */
    conn->state = CONN_LINGERING;
    for (size_t done = 0; done < before_size + push_size;) {
        char received[65536];
        io_loop_turn(&fixture.io, false);
        ssize_t got = recv(fixture.client, received, sizeof(received), MSG_DONTWAIT);
        assert_true(got > 0 || errno == EAGAIN);
        for (ssize_t i = 0; i < got; i++)
            assert_int_equal(received[i], bytes[done++]);
    }
    assert_false(outlet_is_blocked(outlet));
    conn_close(conn);
    fixture_turn_until(&fixture, 0);
    free(bytes);
}

static void
a_push_follows_the_bytes_before_it_when_the_socket_takes_a_part_of_the_push(void **state) {
    (void)state;
    push_behind(10, 1000000);
}

static void
a_push_follows_the_bytes_before_it_when_the_socket_takes_a_part_of_the_bytes(void **state) {
    (void)state;
    push_behind(1000000, 500000);
}

static void an_answer_larger_than_the_buffer_closes_the_connection(void **state) {
    (void)state;
    static char body[(64 << 20) + 1];
    exchange_answer_json(receive_request(fixture_newest(&fixture), ""), 200,
                         (struct slice){body, sizeof(body)});
    assert_true(list_is_empty(&fixture.loop.conns));
    fixture_turn_until(&fixture, 0);
}

static void closing_while_the_connection_lingers_closes_once(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&fixture);
    struct exchange *exchange = receive_request(conn, "");
    conn->keep_alive = false;
    exchange_answer_json(exchange, 200, SLICE("{}"));
    assert_int_equal(conn->state, CONN_LINGERING);
    conn_close(conn);
    conn_close(conn);
    fixture_turn_until(&fixture, 0);
}

static void an_answer_to_a_peer_that_has_left_closes_the_connection(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&fixture);
    struct exchange *exchange = receive_request(conn, GET_LIVE);
    struct linger reset = {.l_onoff = 1};
    setsockopt(fixture.client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(fixture.client);
    fixture.client = fixture_connect(&fixture);
    fixture_turn_until(&fixture, 2);
    exchange_answer_json(exchange, 200, SLICE("{}"));
    fixture_turn_until(&fixture, 1);
}

static void say(int client, const char *text) {
    assert_int_equal(write(client, text, strlen(text)), strlen(text));
}

static void
the_first_head_has_one_deadline_and_later_ones_have_theirs_from_their_first_byte(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&fixture);
    uint64_t at_ms = conn->deadline.at_ms;
    assert_int_equal(conn->deadline.kind, DEADLINE_FIRST);
    const char *parts[] = {"\r\n", "G", "ET /healthz/live HTTP/1.1\r\nHost: kh"};
    for (size_t i = 0; i < 3; i++) {
        say(fixture.client, parts[i]);
        io_loop_turn(&fixture.io, true);
        assert_int_equal(conn->deadline.kind, DEADLINE_FIRST);
        assert_int_equal(conn->deadline.at_ms, at_ms);
    }
    say(fixture.client, "ala\r\n\r\n");
    while (!conn->has_head)
        io_loop_turn(&fixture.io, true);
    assert_int_equal(conn->deadline.kind, DEADLINE_IDLE);
    say(fixture.client, "G");
    while (conn->deadline.kind == DEADLINE_IDLE)
        io_loop_turn(&fixture.io, true);
    assert_int_equal(conn->deadline.kind, DEADLINE_REQUEST);
}

/* The loop would be busy for ever if it tried to accept in every turn. */
static void a_listener_without_descriptors_pauses_for_a_time(void **state) {
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int second = fixture_connect(&fixture);
    int highest = dup(second);
    close(highest);
    struct rlimit none = {.rlim_cur = (rlim_t)highest, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const struct io_listener *listener = &fixture.io.listeners[LISTENER_PUBLIC];
    while (listener->watch.wanted != 0)
        io_loop_turn(&fixture.io, true);
    conn_close(fixture_newest(&fixture));
    fixture_turn_until(&fixture, 0);
    /* Descriptors that become free one at a time must not make it try each time. */
    assert_true(listener->watch.wanted == 0);
    fixture_turn_until(&fixture, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(second);
}

/* Drains while the clients' bytes are still in the kernel, or not sent at all. A connection in the
 * middle of a request stays, so that the loop does not end. */
static void drain_unread(int blank) {
    int staying = fixture_connect(&fixture);
    fixture_turn_until(&fixture, 4);
    say(staying, "GET /hea");
    while (http1_parser_bytes(&fixture_newest(&fixture)->http->parser) == 0)
        io_loop_turn(&fixture.io, true);
    say(fixture.client, GET_LIVE GET_LIVE);
    say(blank, "\r\n");
    fixture.io.state = LOOP_DRAINING;
    fixture.http.is_draining = true;
    http_loop_drain(&fixture.io);
    shutdown(fixture.client, SHUT_WR);
    fixture_turn_until(&fixture, 1);
    fixture.io.state = LOOP_SERVING;
    close(staying);
}

static void
a_request_that_has_come_but_is_not_read_is_under_way_when_the_loop_drains(void **state) {
    (void)state;
    char received[4096] = "";
    int idle = fixture_connect(&fixture);
    int blank = fixture_connect(&fixture);
    fixture_turn_until(&fixture, 3);
    drain_unread(blank);
    assert_true(read(fixture.client, received, sizeof(received) - 1) > 0);
    assert_int_equal(count_of(received, "HTTP/1.1 200 OK"), 1);
    assert_int_equal(count_of(received, "Connection: close"), 1);
    assert_int_equal(read(idle, received, sizeof(received)), 0);
    assert_int_equal(read(blank, received, sizeof(received)), 0);
    close(idle);
    close(blank);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_accepted_socket_has_the_options_of_its_listener,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(pipelined_requests_continue_after_a_late_answer,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(
            a_late_answer_that_closes_the_connection_drops_pipelined_requests, open_fixture,
            close_fixture),
        cmocka_unit_test_setup_teardown(
            an_exchange_outlives_its_connection_until_the_last_reference_returns, open_fixture,
            close_fixture),
        cmocka_unit_test_setup_teardown(a_call_that_returns_in_time_finds_its_connection,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(the_work_of_an_exchange_is_freed_with_it, open_fixture,
                                        close_fixture),
        cmocka_unit_test_setup_teardown(closing_while_an_answer_is_written_frees_its_memory,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(
            a_push_follows_the_bytes_before_it_when_the_socket_takes_a_part_of_the_push,
            open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(
            a_push_follows_the_bytes_before_it_when_the_socket_takes_a_part_of_the_bytes,
            open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(an_answer_larger_than_the_buffer_closes_the_connection,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(
            the_first_head_has_one_deadline_and_later_ones_have_theirs_from_their_first_byte,
            open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(closing_while_the_connection_lingers_closes_once,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(an_answer_to_a_peer_that_has_left_closes_the_connection,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(a_listener_without_descriptors_pauses_for_a_time,
                                        open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(
            a_request_that_has_come_but_is_not_read_is_under_way_when_the_loop_drains, open_fixture,
            close_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
