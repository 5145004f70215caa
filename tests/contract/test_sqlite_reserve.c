/* The disk reserve of the embedded store. A limit on the size of files stands for a small disk. */
#include "backend.h"
#include "rows.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESERVE_BYTES (1 << 20)
#define DISK_BYTES    (4 << 20)
#define PAYLOAD_BYTES 60000
#define COMMITS_MAX   1000

static char payload[DISK_BYTES];

static enum status commit_bytes(struct store_session *session, uint64_t log_id, size_t bytes,
                                enum store_room room_least) {
    struct store_event event = rows_event(log_id, 1, log_id);
    memset(payload, 'x', sizeof(payload));
    event.payload = (struct slice){payload, bytes};
    return store_commit(session, &(struct store_batch){
                                     .events = &event, .event_count = 1, .room_least = room_least});
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void assert_log(struct store_session *session, uint64_t last) {
    struct store_state at;
    assert_ok(store_read_state(session, &at));
    assert_int_equal(at.log_id, last);
}

/* Opens the write session again, which measures the disk at once. */
static void reserve(struct fixture *fixture, uint64_t bytes) {
    store_session_close(fixture->writer);
    store_set_reserve(fixture->store, bytes);
    assert_ok(store_session_open(fixture->store, STORE_WRITE, &fixture->writer));
}

/* Commits events until the store refuses them, and answers the last one that it has. */
static uint64_t fill(struct fixture *fixture) {
    for (uint64_t last = 0; last < COMMITS_MAX; last++) {
        enum status status =
            commit_bytes(fixture->writer, last + 1, PAYLOAD_BYTES, STORE_ROOM_FREE);
        if (status == STATUS_DISK_RESERVE)
            return last;
        assert_ok(status);
    }
    fail_msg("the disk was never full");
    return 0;
}

static void put_revocation(struct store_session *session) {
    const struct store_revocation revocation = {
        .kind = REVOCATION_TOKEN, .id = SLICE("jti"), .revoked_at_ms = 1, .expires_at_ms = 1000};
    assert_ok(store_put_revocations(session, &revocation, 1, 0));
}

static void use_once(struct store_session *session, bool was_used) {
    struct store_single_use use = {SINGLE_USE_NONCE, SLICE("nonce"), 1000, false};
    assert_ok(store_use_once(session, &use, 1, 0));
    assert_int_equal(use.was_used, was_used);
}

static void appends_stop_before_the_end_and_other_work_goes_on(void **state) {
    struct fixture *fixture = *state;
    const struct store_quota quota = {SLICE("user:u"), SLICE("open_runs"), true, 1, 0};
    struct store_disk disk;
    limit_files(DISK_BYTES);
    reserve(fixture, RESERVE_BYTES);
    uint64_t last = fill(fixture);
    assert_in_range(last, 10, DISK_BYTES / PAYLOAD_BYTES);
    assert_int_equal(store_check_room(fixture->writer), STORE_ROOM_RESERVE);
    store_disk(fixture->store, &disk);
    assert_true(disk.is_stopped);
    assert_int_equal(disk.line_bytes, store_reserve_half(RESERVE_BYTES, DISK_BYTES));
    put_revocation(fixture->writer);
    use_once(fixture->writer, false);
    use_once(fixture->writer, true);
    assert_ok(store_put_quotas(fixture->writer, &quota, 1));
    assert_ok(commit_bytes(fixture->writer, ++last, 1000, STORE_ROOM_LAST));
    assert_log(fixture->reader, last);
    /* A session that is opened while there is no room stops appends as well. */
    reserve(fixture, RESERVE_BYTES);
    assert_int_equal(store_check_room(fixture->writer), STORE_ROOM_RESERVE);
    limit_files(RLIM_INFINITY);
    reserve(fixture, RESERVE_BYTES);
    assert_int_equal(store_check_room(fixture->writer), STORE_ROOM_FREE);
    assert_ok(commit_bytes(fixture->writer, ++last, PAYLOAD_BYTES, STORE_ROOM_FREE));
    fixture_reopen(fixture);
    assert_log(fixture->reader, last);
}

/* The limit refuses the commit whatever is given back, so each try takes another piece. */
static void a_second_level_leaves_half_of_the_file(void **state) {
    struct fixture *fixture = *state;
    struct store_disk disk;
    char path[256];
    snprintf(path, sizeof(path), "%s/khala.reserve", fixture->place);
    limit_files(DISK_BYTES);
    reserve(fixture, RESERVE_BYTES);
    uint64_t last = fill(fixture);
    assert_int_equal(store_check_room(fixture->writer), STORE_ROOM_RESERVE);
    assert_ok(commit_bytes(fixture->writer, ++last, 1000, STORE_ROOM_RESERVE));
    assert_int_equal(commit_bytes(fixture->writer, last + 1, DISK_BYTES, STORE_ROOM_RESERVE),
                     STATUS_DISK_RESERVE);
    store_disk(fixture->store, &disk);
    assert_true(disk.held_bytes >= disk.line_bytes / 2 && disk.held_bytes < disk.line_bytes);
    assert_int_equal(commit_bytes(fixture->writer, last + 1, DISK_BYTES, STORE_ROOM_LAST),
                     STATUS_STORE_UNAVAILABLE);
    assert_int_equal(store_check_room(fixture->writer), STORE_ROOM_LAST);
    put_revocation(fixture->writer);
    limit_files(RLIM_INFINITY);
    assert_log(fixture->reader, last);
}

static void a_commit_larger_than_the_room_is_refused_whole(void **state) {
    struct fixture *fixture = *state;
    limit_files(DISK_BYTES);
    reserve(fixture, RESERVE_BYTES);
    assert_ok(commit_bytes(fixture->writer, 1, PAYLOAD_BYTES, STORE_ROOM_FREE));
    assert_int_equal(commit_bytes(fixture->writer, 2, DISK_BYTES - RESERVE_BYTES, STORE_ROOM_FREE),
                     STATUS_DISK_RESERVE);
    assert_log(fixture->reader, 1);
    limit_files(RLIM_INFINITY);
    reserve(fixture, RESERVE_BYTES);
    assert_ok(commit_bytes(fixture->writer, 2, DISK_BYTES - RESERVE_BYTES, STORE_ROOM_FREE));
    assert_log(fixture->reader, 2);
}

static void a_full_disk_without_a_reserve_is_an_unavailable_store(void **state) {
    struct fixture *fixture = *state;
    struct store_disk disk;
    limit_files(8192);
    assert_int_equal(commit_bytes(fixture->writer, 1, PAYLOAD_BYTES, STORE_ROOM_FREE),
                     STATUS_STORE_UNAVAILABLE);
    assert_int_equal(store_session_reason(fixture->writer), REASON_STORE_FULL);
    assert_int_equal(store_check_room(fixture->writer), STORE_ROOM_FREE);
    store_disk(fixture->store, &disk);
    assert_int_equal(disk.line_bytes, 0);
    limit_files(RLIM_INFINITY);
    assert_ok(commit_bytes(fixture->writer, 1, PAYLOAD_BYTES, STORE_ROOM_FREE));
}

static void the_file_is_filled_up_and_given_back(void **state) {
    struct fixture *fixture = *state;
    struct stat found;
    struct store_disk disk;
    char path[256];
    snprintf(path, sizeof(path), "%s/khala.reserve", fixture->place);
    assert_int_not_equal(stat(path, &found), 0);
    reserve(fixture, RESERVE_BYTES);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, RESERVE_BYTES / 2);
    assert_true(found.st_blocks * 512 >= RESERVE_BYTES / 2);
    assert_int_equal(found.st_mode & 07777, 0600);
    /* A process that was killed may leave any part of it. */
    assert_int_equal(truncate(path, 4096), 0);
    reserve(fixture, RESERVE_BYTES);
    store_disk(fixture->store, &disk);
    assert_int_equal(disk.held_bytes, RESERVE_BYTES / 2);
    reserve(fixture, 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, 0);
}

