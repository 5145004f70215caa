/* Batches over a real loop, socket and writer, for what a peer brings about only by luck: a socket
 * that is full at the wrong moment, and groups that come back late. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "authority/writer_fixture.h"
#include "http/conn.h"
#include "server/server.h"

#define KEY "0123456789abcdef"

struct peer {
    struct fixture *store;
    struct server server;
    struct io_loop loop;
    struct clock_manual clock;
    int client;
};

static struct peer peer;

static const char *environment(const char *name) {
    (void)name;
    return NULL;
}

static void on_connection(uv_stream_t *listener, int error) {
    (void)listener;
    assert_int_equal(error, 0);
    conn_accept(&peer.loop);
}

static void on_wake(uv_async_t *wake) {
    (void)wake;
    for (struct mailbox_item *item = mailbox_take_all(&peer.loop.mailbox), *next; item;
         item = next) {
        struct loop_task *task = (struct loop_task *)item;
        next = item->next;
        task->run(task);
    }
}

static void wake_loop(void *user) {
    (void)user;
    uv_async_send(&peer.loop.wake);
}

static void open_loop(void) {
    struct io_loop *loop = &peer.loop;
    loop->server = &peer.server;
    loop->config = &peer.server.config;
    loop->limits = HTTP1_LIMITS_DEFAULT;
    peer.clock.reading = (struct clock_reading){1700000000000, 1000000000};
    clock_init_source(&loop->clock, &peer.clock, clock_manual_read);
    append_parser_init(&loop->reader, FIXTURE_BODY_BYTES_MAX);
    deadline_queue_init(&loop->deadlines);
    for (int kind = 0; kind < DEADLINE_KIND_COUNT; kind++)
        loop->deadlines.delays_ms[kind] = 60000;
    assert_ok(uuid7_generator_init(&loop->ids, NULL));
    mailbox_init(&loop->mailbox, 1000, NULL, wake_loop);
    uv_loop_init(&loop->uv);
    uv_timer_init(&loop->uv, &loop->timer);
    uv_async_init(&loop->uv, &loop->wake, on_wake);
    uv_tcp_init(&loop->uv, &loop->listener);
    loop->timer.data = loop->listener.data = loop->wake.data = loop;
}

static void open_client(void) {
    struct sockaddr_in address;
    int size = sizeof(address);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_bind(&peer.loop.listener, (struct sockaddr *)&address, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&peer.loop.listener, 16, on_connection), 0);
    uv_tcp_getsockname(&peer.loop.listener, (struct sockaddr *)&address, &size);
    peer.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(peer.client, (struct sockaddr *)&address, sizeof(address)), 0);
    while (peer.loop.conn_count == 0)
        uv_run(&peer.loop.uv, UV_RUN_ONCE);
}

static int open_peer(void **state) {
    (void)state;
    struct config_error error;
    memset(&peer, 0, sizeof(peer));
    peer.store = fixture_new();
    fixture_open(peer.store);
    assert_ok(config_load(&peer.server.config, environment, NULL, 0, &error));
    assert_ok(operator_key_load(&peer.server.operator_key, KEY, ""));
    peer.server.writer = peer.store->writer;
    peer.server.item_bytes_max = FIXTURE_BODY_BYTES_MAX;
    open_loop();
    open_client();
    return 0;
}

static int close_peer(void **state) {
    (void)state;
    conn_close_all(&peer.loop);
    uv_close((uv_handle_t *)&peer.loop.listener, NULL);
    uv_close((uv_handle_t *)&peer.loop.timer, NULL);
    uv_close((uv_handle_t *)&peer.loop.wake, NULL);
    uv_run(&peer.loop.uv, UV_RUN_DEFAULT);
    close(peer.client);
    assert_int_equal(peer.loop.conn_count, 0);
    assert_int_equal(peer.loop.owed_count, 0);
    append_parser_release(&peer.loop.reader);
    mailbox_release(&peer.loop.mailbox);
    fixture_close(peer.store);
    fixture_free(peer.store);
    return uv_loop_close(&peer.loop.uv);
}

static void on_filled(uv_write_t *write, int error) {
    (void)write;
    assert_int_equal(error, UV_ECANCELED);
}

/* More than the client, who does not read, has room for: what is written now has to wait. */
static void fill_socket(struct conn *conn) {
    static char zeros[16 << 20];
    static uv_write_t write;
    uv_buf_t whole = uv_buf_init(zeros, sizeof(zeros));
    assert_int_equal(uv_write(&write, (uv_stream_t *)&conn->tcp, &whole, 1, on_filled), 0);
}

static void send_batch(const char *item, const char *behind) {
    char text[1024];
    int size = snprintf(text, sizeof(text),
                        "POST /internal/v1/events:batch HTTP/1.1\r\nHost: khala\r\n"
                        "Authorization: Bearer " KEY "\r\nContent-Type: application/x-ndjson\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n%s",
                        strlen(item), item, behind);
    assert_int_equal(write(peer.client, text, (size_t)size), size);
}

static void a_group_that_comes_back_behind_a_refusal_is_not_answered(void **state) {
    (void)state;
    struct conn *conn = peer.loop.conns;
    fill_socket(conn);
    send_batch("{\"topic\":\"app\",\"event_type\":\"x\"}\n", "no chunk\r\n");
    while (conn->state != CONN_WRITING)
        uv_run(&peer.loop.uv, UV_RUN_ONCE);
    while (peer.loop.owed_count > 0)
        uv_run(&peer.loop.uv, UV_RUN_ONCE);
    assert_int_equal(conn->state, CONN_WRITING);
    assert_int_equal(writer_stats(peer.server.writer).events, 1);
}

static void a_client_that_goes_on_sending_gets_no_more_time_to_read(void **state) {
    (void)state;
    struct conn *conn = peer.loop.conns;
    static const char second[] = "22\r\n{\"topic\":\"app\",\"event_type\":\"yy\"}\n\r\n";
    fill_socket(conn);
    send_batch("{\"topic\":\"app\",\"event_type\":\"x\"}\n", "");
    while (!conn->sending)
        uv_run(&peer.loop.uv, UV_RUN_ONCE);
    uint64_t at_ms = conn->deadline.at_ms;
    assert_true(at_ms > 0);
    clock_manual_advance_ms(&peer.clock, 1000);
    assert_int_equal(write(peer.client, second, sizeof(second) - 1), sizeof(second) - 1);
    while (writer_stats(peer.server.writer).events < 2 || peer.loop.owed_count > 0)
        uv_run(&peer.loop.uv, UV_RUN_ONCE);
    assert_true(conn->sending);
    assert_int_equal(conn->deadline.at_ms, at_ms);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_group_that_comes_back_behind_a_refusal_is_not_answered,
                                        open_peer, close_peer),
        cmocka_unit_test_setup_teardown(a_client_that_goes_on_sending_gets_no_more_time_to_read,
                                        open_peer, close_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
