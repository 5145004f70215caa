/* The core with a driver of the test's own: a bus whose failures the test decides. */
#include "test.h"

#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "cluster/fanout.h"

#define EPOCH "01a1dec5-1260-72e1-823b-7915efd6f48b"
#define OTHER "01a1dec5-1260-72e1-823b-7915efd6f48c"

/* Everything under lock; changed is signalled after each change. */
static struct bus {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct fanout_port *port; /* NULL: not connected */
    bool refuses;
    bool drops;     /* the next wait or send fails */
    bool holds;     /* send does not return */
    unsigned tries; /* to connect */
    unsigned sends;
    struct hint last; /* sent */
    unsigned hints;   /* on_hint with a hint */
    unsigned losses;  /* on_hint without */
    struct hint hint;
} bus = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        pthread_mutex_lock(&bus.lock);                                                             \
        while (!(condition))                                                                       \
            pthread_cond_wait(&bus.changed, &bus.lock);                                            \
        pthread_mutex_unlock(&bus.lock);                                                           \
    } while (0)

#define CHANGE(statement)                                                                          \
    do {                                                                                           \
        pthread_mutex_lock(&bus.lock);                                                             \
        statement;                                                                                 \
        pthread_cond_broadcast(&bus.changed);                                                      \
        pthread_mutex_unlock(&bus.lock);                                                           \
    } while (0)

