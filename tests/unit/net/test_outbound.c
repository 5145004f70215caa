/* Outbound connections over a real loop and real sockets, on the test's own thread. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/loop.h"
#include "net/outbound.h"
#include "test.h"

#define UNSENT_BYTES_MAX (32u << 20)

struct fixture {
    struct io_loop io;
    struct outbound_group group;
    struct outbound_target target;
    int listener;
    size_t opened, rooms, lost, freed;
    struct buffer received;
    char reason[256];
};

static struct fixture fixture;

static void on_opened(void *user) {
    assert_ptr_equal(user, &fixture);
    fixture.opened++;
}

static void on_received(void *user, struct slice input) {
    (void)user;
    assert_ok(buffer_append_slice(&fixture.received, input));
}

static void on_has_room(void *user) {
    (void)user;
    fixture.rooms++;
}

static void on_lost(void *user, const char *reason) {
    (void)user;
    snprintf(fixture.reason, sizeof(fixture.reason), "%s", reason);
    fixture.lost++;
}

static void on_freed(void *user) {
    assert_ptr_equal(user, &fixture);
    fixture.freed++;
    io_loop_release(&fixture.io);
}

static const struct outbound_events events = {
    .opened = on_opened,
    .received = on_received,
    .has_room = on_has_room,
    .lost = on_lost,
};

static bool before_sleep(struct io_loop *io) {
    (void)io;
    return false;
}

static void on_end(struct io_loop *io) {
    (void)io;
    outbound_close_idle(&fixture.group, 0);
}

static int set_up(void **state) {
    static const struct io_loop_hooks hooks = {
        .drain = on_end, .close_all = on_end, .before_sleep = before_sleep};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    fixture = (struct fixture){.target.host = "127.0.0.1"};
    buffer_init(&fixture.received, 1 << 20);
    fixture.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fixture.listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fixture.listener, 128), 0);
    assert_int_equal(getsockname(fixture.listener, (struct sockaddr *)&address, &size), 0);
    fixture.target.port = ntohs(address.sin_port);
    assert_ok(
        io_loop_open(&fixture.io, &(struct io_loop_options){.hooks = &hooks, .fds = {-1, -1}}));
    outbound_group_init(&fixture.group,
                        &(struct outbound_group){.set = &fixture.io.sockets,
                                                 .unsent_bytes_max = UNSENT_BYTES_MAX,
                                                 .user = &fixture,
                                                 .freed = on_freed});
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    io_loop_end_post(&fixture.io);
    io_loop_run(&fixture.io);
    assert_int_equal(fixture.io.hold_count, 0);
    assert_int_equal(fixture.group.count, 0);
    io_loop_close(&fixture.io);
    buffer_release(&fixture.received);
    close(fixture.listener);
    return 0;
}

static void turn_until(const size_t *counter, size_t value) {
    while (*counter != value)
        io_loop_turn(&fixture.io, true);
}

static struct outbound *begin_one(void) {
    struct outbound *outbound = NULL;
    assert_ok(outbound_open(&outbound, &fixture.group, &fixture.target, &events, &fixture));
    io_loop_hold(&fixture.io);
    return outbound;
}

static struct outbound *open_one(int *server) {
    size_t before = fixture.opened;
    struct outbound *outbound = begin_one();
    turn_until(&fixture.opened, before + 1);
    *server = accept(fixture.listener, NULL, NULL);
    assert_true(*server >= 0);
    return outbound;
}

static struct outbound *reuse(const struct outbound_target *target) {
    return outbound_reuse(&fixture.group, target, &events, &fixture);
}

static void targets_are_read(void **state) {
    (void)state;
    struct outbound_target target;
    assert_true(outbound_target_read(&target, SLICE("node-1:4000")));
    assert_string_equal(target.host, "node-1");
    assert_int_equal(target.port, 4000);
    assert_false(target.is_secure);
    assert_true(outbound_target_read(&target, SLICE("https://[::1]:443")));
    assert_string_equal(target.host, "::1");
    assert_true(target.is_secure && target.port == 443);
    assert_true(outbound_target_read(&target, SLICE("http://10.0.0.1:81/")));
    assert_true(!target.is_secure && target.port == 81);
    assert_true(outbound_target_read(&target, SLICE("wss://a.example")));
    assert_true(target.is_secure && target.port == 443);
    assert_true(outbound_target_read(&target, SLICE("[::1]:4000")));
    assert_string_equal(target.host, "::1");
    static const char *const bad[] = {
        "",     "node",    ":80",   "node:",      "node:0",       "node:65536",
        "[]:x", "ftp://a", "a:80/", "http://a/b", "http://u@a:1", "http://a?b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(outbound_target_read(&target, slice_of(bad[i])));
}

static void bytes_go_both_ways_and_the_connection_is_kept(void **state) {
    (void)state;
    char text[16];
    int server;
    struct outbound *outbound = open_one(&server);
    assert_ok(outbound_send(outbound, SLICE("request")));
    assert_true(outbound_is_clear(outbound));
    assert_int_equal(read(server, text, sizeof(text)), 7);
    assert_int_equal(write(server, "answer", 6), 6);
    turn_until(&fixture.received.size, 6);
    outbound_keep(outbound);
    struct outbound_target other = fixture.target;
    assert_ptr_equal(reuse(&fixture.target), outbound);
    assert_null(reuse(&fixture.target));
    outbound_keep(outbound);
    other.port++;
    assert_null(reuse(&other));
    turn_until(&fixture.freed, 1);
    assert_int_equal(read(server, text, sizeof(text)), 0);
    assert_int_equal(fixture.lost, 0);
    close(server);
}

static void a_kept_connection_that_the_server_closes_is_forgotten(void **state) {
    (void)state;
    int server;
    outbound_keep(open_one(&server));
    close(server);
    turn_until(&fixture.freed, 1);
    assert_null(reuse(&fixture.target));
    assert_int_equal(fixture.lost, 0);
}

static void connections_that_rest_for_long_are_closed(void **state) {
    (void)state;
    int server;
    outbound_keep(open_one(&server));
    outbound_close_idle(&fixture.group, 60000);
    assert_false(list_is_empty(&fixture.group.idle));
    outbound_close_idle(&fixture.group, 0);
    turn_until(&fixture.freed, 1);
    close(server);
}

static void a_refused_connection_is_lost(void **state) {
    (void)state;
    close(fixture.listener);
    fixture.listener = -1;
    (void)begin_one();
    turn_until(&fixture.lost, 1);
    assert_non_null(strstr(fixture.reason, "Connection refused; does the server run there?"));
    assert_int_equal(fixture.opened, 0);
}

/* The name may have an address of each family; the server listens on one. */
static void the_next_address_of_a_name_is_tried(void **state) {
    (void)state;
    int server;
    snprintf(fixture.target.host, sizeof(fixture.target.host), "localhost");
    outbound_close(open_one(&server));
    assert_int_equal(fixture.lost, 0);
    close(server);
}

