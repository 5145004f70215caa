/* Batches over a real loop, socket and writer, in cases that a peer causes only by chance: a socket
 * that is full at the wrong moment, and groups that return late. */
#include <stdio.h>

#include "api/append.h"
#include "api/handlers.h"
#include "api/slow_disk.h"
#include "authority/writer_fixture.h"
#include "http/http_fixture.h"

#define KEY "0123456789abcdef"

struct peer {
    struct http_fixture http;
    struct fixture *store;
    struct api api;
    struct append_memory appends;
    struct clock_manual clock;
};

static struct peer peer;

static int open_peer(void **state) {
    (void)state;
    memset(&peer, 0, sizeof(peer));
    peer.store = fixture_new();
    fixture_open(peer.store);
    append_memory_init(&peer.appends, FIXTURE_BODY_BYTES_MAX);
    peer.api = (struct api){
        .http = &peer.http.http,
        .writer = peer.store->writer,
        .appends = &peer.appends,
        .item_bytes_max = FIXTURE_BODY_BYTES_MAX,
        .batch_shares = {.bytes_max = 64 << 20},
        .batch_spools = {
            .thread = &peer.api.files, .folder = "/tmp", .bytes_max = 64 << 20, .files_max = 4}};
    batch_shares_init(&peer.api.batch_shares);
    spool_files_init(&peer.api.batch_spools);
    assert_ok(file_thread_start(&peer.api.files));
    peer.http.http.api = &peer.api;
    peer.http.http.writer = peer.store->writer;
    assert_ok(operator_key_load(&peer.http.http.operator_key, KEY, ""));
    fixture_http_open(&peer.http, conn_accept);
    peer.clock.reading = (struct clock_reading){1700000000000, 1000000000};
    deadline_queue_define(&peer.http.io.deadlines, DEADLINE_BATCH, 1000000, batch_expired);
    deadline_queue_define(&peer.http.io.deadlines, DEADLINE_BATCH_PEER, 1000000, batch_peer_check);
    clock_init_source(&peer.http.io.clock, &peer.clock, clock_manual_read);
    return 0;
}

static int close_peer(void **state) {
    (void)state;
    disk_set(false, 0);
    int error = fixture_http_close(&peer.http);
    file_thread_stop(&peer.api.files);
    assert_int_equal(peer.api.batch_spools.bytes, 0);
    assert_int_equal(peer.api.batch_spools.file_count, 0);
    spool_files_release(&peer.api.batch_spools);
    assert_int_equal(peer.api.batch_shares.bytes, 0);
    batch_shares_release(&peer.api.batch_shares);
    append_memory_release(&peer.appends);
    fixture_close(peer.store);
    fixture_free(peer.store);
    return error;
}

static bool is_anything_owed(void) {
    return peer.http.io.hold_count > peer.http.loop.conn_count;
}

/* Fills the socket of a client that does not read, so that further writes must wait. */
static void fill_socket(struct conn *conn) {
    static char zeros[1 << 20];
    while (transport_try(&conn->transport, (struct slice){zeros, sizeof(zeros)}) > 0)
        continue;
}

static void send_batch(const char *item, const char *behind) {
    char text[1024];
    int size = snprintf(text, sizeof(text),
                        "POST /internal/v1/events:batch HTTP/1.1\r\nHost: khala\r\n"
                        "Authorization: Bearer " KEY "\r\nContent-Type: application/x-ndjson\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n%s",
                        strlen(item), item, behind);
    assert_int_equal(write(peer.http.client, text, (size_t)size), size);
}

static void a_group_that_returns_after_a_refusal_is_not_answered(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&peer.http);
    fill_socket(conn);
    send_batch("{\"topic\":\"app\",\"event_type\":\"x\"}\n", "no chunk\r\n");
    while (conn->state != CONN_WRITING)
        io_loop_turn(&peer.http.io, true);
    while (is_anything_owed())
        io_loop_turn(&peer.http.io, true);
    assert_int_equal(conn->state, CONN_WRITING);
    assert_int_equal(writer_stats(peer.api.writer).events, 1);
}

/* Most clients read only after they have sent the whole body. */
static void items_prolong_the_deadline_and_single_bytes_do_not(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&peer.http);
    static const char begun[] = "21\r\n{\"topic\":\"app\",\"event_type\":\"yy\"}\r\n";
    static const char ended[] = "1\r\n\n\r\n";
    fill_socket(conn);
    send_batch("{\"topic\":\"app\",\"event_type\":\"x\"}\n", "");
    while (!conn->is_sending)
        io_loop_turn(&peer.http.io, true);
    uint64_t at_ms = conn->deadline.at_ms;
    assert_true(at_ms > 0);
    clock_manual_advance_ms(&peer.clock, 1000);
    assert_int_equal(write(peer.http.client, begun, sizeof(begun) - 1), sizeof(begun) - 1);
    while (conn->http->fresh_body_bytes == 0)
        io_loop_turn(&peer.http.io, true);
    assert_int_equal(conn->deadline.at_ms, at_ms);
    assert_int_equal(write(peer.http.client, ended, sizeof(ended) - 1), sizeof(ended) - 1);
    while (writer_stats(peer.api.writer).events < 2 || is_anything_owed())
        io_loop_turn(&peer.http.io, true);
    assert_true(conn->is_sending);
    assert_int_equal(conn->deadline.at_ms, at_ms + 1000);
}