static enum status bus_connect(void **connection, const struct fanout_port *port,
                               char error[FANOUT_ERROR_BYTES_MAX]) {
    pthread_mutex_lock(&bus.lock);
    bus.tries++;
    bool refuses = bus.refuses;
    if (!refuses)
        bus.port = port;
    pthread_cond_broadcast(&bus.changed);
    pthread_mutex_unlock(&bus.lock);
    strcpy(error, "refused\n\xff");
    *connection = &bus;
    return refuses ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

static bool take_drop(char error[FANOUT_ERROR_BYTES_MAX]) {
    bool drops = bus.drops;
    bus.drops = false;
    strcpy(error, "dropped");
    return drops;
}

static enum status bus_send(void *connection, struct slice text,
                            char error[FANOUT_ERROR_BYTES_MAX]) {
    (void)connection;
    pthread_mutex_lock(&bus.lock);
    bool drops = take_drop(error);
    if (!drops) {
        assert_ok(hint_parse(text, &bus.last));
        bus.sends++;
    }
    pthread_cond_broadcast(&bus.changed);
    while (bus.holds)
        pthread_cond_wait(&bus.changed, &bus.lock);
    pthread_mutex_unlock(&bus.lock);
    return drops ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

static enum status bus_ping(void *connection, char error[FANOUT_ERROR_BYTES_MAX]) {
    (void)connection;
    (void)error;
    return STATUS_OK;
}

static enum status bus_wait(void *connection, int timeout_ms, char error[FANOUT_ERROR_BYTES_MAX]) {
    (void)connection;
    pthread_mutex_lock(&bus.lock);
    struct pollfd wait = {.fd = bus.port->wake_fd, .events = POLLIN};
    pthread_mutex_unlock(&bus.lock);
    poll(&wait, 1, timeout_ms);
    pthread_mutex_lock(&bus.lock);
    bool drops = take_drop(error);
    pthread_mutex_unlock(&bus.lock);
    return drops ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

static void bus_close(void *connection) {
    (void)connection;
    CHANGE(bus.port = NULL);
}

static const struct fanout_driver driver = {"bus",    NULL,     bus_connect, bus_send,
                                            bus_ping, bus_wait, bus_close};

static void on_hint(void *user, const struct hint *hint) {
    assert_ptr_equal(user, &bus);
    pthread_mutex_lock(&bus.lock);
    if (hint) {
        bus.hint = *hint;
        bus.hints++;
    } else {
        bus.losses++;
    }
    pthread_cond_broadcast(&bus.changed);
    pthread_mutex_unlock(&bus.lock);
}

static struct fanout *open_node(void) {
    const struct fanout_options options = {.kind = FANOUT_NATS,
                                           .url = "",
                                           .channel = "khala.test",
                                           .user = &bus,
                                           .on_hint = on_hint,
                                           .driver = &driver};
    struct fanout *fanout = NULL;
    assert_ok(fanout_open(&fanout, &options));
    return fanout;
}

static void receive(const char *epoch, uint64_t log_id) {
    struct hint hint = {.log_id = log_id};
    char text[HINT_BYTES];
    memcpy(hint.epoch, epoch, UUID_TEXT_SIZE);
    hint_write(&hint, text);
    bus.port->on_text(bus.port->user, (struct slice){text, sizeof(text)});
}

static int reset(void **state) {
    (void)state;
    bus.refuses = bus.drops = bus.holds = false;
    bus.tries = bus.sends = bus.hints = bus.losses = 0;
    return 0;
}

/* ---- cases ---- */

static void memory_sends_nothing(void **state) {
    (void)state;
    struct fanout *fanout = NULL;
    const struct fanout_options options = {.kind = FANOUT_MEMORY, .url = "", .channel = "khala.x"};
    assert_ok(fanout_open(&fanout, &options));
    fanout_announce(fanout, EPOCH, 1);
    struct fanout_status status = fanout_status(fanout);
    assert_int_equal(status.state, FANOUT_ACTIVE);
    assert_true(status.lag == 0 && status.sent == 0);
    fanout_close(fanout);
    fanout_close(NULL);
}

static void a_new_connection_is_reported_as_a_loss(void **state) {
    (void)state;
    struct fanout *fanout = open_node();
    UNTIL(bus.losses == 1);
    CHANGE(bus.drops = true);
    fanout_announce(fanout, EPOCH, 5);
    UNTIL(bus.losses == 2 && bus.sends == 1);
    assert_true(bus.last.log_id == 5);
    assert_string_equal(bus.last.epoch, EPOCH);
    struct fanout_status status = fanout_status(fanout);
    assert_true(status.connects == 2 && status.failures == 1);
    assert_string_equal(status.error, "dropped");
    assert_true(status.failed_ms > 0);
    fanout_close(fanout);
}

static void a_storm_of_commits_sends_the_newest(void **state) {
    (void)state;
    struct fanout *fanout = open_node();
    CHANGE(bus.holds = true);
    fanout_announce(fanout, EPOCH, 1);
    UNTIL(bus.sends == 1);
    /* The bus hangs, and no announcement waits for it. */
    for (uint64_t log_id = 2; log_id <= 100000; log_id++)
        fanout_announce(fanout, EPOCH, log_id);
    assert_true(fanout_status(fanout).lag == 100000);
    CHANGE(bus.holds = false);
    UNTIL(bus.last.log_id == 100000);
    assert_int_equal(bus.sends, 2);
    fanout_close(fanout);
}

/* One hint in 5 ms, the first at once and the newest at the end. */
static void commits_that_follow_each_other_quickly_share_hints(void **state) {
    (void)state;
    struct fanout *fanout = open_node();
    UNTIL(bus.losses == 1);
    uint64_t begun_ms = clock_mono_now_ms();
    uint64_t log_id = 0;
    while (clock_mono_now_ms() - begun_ms < 50)
        fanout_announce(fanout, EPOCH, ++log_id);
    UNTIL(bus.last.log_id == log_id);
    uint64_t passed_ms = clock_mono_now_ms() - begun_ms;
    assert_true(bus.sends >= 2 && bus.sends <= passed_ms / 5 + 2);
    fanout_close(fanout);
}

static void a_hint_is_passed_on_unless_it_is_an_echo(void **state) {
    (void)state;
    struct fanout *fanout = open_node();
    UNTIL(bus.losses == 1);
    fanout_announce(fanout, EPOCH, 10);
    UNTIL(bus.sends == 1);
    receive(EPOCH, 10);
    receive(EPOCH, 9);
    assert_int_equal(bus.hints, 0);
    receive(EPOCH, 11);
    assert_int_equal(bus.hints, 1);
    receive(OTHER, 3);
    assert_int_equal(bus.hints, 2);
    assert_string_equal(bus.hint.epoch, OTHER);
    /* A forged hint hides no true one. */
    receive(EPOCH, HINT_LOG_ID_MAX);
    receive(EPOCH, 12);
    assert_int_equal(bus.hints, 4);
    assert_true(bus.hint.log_id == 12);
    fanout_close(fanout);
}

static void other_texts_are_counted_and_ignored(void **state) {
    (void)state;
    struct fanout *fanout = open_node();
    UNTIL(bus.losses == 1);
    char large[4096];
    memset(large, '1', sizeof(large));
    bus.port->on_text(bus.port->user, (struct slice){NULL, 0});
    bus.port->on_text(bus.port->user, SLICE("{\"log_id\":1}"));
    bus.port->on_text(bus.port->user, (struct slice){large, sizeof(large)});
    struct fanout_status status = fanout_status(fanout);
    assert_true(status.ignored == 3 && status.received == 0);
    assert_int_equal(bus.hints, 0);
    fanout_close(fanout);
}

static void a_bus_that_is_down_is_tried_again(void **state) {
    (void)state;
    bus.refuses = true;
    struct fanout *fanout = open_node();
    fanout_announce(fanout, EPOCH, 7);
    UNTIL(bus.tries >= 3);
    struct fanout_status status = fanout_status(fanout);
    assert_int_equal(status.state, FANOUT_DOWN);
    assert_true(status.lag == 7 && status.failures >= 2);
    assert_string_equal(status.error, "refused\\n\\xff");
    CHANGE(bus.refuses = false);
    UNTIL(bus.sends == 1);
    assert_true(bus.last.log_id == 7);
    fanout_close(fanout);
}

static void it_ends_while_the_bus_is_down(void **state) {
    (void)state;
    bus.refuses = true;
    struct fanout *fanout = open_node();
    UNTIL(bus.tries >= 1);
    fanout_close(fanout);
    assert_null(bus.port);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_sends_nothing),
        cmocka_unit_test_setup(a_new_connection_is_reported_as_a_loss, reset),
        cmocka_unit_test_setup(a_storm_of_commits_sends_the_newest, reset),
        cmocka_unit_test_setup(commits_that_follow_each_other_quickly_share_hints, reset),
        cmocka_unit_test_setup(a_hint_is_passed_on_unless_it_is_an_echo, reset),
        cmocka_unit_test_setup(other_texts_are_counted_and_ignored, reset),
        cmocka_unit_test_setup(a_bus_that_is_down_is_tried_again, reset),
        cmocka_unit_test_setup(it_ends_while_the_bus_is_down, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