static void an_unknown_host_is_lost(void **state) {
    (void)state;
    snprintf(fixture.target.host, sizeof(fixture.target.host), "no such host");
    (void)begin_one();
    turn_until(&fixture.lost, 1);
}

static void closing_during_the_lookup_is_safe(void **state) {
    (void)state;
    snprintf(fixture.target.host, sizeof(fixture.target.host), "localhost");
    outbound_close(begin_one());
    turn_until(&fixture.freed, 1);
    assert_int_equal(fixture.lost + fixture.opened, 0);
}

/* Bytes that follow those that wait keep their order. */
static void a_slow_server_delays_the_room(void **state) {
    (void)state;
    static char large[UNSENT_BYTES_MAX], text[1 << 16];
    const size_t first = UNSENT_BYTES_MAX / 2;
    int server;
    size_t got = 0;
    struct outbound *outbound = open_one(&server);
    memset(large, 'a', sizeof(large));
    assert_ok(outbound_send(outbound, (struct slice){large, first}));
    assert_ok(outbound_send(outbound, SLICE("b")));
    memset(large, 'x', sizeof(large));
    assert_int_equal(outbound_send(outbound, (struct slice){large, sizeof(large)}),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_false(outbound_is_clear(outbound));
    outbound_want_room(outbound);
    io_loop_turn(&fixture.io, false);
    assert_int_equal(fixture.rooms, 0);
    assert_int_equal(fcntl(server, F_SETFL, O_NONBLOCK), 0);
    while (got < first + 1) {
        ssize_t size = read(server, text, sizeof(text));
        for (ssize_t i = 0; i < size; i++)
            assert_int_equal(text[i], got + (size_t)i < first ? 'a' : 'b');
        got += size > 0 ? (size_t)size : 0;
        io_loop_turn(&fixture.io, false);
    }
    turn_until(&fixture.rooms, 1);
    assert_true(outbound_is_clear(outbound));
    /* A socket that is clear has room in a later turn too. */
    outbound_want_room(outbound);
    assert_int_equal(fixture.rooms, 1);
    turn_until(&fixture.rooms, 2);
    outbound_close(outbound);
    close(server);
}

static void a_server_that_is_gone_is_lost_while_bytes_are_sent(void **state) {
    (void)state;
    int server;
    struct outbound *outbound = open_one(&server);
    struct linger at_once = {.l_onoff = 1};
    assert_int_equal(setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    close(server);
    for (int i = 0; i < 3; i++)
        assert_ok(outbound_send(outbound, SLICE("request")));
    assert_int_equal(fixture.lost, 0);
    turn_until(&fixture.lost, 1);
    /* It closed by itself. */
    turn_until(&fixture.freed, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_read),
        cmocka_unit_test_setup_teardown(bytes_go_both_ways_and_the_connection_is_kept, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_kept_connection_that_the_server_closes_is_forgotten,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(connections_that_rest_for_long_are_closed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_refused_connection_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_address_of_a_name_is_tried, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unknown_host_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_during_the_lookup_is_safe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_server_delays_the_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_is_gone_is_lost_while_bytes_are_sent, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
