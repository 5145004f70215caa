#include "net/socket_set.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "test.h"

#define SOCKETS 600 /* more than one call of epoll_wait reports */

struct watched {
    struct socket_watch watch;
    unsigned ready_count;
};

static struct watched sockets[SOCKETS];
static unsigned closed_count;

static void on_ready(struct socket_watch *watch, uint32_t events) {
    assert_true(events & EPOLLIN);
    container_of(watch, struct watched, watch)->ready_count++;
}

static void on_closed(struct socket_watch *watch) {
    assert_int_equal(watch->fd, -1);
    closed_count++;
}

static const struct socket_events events = {on_ready, on_closed};

static void every_ready_socket_is_reported_once_in_a_turn(void **state) {
    (void)state;
    struct clock clock;
    struct socket_host host = {.clock = &clock};
    struct socket_set set;
    clock_init(&clock);
    assert_ok(socket_set_open(&set, &host));
    for (size_t i = 0; i < SOCKETS; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        sockets[i] = (struct watched){.watch = {.events = &events, .fd = pair[0]}};
        assert_int_equal(write(pair[1], "x", 1), 1);
        close(pair[1]);
        assert_true(socket_set_want(&set, &sockets[i].watch, EPOLLIN));
    }
    /* Their bytes are not read, so they stay ready. */
    for (unsigned turn = 1; turn <= 2; turn++) {
        socket_set_wait(&set, -1);
        for (size_t i = 0; i < SOCKETS; i++)
            assert_int_equal(sockets[i].ready_count, turn);
    }
    /* Those that are not wanted any more leave the set at their next event. */
    for (size_t i = 0; i < SOCKETS; i++) {
        assert_true(socket_set_want(&set, &sockets[i].watch, 0));
        assert_int_equal(sockets[i].watch.registered, EPOLLIN);
    }
    socket_set_wait(&set, 0);
    for (size_t i = 0; i < SOCKETS; i++) {
        assert_int_equal(sockets[i].ready_count, 2);
        assert_int_equal(sockets[i].watch.registered, 0);
        socket_set_drop(&set, &sockets[i].watch);
    }
    assert_int_equal(closed_count, 0);
    assert_true(socket_set_run_closed(&set));
    assert_int_equal(closed_count, SOCKETS);
    assert_false(socket_set_run_closed(&set));
    socket_set_close(&set);
}

static void ready_sockets_share_what_a_turn_reads(void **state) {
    (void)state;
    static const struct {
        size_t count;
        uint32_t share;
    } cases[] = {{1, 128 << 10}, {32, 4 << 10}, {SOCKETS, 2 << 10}};
    struct clock clock;
    struct socket_host host = {.clock = &clock};
    struct socket_set set;
    clock_init(&clock);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        assert_ok(socket_set_open(&set, &host));
        for (size_t i = 0; i < cases[c].count; i++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            close(pair[1]);
            sockets[i] = (struct watched){.watch = {.events = &events, .fd = pair[0]}};
            assert_true(socket_set_want(&set, &sockets[i].watch, EPOLLIN));
        }
        socket_set_wait(&set, -1);
        assert_int_equal(set.read_share, cases[c].share);
        for (size_t i = 0; i < cases[c].count; i++)
            socket_set_drop(&set, &sockets[i].watch);
        assert_true(socket_set_run_closed(&set));
        socket_set_close(&set);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ready_socket_is_reported_once_in_a_turn),
        cmocka_unit_test(ready_sockets_share_what_a_turn_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
