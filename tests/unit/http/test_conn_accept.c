#include "http/conn_accept.h"

#include "http/conn.h"
#include "http_fixture.h"

#define LOOPS_MAX 4

/* Only the first loop listens, as if the kernel's hash chose it for every connection. The test's
 * own thread runs each loop by hand. */
struct spread {
    struct http http;
    struct run {
        struct http_loop http;
        struct io_loop io;
    } loops[LOOPS_MAX];
    struct io_loop *ios[LOOPS_MAX];
    struct io_backoff backoff;
    struct telemetry telemetry;
    struct policy_table policies;
    struct sockaddr_in address;
    int clients[5 * CONN_HANDED_MAX];
    size_t client_count;
};

static const struct io_loop_hooks hooks = {.accept = conn_accept,
                                           .drain = http_loop_drain,
                                           .close_all = http_loop_close_all,
                                           .before_sleep = fixture_before_sleep,
                                           .ended = fixture_ended};

static void open_loop(struct spread *spread, size_t index, int fd) {
    struct run *run = &spread->loops[index];
    assert_ok(io_loop_open(&run->io, &(struct io_loop_options){.hooks = &hooks,

                                                               .owner = &run->http,
                                                               .backoff = &spread->backoff,
                                                               .index = index,
                                                               .fds = {fd, -1}}));
    spread->ios[index] = &run->io;
    http_loop_open(&run->http, &spread->http, &run->io);
}

static int open_spread(void **state) {
    struct spread *spread = calloc(1, sizeof(*spread));
    const struct listen_address address = {.host = "127.0.0.1"};
    uint16_t port;
    int fd;
    policy_table_init(&spread->policies);
    spread->telemetry.policies = &spread->policies;
    assert_ok(causes_open(&spread->telemetry.causes, 16));
    spread->http.options = (struct http_options){.request_head_bytes_max = 16384,
                                                 .request_line_bytes_max = 8192,
                                                 .request_timeout_ms = 60000,
                                                 .idle_timeout_ms = 60000,
                                                 .silence_timeout_ms = 60000};
    spread->http.conn_limits.conn_max = spread->http.conn_limits.unauthenticated_max = 1000;
    spread->http.conn_limits.reserved_max = 100;
    assert_ok(conn_shares_init(&spread->http.conn_shares));
    spread->http.routes = api_routes;
    spread->http.conn_events = &dispatch_events;
    spread->http.telemetry = &spread->telemetry;
    spread->http.loops = spread->ios;
    spread->http.loop_count = LOOPS_MAX;
    spread->http.loops_started = LOOPS_MAX;
    assert_ok(listen_open(&address, &fd, 1, &port));
    for (size_t i = 0; i < LOOPS_MAX; i++)
        open_loop(spread, i, i == 0 ? fd : -1);
    spread->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &spread->address.sin_addr);
    *state = spread;
    return 0;
}

static void end_loop(struct spread *spread, size_t index) {
    io_loop_end_post(&spread->loops[index].io);
    io_loop_run(&spread->loops[index].io);
}

static int close_spread(void **state) {
    struct spread *spread = *state;
    for (size_t i = 0; i < LOOPS_MAX; i++)
        end_loop(spread, i);
    for (size_t i = 0; i < spread->client_count; i++)
        close(spread->clients[i]);
    for (size_t i = 0; i < LOOPS_MAX; i++) {
        assert_int_equal(spread->loops[i].http.conn_count, 0);
        io_loop_close(&spread->loops[i].io);
    }
    assert_int_equal(spread->http.handed_count, 0);
    assert_int_equal(conn_limits_count(&spread->http.conn_limits), 0);
    conn_shares_release(&spread->http.conn_shares);
    causes_close(spread->telemetry.causes);
    free(spread);
    return 0;
}

static size_t open_count(const struct spread *spread, size_t index) {
    const struct list *conns = &spread->loops[index].http.conns;
    size_t count = 0;
    for (const struct list_node *node = list_first(conns); node; node = list_next(conns, node))
        count++;
    return count;
}

static size_t counted(const struct spread *spread) {
    size_t count = 0;
    for (size_t i = 0; i < LOOPS_MAX; i++)
        count += atomic_load(&spread->loops[i].http.conn_count);
    return count;
}

static int connect_one(struct spread *spread) {
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        connect(client, (const struct sockaddr *)&spread->address, sizeof(spread->address)), 0);
    return spread->clients[spread->client_count++] = client;
}

/* Connects, and runs the first loop until it has accepted all. */
static void connect_many(struct spread *spread, size_t count) {
    size_t wanted = counted(spread) + count;
    for (size_t i = 0; i < count; i++)
        (void)connect_one(spread);
    while (counted(spread) < wanted)
        io_loop_turn(&spread->loops[0].io, true);
}

/* Runs a loop that has tasks. */
static void turn(struct spread *spread, size_t index) {
    io_loop_turn(&spread->loops[index].io, true);
}

static void assert_spread(const struct spread *spread, size_t a, size_t b, size_t c, size_t d) {
    const size_t wanted[LOOPS_MAX] = {a, b, c, d};
    for (size_t i = 0; i < LOOPS_MAX; i++)
        assert_int_equal(open_count(spread, i), wanted[i]);
}

static void eight_connections_spread_evenly_over_four_loops(void **state) {
    struct spread *spread = *state;
    connect_many(spread, 8);
    for (size_t i = 1; i < LOOPS_MAX; i++)
        turn(spread, i);
    assert_spread(spread, 2, 2, 2, 2);
    assert_int_equal(conn_limits_count(&spread->http.conn_limits), 8);
}