/* Two bytes make such an item. */
static void refused_items_and_their_answers_do_not_prolong_the_deadline(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&peer.http);
    char answer[4096];
    send_batch("{\"topic\":\"app\",\"event_type\":\"x\"}\n", "");
    while (writer_stats(peer.api.writer).events < 1 || is_anything_owed())
        io_loop_turn(&peer.http.io, true);
    uint64_t at_ms = conn->deadline.at_ms;
    assert_true(at_ms > 0);
    assert_true(read(peer.http.client, answer, sizeof(answer)) > 0);
    for (int i = 0; i < 3; i++) {
        clock_manual_advance_ms(&peer.clock, 100);
        assert_int_equal(write(peer.http.client, "2\r\n1\n\r\n", 7), 7);
        while (recv(peer.http.client, answer, sizeof(answer), MSG_DONTWAIT) < 0)
            io_loop_turn(&peer.http.io, false);
        assert_int_equal(conn->deadline.at_ms, at_ms);
    }
}

/* Sends a chunk with one item, and reads its answer. */
static void answer_item(const char *item) {
    char text[4096];
    int size = snprintf(text, sizeof(text), "%zx\r\n%s\r\n", strlen(item), item);
    assert_int_equal(write(peer.http.client, text, (size_t)size), size);
    while (recv(peer.http.client, text, sizeof(text), MSG_DONTWAIT) < 0)
        io_loop_turn(&peer.http.io, false);
}

static void items_that_the_writer_refuses_prolong_the_deadline_a_few_times(void **state) {
    (void)state;
    struct conn *conn = fixture_newest(&peer.http);
    static const char unknown[] = "{\"run_id\":\"none\",\"event_type\":\"x\"}\n";
    static const char stored[] = "{\"topic\":\"app\",\"event_type\":\"x\"}\n";
    send_batch(stored, "");
    while (writer_stats(peer.api.writer).events < 1 || is_anything_owed())
        io_loop_turn(&peer.http.io, true);
    uint64_t first_ms = conn->deadline.at_ms;
    char answer[4096];
    assert_true(read(peer.http.client, answer, sizeof(answer)) > 0);
    for (uint64_t i = 1; i <= BATCH_RENEWALS_MAX + 3; i++) {
        clock_manual_advance_ms(&peer.clock, 100);
        answer_item(unknown);
        uint64_t renewed = i < BATCH_RENEWALS_MAX ? i : BATCH_RENEWALS_MAX;
        assert_int_equal(conn->deadline.at_ms, first_ms + 100 * renewed);
    }
    assert_int_equal(writer_stats(peer.api.writer).events, 1);
    /* Items prolong it again once one is stored. */
    answer_item(stored);
    clock_manual_advance_ms(&peer.clock, 100);
    answer_item(stored);
    assert_int_equal(conn->deadline.at_ms, first_ms + 100 * (BATCH_RENEWALS_MAX + 4));
}

#define BAD_ITEMS 1000

/* A batch whose client does not read, until the file thread holds a write of its answers. */
static void hold_write(void) {
    static char items[2 * BAD_ITEMS + 64];
    size_t arrived_before = disk_count();
    int size = snprintf(items, sizeof(items), "%x\r\n", 2 * BAD_ITEMS);
    for (size_t i = 0; i < BAD_ITEMS; i++)
        size += snprintf(items + size, sizeof(items) - (size_t)size, "1\n");
    size += snprintf(items + size, sizeof(items) - (size_t)size, "\r\n");
    fill_socket(fixture_newest(&peer.http));
    send_batch("1\n", "");
    disk_set(true, 0);
    while (peer.http.io.hold_count <= peer.http.loop.conn_count || disk_count() == arrived_before) {
        if (!is_anything_owed())
            assert_int_equal(write(peer.http.client, items, (size_t)size), size);
        io_loop_turn(&peer.http.io, false);
    }
}

static void a_batch_ends_with_its_connection_while_the_disk_is_slow(void **state) {
    (void)state;
    hold_write();
    uint64_t charged = peer.api.batch_shares.bytes;
    assert_true(charged > SPOOL_MEMORY_BYTES);
    struct linger reset = {.l_onoff = 1};
    assert_int_equal(setsockopt(peer.http.client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    close(peer.http.client);
    peer.http.client = -1;
    fixture_turn_until(&peer.http, 0);
    /* Groups return from the writer. The memory is in use until the write returns too. */
    while (peer.http.io.hold_count > 1)
        io_loop_turn(&peer.http.io, true);
    io_loop_turn(&peer.http.io, false);
    assert_int_equal(peer.http.io.hold_count, 1);
    assert_true(peer.api.batch_shares.bytes > SPOOL_MEMORY_BYTES);
    disk_set(false, 0);
    while (is_anything_owed())
        io_loop_turn(&peer.http.io, true);
    assert_int_equal(peer.api.batch_shares.bytes, 0);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_group_that_returns_after_a_refusal_is_not_answered,
                                        open_peer, close_peer),
        cmocka_unit_test_setup_teardown(items_prolong_the_deadline_and_single_bytes_do_not,
                                        open_peer, close_peer),
        cmocka_unit_test_setup_teardown(refused_items_and_their_answers_do_not_prolong_the_deadline,
                                        open_peer, close_peer),
        cmocka_unit_test_setup_teardown(
            items_that_the_writer_refuses_prolong_the_deadline_a_few_times, open_peer, close_peer),
        cmocka_unit_test_setup_teardown(a_batch_ends_with_its_connection_while_the_disk_is_slow,
                                        open_peer, close_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