/* A process that starts while the disk is full finds the file of the one before, and keeps it. */
static void a_restart_on_a_full_disk_keeps_the_file(void **state) {
    struct fixture *fixture = *state;
    struct store_disk disk;
    limit_files(DISK_BYTES);
    reserve(fixture, RESERVE_BYTES);
    uint64_t last = fill(fixture);
    store_disk(fixture->store, &disk);
    uint64_t held_bytes = disk.held_bytes;
    assert_int_equal(held_bytes, store_reserve_half(RESERVE_BYTES, DISK_BYTES));
    fixture_reopen(fixture);
    for (int i = 0; i < 3; i++) {
        reserve(fixture, RESERVE_BYTES);
        store_disk(fixture->store, &disk);
        assert_int_equal(disk.held_bytes, held_bytes);
    }
    limit_files(RLIM_INFINITY);
    assert_log(fixture->reader, last);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_stop_before_the_end_and_other_work_goes_on),
        cmocka_unit_test(a_second_level_leaves_half_of_the_file),
        cmocka_unit_test(a_commit_larger_than_the_room_is_refused_whole),
        cmocka_unit_test(a_full_disk_without_a_reserve_is_an_unavailable_store),
        cmocka_unit_test(the_file_is_filled_up_and_given_back),
        cmocka_unit_test(a_restart_on_a_full_disk_keeps_the_file),
    };
    /* A write past the limit is to fail, not to kill. */
    signal(SIGXFSZ, SIG_IGN);
    return CONTRACT_RUN_ONLY("reserve", "sqlite", tests);
}
