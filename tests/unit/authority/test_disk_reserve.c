/* Appends while the disk is nearly full: refused, except those that may use the disk reserve. */
#include <signal.h>
#include <sys/resource.h>

#include "authority/writer_fixture.h"
#include "base/log.h"

#define RESERVE_BYTES (1 << 20)
#define DISK_BYTES    (4 << 20)
#define PAYLOAD_BYTES 60000
#define APPENDS_MAX   1000

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int setup(void **state) {
    struct fixture *fixture = fixture_new_unlimited();
    fixture->reserve_bytes = RESERVE_BYTES;
    limit_files(DISK_BYTES);
    fixture_open(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    limit_files(RLIM_INFINITY);
    (void)checked_log(fixture);
    fixture_close(fixture);
    fixture_free(fixture);
    return 0;
}

static const char *large_event(void) {
    static char body[PAYLOAD_BYTES + 100];
    int size = snprintf(body, sizeof(body), "{\"event_type\":\"x\",\"payload\":{\"x\":\"");
    memset(body + size, 'x', PAYLOAD_BYTES);
    strcpy(body + size + PAYLOAD_BYTES, "\"}}");
    return body;
}

/* Appends until the disk is nearly full, and answers how many events were stored. */
static uint64_t fill(struct fixture *fixture) {
    for (uint64_t stored = 0; stored < APPENDS_MAX; stored++) {
        const struct append_request *request = ask(fixture, APPEND_TOPIC_EVENT, "t", large_event());
        if (request->status == STATUS_DISK_RESERVE)
            return stored;
        assert_int_equal(request->status, STATUS_OK);
    }
    fail_msg("the disk was never full");
    return 0;
}

static void appends_are_refused_and_repetitions_are_answered(void **state) {
    struct fixture *fixture = *state;
    const char *const known = "{\"event_type\":\"x\",\"idempotency_key\":\"k\"}";
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", known);
    uint64_t stored = fill(fixture);
    assert_in_range(stored, 10, DISK_BYTES / PAYLOAD_BYTES);
    refused(fixture, APPEND_TOPIC_EVENT, "t", "{\"event_type\":\"x\"}", STATUS_DISK_RESERVE);
    refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r\"}", STATUS_DISK_RESERVE);
    assert_true(ask_ok(fixture, APPEND_TOPIC_EVENT, "t", known)->deduplicated);
    assert_int_equal(checked_log(fixture), stored + 1);
    limit_files(RLIM_INFINITY);
    fixture_restart(fixture);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "t", large_event());
}

static void requests_that_may_use_the_reserve_are_stored_among_others(void **state) {
    struct fixture *fixture = *state;
    const char *const item = "{\"topic\":\"t\",\"event_type\":\"x\"}";
    uint64_t stored = fill(fixture);
    for (uint64_t round = 0; round < 3; round++) {
        struct asked *asked = asked_new(fixture, 3);
        for (size_t i = 0; i < 3; i++) {
            struct append_request *request = &asked->requests[i];
            assert_ok(
                append_read_item(&fixture->reader, parsed(item), &asked->group.arena, request));
            request->room_least = i == 1 ? STORE_ROOM_LAST : STORE_ROOM_FREE;
        }
        assert_ok(writer_post(fixture->writer, &asked->group));
        const struct append_request *requests = wait_for(asked);
        assert_int_equal(requests[0].status, STATUS_DISK_RESERVE);
        assert_int_equal(requests[1].status, STATUS_OK);
        assert_int_equal(requests[1].event.seq, stored + round + 1);
        assert_int_equal(requests[2].status, STATUS_DISK_RESERVE);
    }
    assert_int_equal(checked_log(fixture), stored + 3);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(appends_are_refused_and_repetitions_are_answered, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(requests_that_may_use_the_reserve_are_stored_among_others,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
