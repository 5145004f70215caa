/* HTTP over a real loop and real sockets. The test's own thread runs the loop, so there is no
 * second thread and no timing. A test sets further members of fixture->http if its handlers need
 * them. */
#ifndef HTTP_FIXTURE_H
#define HTTP_FIXTURE_H

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/routes.h"
#include "http/conn_accept.h"
#include "http/dispatch.h"
#include "http/exchange.h"
#include "http/http_loop.h"
#include "net/listen.h"
#include "test.h"

struct http_fixture {
    struct http http;
    struct http_loop loop;
    struct io_loop io;
    struct io_backoff backoff;
    struct telemetry telemetry;
    struct policy_table policies;
    struct io_loop *loops[1];
    struct sockaddr_in address;
    int client;
};

static inline bool fixture_before_sleep(struct io_loop *io) {
    (void)io;
    return false;
}

static inline void fixture_ended(struct io_loop *io) {
    (void)io;
}

static inline int fixture_connect(const struct http_fixture *fixture) {
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        connect(client, (const struct sockaddr *)&fixture->address, sizeof(fixture->address)), 0);
    return client;
}

/* Runs the loop until it has that many connections. */
static inline void fixture_turn_until(struct http_fixture *fixture, size_t conn_count) {
    while (fixture->loop.conn_count != conn_count)
        io_loop_turn(&fixture->io, true);
}

static inline struct conn *fixture_newest(const struct http_fixture *fixture) {
    return container_of(list_last(&fixture->loop.conns), struct conn, node);
}

static inline void fixture_http_open(struct http_fixture *fixture,
                                     void (*accept)(struct io_loop *, enum listener_kind, int,
                                                    const struct sockaddr *)) {
    static struct io_loop_hooks hooks;
    const struct listen_address address = {.host = "127.0.0.1"};
    uint16_t port;
    int fd;
    hooks = (struct io_loop_hooks){.accept = accept,
                                   .drain = http_loop_drain,
                                   .close_all = http_loop_close_all,
                                   .before_sleep = fixture_before_sleep,
                                   .ended = fixture_ended};
    assert_ok(listen_open(&address, &fd, 1, &port));
    assert_ok(io_loop_open(&fixture->io, &(struct io_loop_options){.hooks = &hooks,

                                                                   .owner = &fixture->loop,
                                                                   .backoff = &fixture->backoff,
                                                                   .fds = {fd, -1}}));
    fixture->loops[0] = &fixture->io;
    policy_table_init(&fixture->policies);
    fixture->telemetry.policies = &fixture->policies;
    assert_ok(causes_open(&fixture->telemetry.causes, 16));
    fixture->http.options = (struct http_options){.request_head_bytes_max = 16384,
                                                  .request_line_bytes_max = 8192,
                                                  .append_bytes_max = 1 << 20,
                                                  .request_timeout_ms = 60000,
                                                  .idle_timeout_ms = 60000,
                                                  .silence_timeout_ms = 60000};
    fixture->http.conn_limits.conn_max = fixture->http.conn_limits.unauthenticated_max = 100;
    fixture->http.conn_shares.principal_max = 100;
    assert_ok(conn_shares_init(&fixture->http.conn_shares));
    fixture->http.routes = api_routes;
    fixture->http.conn_events = &dispatch_events;
    fixture->http.telemetry = &fixture->telemetry;
    fixture->http.loops = fixture->loops;
    fixture->http.loop_count = 1;
    http_loop_open(&fixture->loop, &fixture->http, &fixture->io);
    fixture->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &fixture->address.sin_addr);
    fixture->client = fixture_connect(fixture);
    fixture_turn_until(fixture, 1);
}

/* Ends the loop as the server does, and checks that nothing holds it any more. */
static inline int fixture_http_close(struct http_fixture *fixture) {
    io_loop_end_post(&fixture->io);
    io_loop_run(&fixture->io);
    close(fixture->client);
    assert_int_equal(fixture->loop.conn_count, 0);
    assert_int_equal(conn_limits_count(&fixture->http.conn_limits), 0);
    http_loop_release(&fixture->loop);
    conn_shares_release(&fixture->http.conn_shares);
    assert_int_equal(fixture->io.hold_count, 0);
    assert_true(list_is_empty(&fixture->loop.conns));
    causes_close(fixture->telemetry.causes);
    io_loop_close(&fixture->io);
    return 0;
}

#endif
