/* Upstream connections over a real loop and real sockets, on the test's own thread. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "net/upstream.h"
#include "test.h"

struct fixture {
    struct io_loop io;
    struct upstreams upstreams;
    struct upstream_address address;
    int listener;
    size_t opened, written, lost, freed;
    struct buffer received;
    char reason[128];
};

static struct fixture fixture;

static void on_opened(struct upstream *upstream) {
    assert_ptr_equal(upstream_user(upstream), &fixture);
    fixture.opened++;
}

static void on_received(struct upstream *upstream, struct slice input) {
    (void)upstream;
    assert_ok(buffer_append_slice(&fixture.received, input));
}

static void on_written(struct upstream *upstream) {
    (void)upstream;
    fixture.written++;
}

static void on_lost(struct upstream *upstream, const char *reason) {
    (void)upstream;
    snprintf(fixture.reason, sizeof(fixture.reason), "%s", reason);
    fixture.lost++;
}

static void on_freed(struct upstreams *upstreams) {
    (void)upstreams;
    fixture.freed++;
}

static const struct upstream_events events = {
    .opened = on_opened,
    .received = on_received,
    .written = on_written,
    .lost = on_lost,
    .freed = on_freed,
};

static bool before_sleep(struct io_loop *io) {
    (void)io;
    return false;
}

static void on_drain(struct io_loop *io) {
    (void)io;
    upstreams_drain(&fixture.upstreams);
}

static void on_close_all(struct io_loop *io) {
    (void)io;
    upstreams_close_all(&fixture.upstreams);
}

static int set_up(void **state) {
    static const struct io_loop_hooks hooks = {
        .drain = on_drain, .close_all = on_close_all, .before_sleep = before_sleep};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    fixture = (struct fixture){.address.host = "127.0.0.1"};
    buffer_init(&fixture.received, 1 << 20);
    fixture.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fixture.listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fixture.listener, 128), 0);
    assert_int_equal(getsockname(fixture.listener, (struct sockaddr *)&address, &size), 0);
    fixture.address.port = ntohs(address.sin_port);
    assert_ok(
        io_loop_open(&fixture.io, &(struct io_loop_options){.hooks = &hooks, .fds = {-1, -1}}));
    upstreams_init(&fixture.upstreams, &fixture.io, &events, NULL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    io_loop_end_post(&fixture.io);
    io_loop_run(&fixture.io);
    assert_int_equal(fixture.io.hold_count, 0);
    assert_int_equal(fixture.upstreams.count, 0);
    io_loop_close(&fixture.io);
    buffer_release(&fixture.received);
    close(fixture.listener);
    return 0;
}

static void turn_until(const size_t *counter, size_t value) {
    while (*counter != value)
        io_loop_turn(&fixture.io, true);
}

static struct upstream *open_one(int *server) {
    size_t before = fixture.opened;
    struct upstream *upstream = upstream_open(&fixture.upstreams, &fixture.address, &fixture);
    assert_non_null(upstream);
    turn_until(&fixture.opened, before + 1);
    *server = accept(fixture.listener, NULL, NULL);
    assert_true(*server >= 0);
    return upstream;
}

static void addresses_are_read(void **state) {
    (void)state;
    struct upstream_address address;
    assert_true(upstream_address_read(SLICE("node-1:4000"), &address));
    assert_string_equal(address.host, "node-1");
    assert_int_equal(address.port, 4000);
    assert_false(address.is_secure);
    assert_true(upstream_address_read(SLICE("https://[::1]:443"), &address));
    assert_string_equal(address.host, "::1");
    assert_true(address.is_secure && address.port == 443);
    assert_true(upstream_address_read(SLICE("http://10.0.0.1:80"), &address));
    assert_false(address.is_secure);
    static const char *const bad[] = {"", "node", ":80", "node:", "node:0", "node:65536", "[]:x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(upstream_address_read(slice_of(bad[i]), &address));
}

static void bytes_go_both_ways_and_the_connection_is_kept(void **state) {
    (void)state;
    char text[16];
    int server;
    struct upstream *upstream = open_one(&server);
    assert_true(upstream_send(upstream, SLICE("request")));
    assert_int_equal(read(server, text, sizeof(text)), 7);
    assert_int_equal(write(server, "answer", 6), 6);
    turn_until(&fixture.received.size, 6);
    upstream_keep(upstream);
    struct upstream_address other = fixture.address;
    assert_ptr_equal(upstream_reuse(&fixture.upstreams, &fixture.address, &fixture), upstream);
    assert_null(upstream_reuse(&fixture.upstreams, &fixture.address, &fixture));
    upstream_keep(upstream);
    other.port++;
    assert_null(upstream_reuse(&fixture.upstreams, &other, &fixture));
    turn_until(&fixture.freed, 1);
    assert_int_equal(read(server, text, sizeof(text)), 0);
    assert_int_equal(fixture.lost, 0);
    close(server);
}

static void a_kept_connection_that_the_server_closes_is_forgotten(void **state) {
    (void)state;
    int server;
    upstream_keep(open_one(&server));
    close(server);
    turn_until(&fixture.freed, 1);
    assert_null(upstream_reuse(&fixture.upstreams, &fixture.address, &fixture));
    assert_int_equal(fixture.lost, 0);
}

static void a_refused_connection_is_lost(void **state) {
    (void)state;
    close(fixture.listener);
    fixture.listener = -1;
    assert_non_null(upstream_open(&fixture.upstreams, &fixture.address, &fixture));
    turn_until(&fixture.lost, 1);
    assert_string_equal(fixture.reason, "connection refused");
    assert_int_equal(fixture.opened, 0);
}

static void an_unknown_host_is_lost(void **state) {
    (void)state;
    snprintf(fixture.address.host, sizeof(fixture.address.host), "no such host");
    assert_non_null(upstream_open(&fixture.upstreams, &fixture.address, &fixture));
    turn_until(&fixture.lost, 1);
}

static void closing_during_the_lookup_is_safe(void **state) {
    (void)state;
    snprintf(fixture.address.host, sizeof(fixture.address.host), "localhost");
    struct upstream *upstream = upstream_open(&fixture.upstreams, &fixture.address, &fixture);
    assert_non_null(upstream);
    upstream_close(upstream, NULL);
    turn_until(&fixture.freed, 1);
    assert_int_equal(fixture.lost + fixture.opened, 0);
}

static void a_slow_server_delays_the_written_event(void **state) {
    (void)state;
    static char large[16 << 20], text[1 << 16];
    int server;
    size_t got = 0;
    struct upstream *upstream = open_one(&server);
    assert_false(upstream_send(upstream, (struct slice){large, sizeof(large)}));
    io_loop_turn(&fixture.io, false);
    assert_int_equal(fixture.written, 0);
    assert_int_equal(fcntl(server, F_SETFL, O_NONBLOCK), 0);
    while (got < sizeof(large)) {
        ssize_t size = read(server, text, sizeof(text));
        got += size > 0 ? (size_t)size : 0;
        io_loop_turn(&fixture.io, false);
    }
    turn_until(&fixture.written, 1);
    upstream_close(upstream, NULL);
    close(server);
}

static void unsent_bytes_move_to_a_connection_that_closes(void **state) {
    (void)state;
    struct buffer bytes;
    int server;
    struct upstream *upstream = open_one(&server);
    buffer_init(&bytes, FORWARD_REQUESTS_BYTES_MAX);
    assert_ok(buffer_reserve(&bytes, 16 << 20));
    memset(bytes.data, 'x', 16 << 20);
    bytes.size = 16 << 20;
    assert_false(upstream_send(upstream, buffer_slice(&bytes)));
    upstream_close(upstream, &bytes);
    assert_null(bytes.data);
    turn_until(&fixture.freed, 1);
    close(server);
}

static void a_server_that_is_gone_is_lost_while_bytes_are_sent(void **state) {
    (void)state;
    int server;
    struct upstream *upstream = open_one(&server);
    struct linger at_once = {.l_onoff = 1};
    assert_int_equal(setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(server);
    upstream_pause(upstream);
    while (upstream_send(upstream, SLICE("request")))
        ;
    turn_until(&fixture.lost, 1);
}

static void connections_are_bounded(void **state) {
    (void)state;
    size_t count = 0;
    while (upstream_open(&fixture.upstreams, &fixture.address, &fixture))
        count++;
    assert_int_equal(count, FORWARD_CONNECTIONS_MAX);
    turn_until(&fixture.opened, count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test_setup_teardown(bytes_go_both_ways_and_the_connection_is_kept, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_kept_connection_that_the_server_closes_is_forgotten,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refused_connection_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unknown_host_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_during_the_lookup_is_safe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_server_delays_the_written_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unsent_bytes_move_to_a_connection_that_closes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_is_gone_is_lost_while_bytes_are_sent, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(connections_are_bounded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