static void a_loop_whose_connections_closed_gets_the_next_ones(void **state) {
    struct spread *spread = *state;
    connect_many(spread, 8);
    for (size_t i = 1; i < LOOPS_MAX; i++)
        turn(spread, i);
    http_loop_close_all(&spread->loops[2].io);
    while (atomic_load(&spread->loops[2].http.conn_count) > 0)
        io_loop_turn(&spread->loops[2].io, false);
    connect_many(spread, 2);
    turn(spread, 2);
    assert_spread(spread, 2, 2, 2, 2);
}

static void a_socket_that_an_ended_loop_refuses_stays(void **state) {
    struct spread *spread = *state;
    for (size_t i = 1; i < LOOPS_MAX; i++)
        end_loop(spread, i);
    connect_many(spread, 3);
    assert_spread(spread, 3, 0, 0, 0);
    assert_int_equal(counted(spread), 3);
    assert_int_equal(conn_limits_count(&spread->http.conn_limits), 3);
}

static void a_socket_that_comes_to_a_loop_at_its_end_is_closed(void **state) {
    struct spread *spread = *state;
    char byte;
    io_loop_drain_post(&spread->loops[1].io);
    connect_many(spread, 2);
    assert_int_equal(atomic_load(&spread->http.handed_count), 1);
    io_loop_run(&spread->loops[1].io);
    assert_int_equal(recv(spread->clients[1], &byte, 1, 0), 0);
    assert_spread(spread, 1, 0, 0, 0);
    assert_int_equal(counted(spread), 1);
}

static void a_socket_that_comes_to_a_draining_loop_is_closed(void **state) {
    struct spread *spread = *state;
    char byte;
    io_loop_hold(&spread->loops[1].io);
    io_loop_drain_post(&spread->loops[1].io);
    connect_many(spread, 2);
    turn(spread, 1);
    assert_int_equal(recv(spread->clients[1], &byte, 1, 0), 0);
    assert_spread(spread, 1, 0, 0, 0);
    assert_int_equal(counted(spread), 1);
    io_loop_release(&spread->loops[1].io);
}

static void a_draining_server_hands_no_socket_over(void **state) {
    struct spread *spread = *state;
    spread->http.is_draining = true;
    connect_many(spread, 3);
    assert_spread(spread, 3, 0, 0, 0);
}

static void loops_with_descriptor_tables_of_their_own_keep_their_sockets(void **state) {
    struct spread *spread = *state;
    for (size_t i = 0; i < LOOPS_MAX; i++)
        spread->loops[i].io.has_own_descriptors = true;
    connect_many(spread, 4);
    assert_spread(spread, 4, 0, 0, 0);
}

static void a_loop_that_has_not_started_gets_no_socket(void **state) {
    struct spread *spread = *state;
    spread->http.loops_started = 2;
    connect_many(spread, 4);
    turn(spread, 1);
    assert_spread(spread, 2, 2, 0, 0);
}

static void few_sockets_wait_for_a_busy_loop(void **state) {
    struct spread *spread = *state;
    spread->http.loops_started = 2;
    connect_many(spread, 3 * CONN_HANDED_MAX);
    assert_int_equal(atomic_load(&spread->http.handed_count), CONN_HANDED_MAX);
    assert_int_equal(open_count(spread, 0), 2 * CONN_HANDED_MAX);
    turn(spread, 1);
    assert_spread(spread, 2 * CONN_HANDED_MAX, CONN_HANDED_MAX, 0, 0);
    connect_many(spread, CONN_HANDED_MAX / 2);
    turn(spread, 1);
    assert_spread(spread, 2 * CONN_HANDED_MAX, 3 * CONN_HANDED_MAX / 2, 0, 0);
}

static void the_address_limit_counts_sockets_of_other_loops(void **state) {
    struct spread *spread = *state;
    spread->http.conn_shares.address_max = 3;
    connect_many(spread, 4);
    for (size_t i = 1; i < LOOPS_MAX; i++)
        turn(spread, i);
    assert_spread(spread, 1, 1, 1, 1);
    assert_int_equal(atomic_load(&spread->http.conn_limits.counts[CONN_RANK_RESERVED]), 1);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(eight_connections_spread_evenly_over_four_loops,
                                        open_spread, close_spread),
        cmocka_unit_test_setup_teardown(a_loop_whose_connections_closed_gets_the_next_ones,
                                        open_spread, close_spread),
        cmocka_unit_test_setup_teardown(a_socket_that_an_ended_loop_refuses_stays, open_spread,
                                        close_spread),
        cmocka_unit_test_setup_teardown(a_socket_that_comes_to_a_loop_at_its_end_is_closed,
                                        open_spread, close_spread),
        cmocka_unit_test_setup_teardown(a_socket_that_comes_to_a_draining_loop_is_closed,
                                        open_spread, close_spread),
        cmocka_unit_test_setup_teardown(a_draining_server_hands_no_socket_over, open_spread,
                                        close_spread),
        cmocka_unit_test_setup_teardown(
            loops_with_descriptor_tables_of_their_own_keep_their_sockets, open_spread,
            close_spread),
        cmocka_unit_test_setup_teardown(a_loop_that_has_not_started_gets_no_socket, open_spread,
                                        close_spread),
        cmocka_unit_test_setup_teardown(few_sockets_wait_for_a_busy_loop, open_spread,
                                        close_spread),
        cmocka_unit_test_setup_teardown(the_address_limit_counts_sockets_of_other_loops,
                                        open_spread, close_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
