/* The poll's sink of a driver: each of its five outcomes as an answer, over a real connection, hub
 * and store. */
#include "dialect/dialects.h"

#include <sqlite3.h>

#include "delivery/publisher.h"
#include "delivery/serving.h"
#include "http/http_fixture.h"

#define EVENTS 20 /* of the run; the window holds eight */

static struct http_fixture fixture;
static struct publisher *publisher;
static struct hub *hub;
static struct store_pool *pool;
static struct consumers *consumers;
static struct delivery delivery;
static struct delivery_loop loop;
static struct dialect_settings settings;

static void handle(struct exchange *exchange) {
    exchange->principal = &principal_operator;
    exchange->view = GRANT_VIEW_ALL;
    handle_messages(exchange);
}

static const struct route test_rows[] = {
    {HTTP1_METHOD_GET, "/{topic}", handle, 0, 0, 0, NULL},
};

static int open_fixture(void **state) {
    (void)state;
    memset(&fixture, 0, sizeof(fixture));
    fixture_http_open(&fixture, conn_accept);
    fixture.http.routes = (struct route_table){test_rows, 1};
    assert_ok(topic_activity_open(&fixture.telemetry.activity, 16));
    assert_ok(hub_open(&hub, &(struct hub_options){{8, 1u << 20}, 64u << 20}));
    publisher = publisher_open(hub);
    publisher_commit(publisher, 2 * EVENTS); /* the events of two runs in turn */
    assert_ok(store_pool_start(&pool, publisher->store, &(struct store_pool_options){1, 100, 100}));
    fixture.http.store_pool = pool;
    assert_ok(consumers_open(
        &consumers, &(struct consumers_options){
                        .capacity = 16, .lag_max = 1000, .strikes_max = 3, .interval_ms_min = 0}));
    settings = (struct dialect_settings){
        .poll_default_limit = 100, .poll_max_limit = 200, .outbound_queue_limit = 200};
    delivery = (struct delivery){.options = {.heartbeat_ms = 60000,
                                             .strike_check_ms = 60000,
                                             .lag_max = 1000,
                                             .strikes_max = 3,
                                             .slice_frames = 100},
                                 .policies = &fixture.policies,
                                 .epoch = "e",
                                 .hub = hub,
                                 .store_pool = pool,
                                 .consumers = consumers,
                                 .telemetry = &fixture.telemetry,
                                 .dialects = &settings};
    delivery_loop_open(&loop, &delivery, &fixture.io);
    deadline_queue_define(&fixture.io.deadlines, DEADLINE_WAIT, 0, poll_expired);
    fixture.loop.delivery = &loop;
    return 0;
}

static int close_fixture(void **state) {
    (void)state;
    int result = fixture_http_close(&fixture);
    delivery_loop_release(&loop);
    store_pool_stop(pool);
    consumers_close(consumers);
    publisher_close(publisher);
    hub_close(hub);
    topic_activity_close(fixture.telemetry.activity);
    return result;
}

static void ask(const char *query) {
    char request[256];
    int size = snprintf(request, sizeof(request),
                        "GET /" RUN_TOPIC "?%s HTTP/1.1\r\nHost: khala\r\n\r\n", query);
    assert_int_equal(write(fixture.client, request, (size_t)size), size);
}

/* Runs the loop until the answer is there. */
static const char *answer(void) {
    static char text[65536];
    ssize_t taken = -1;
    memset(text, 0, sizeof(text));
    while (taken <= 0) {
        io_loop_turn(&fixture.io, true);
        taken = recv(fixture.client, text, sizeof(text) - 1, MSG_DONTWAIT);
    }
    return text;
}

static bool is_waiting(void) {
    const struct deadline *earliest = fixture.io.deadlines.earliest;
    return earliest && earliest->kind == DEADLINE_WAIT;
}

static size_t message_count(const char *text) {
    size_t count = 0;
    for (; (text = strstr(text, "\"sequence\":")); text++)
        count++;
    return count;
}

#define assert_has(text, part) assert_non_null(strstr(text, part))

static void frames_from_the_store_end_a_poll_at_its_limit(void **state) {
    (void)state;
    ask("after_seq=0&limit=3");
    const char *text = answer();
    assert_has(text, "HTTP/1.1 200 OK\r\n");
    assert_int_equal(message_count(text), 3);
    assert_has(text, "\"sequence\":1,");
    assert_has(text, "\"next_cursor\":3,\"replay_complete\":false");
}

static void a_poll_gathers_frames_to_the_head(void **state) {
    (void)state;
    ask("after_seq=0&wait_ms=60000");
    const char *text = answer();
    assert_int_equal(message_count(text), EVENTS);
    assert_has(text, "\"next_cursor\":20,\"replay_complete\":true");
}

static void a_poll_at_the_head_waits_for_the_next_commit(void **state) {
    (void)state;
    ask("after_seq=20&wait_ms=60000");
    while (!is_waiting())
        io_loop_turn(&fixture.io, true);
    publisher_commit(publisher, 2);
    const char *text = answer();
    assert_int_equal(message_count(text), 1);
    assert_has(text, "\"sequence\":21,");
    assert_false(is_waiting());
}

static void a_waiting_poll_is_answered_without_messages_at_its_deadline(void **state) {
    (void)state;
    ask("after_seq=20&wait_ms=1");
    const char *text = answer();
    assert_has(text, "\"messages\":[]");
    assert_has(text, "\"next_cursor\":20,");
}

static void a_stale_cursor_is_answered_with_its_reason(void **state) {
    (void)state;
    fixture.policies.rows[policy_row_of(SLICE(RUN_TOPIC))].replay_budget_events = 3;
    ask("after_seq=1");
    const char *text = answer();
    assert_has(text, "HTTP/1.1 410 ");
    assert_has(text, "\"reason_code\":\"replay_budget_exceeded\"");
}

static void a_bootstrap_is_answered_with_the_newest_frames(void **state) {
    (void)state;
    fixture.policies.rows[policy_row_of(SLICE(RUN_TOPIC))].replay_budget_events = 3;
    ask("");
    const char *text = answer();
    assert_has(text, "\"bootstrap\":{\"from_seq\":18,\"truncated\":true}");
    assert_int_equal(message_count(text), 3);
}

static void a_failed_read_is_answered_with_its_status(void **state) {
    (void)state;
    char path[128];
    sqlite3 *database;
    snprintf(path, sizeof(path), "%s/khala.db", publisher->folder);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, "ALTER TABLE events RENAME TO gone", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    ask("after_seq=0");
    const char *text = answer();
    assert_has(text, "HTTP/1.1 500 ");
    assert_has(text, "{\"error\":\"internal_error\",");
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(frames_from_the_store_end_a_poll_at_its_limit),
        WITH_FIXTURE(a_poll_gathers_frames_to_the_head),
        WITH_FIXTURE(a_poll_at_the_head_waits_for_the_next_commit),
        WITH_FIXTURE(a_waiting_poll_is_answered_without_messages_at_its_deadline),
        WITH_FIXTURE(a_stale_cursor_is_answered_with_its_reason),
        WITH_FIXTURE(a_bootstrap_is_answered_with_the_newest_frames),
        WITH_FIXTURE(a_failed_read_is_answered_with_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
