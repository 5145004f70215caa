/* What a node that follows reads of the log, and what it announces. */
#include "backend_postgres.h"
#include "cluster/follow.h"
#include "rows.h"

struct watcher {
    bool is_watched;
    uint64_t announced;
    uint64_t first_log_id;
};

static bool is_watched(void *user) {
    const struct watcher *watcher = user;
    return watcher->is_watched;
}

static void on_commit(void *user, const struct store_batch *batch,
                      const struct store_entity *states) {
    struct watcher *watcher = user;
    (void)states;
    if (watcher->announced == 0)
        watcher->first_log_id = batch->events[0].log_id;
    watcher->announced += batch->event_count;
}

static void append(struct fixture *fixture, uint64_t first, uint64_t last) {
    for (uint64_t log_id = first; log_id <= last; log_id++) {
        struct store_event event = rows_event(log_id, 1, log_id);
        assert_ok(store_commit(fixture->writer,
                               &(struct store_batch){.events = &event, .event_count = 1}));
    }
}

static void a_node_without_watchers_reads_how_far_the_log_is_and_no_event(void **state) {
    struct fixture *fixture = *state;
    struct watcher watcher = {0};
    struct follow follow;
    struct role role;
    struct uuid last = rows_cursor(5);
    const struct follow_hooks hooks = {
        .user = &watcher, .commit = on_commit, .is_watched = is_watched};
    role_init(&role, WRITER_ROLE_ELSEWHERE, true);
    assert_ok(follow_open(&follow, fixture->store, &role, &hooks, 1000));
    assert_ok(follow_begin(&follow));
    append(fixture, 1, 5);
    uint64_t before = store_session_rows_read(follow.side);
    assert_ok(follow_pass(&follow, follow.side));
    assert_int_equal(store_session_rows_read(follow.side) - before, 1);
    assert_int_equal(watcher.announced, 0);
    /* The row of the node confirms this position. */
    assert_int_equal(follow.log_id, 5);
    assert_int_equal(uuid_compare(&follow.cursor, &last), 0);

    watcher.is_watched = true;
    append(fixture, 6, 7);
    assert_ok(follow_pass(&follow, follow.side));
    assert_int_equal(watcher.announced, 2);
    assert_int_equal(watcher.first_log_id, 6);
    follow_close(&follow);
}

static unsigned beats;

static uint64_t on_beat(void *user, struct store_session *side, const struct follow_beat *beat) {
    (void)user;
    (void)side;
    beats += !beat->is_ending;
    return 1000000;
}

static void only_a_beat_that_was_asked_for_or_is_due_runs(void **state) {
    struct fixture *fixture = *state;
    struct follow follow;
    struct role role;
    const struct follow_hooks hooks = {.beat = on_beat};
    beats = 0;
    role_init(&role, WRITER_ROLE_ELSEWHERE, true);
    assert_ok(follow_open(&follow, fixture->store, &role, &hooks, 1000000));
    assert_ok(follow_begin(&follow));
    (void)follow_turn(&follow);
    assert_int_equal(beats, 1);
    append(fixture, 1, 1);
    follow_hint(&follow);
    (void)follow_turn(&follow);
    assert_int_equal(follow.log_id, 1);
    assert_int_equal(beats, 1);
    append(fixture, 2, 2);
    follow_ask_beat(&follow);
    (void)follow_turn(&follow);
    assert_int_equal(beats, 2);
    /* The row tells how far the node is now. */
    assert_int_equal(follow.log_id, 2);
    /* Another answer of the same kind changes nothing; becoming the writer does. */
    role_set(&role, WRITER_ROLE_LOST);
    (void)follow_turn(&follow);
    assert_int_equal(beats, 2);
    role_set(&role, WRITER_ROLE_BEHIND);
    (void)follow_turn(&follow);
    assert_int_equal(beats, 3);
    role_set(&role, WRITER_ROLE_HELD);
    (void)follow_turn(&follow);
    assert_int_equal(beats, 3);
    follow_close(&follow);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_without_watchers_reads_how_far_the_log_is_and_no_event),
        cmocka_unit_test(only_a_beat_that_was_asked_for_or_is_due_runs),
    };
    return CONTRACT_RUN_ONLY("postgres: following", "postgres", tests);
}
