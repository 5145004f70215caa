#include "net/loop.h"

#include "test.h"

static struct io_loop loop;
static struct io_backoff backoff;
static uv_sem_t ended;
static int drains;
static int closes;

static void accept_nothing(struct io_loop *io, enum listener_kind kind, int fd,
                           const struct sockaddr *peer) {
    (void)io;
    (void)kind;
    (void)fd;
    (void)peer;
}

static void count_drain(struct io_loop *io) {
    (void)io;
    drains++;
}

static void count_close(struct io_loop *io) {
    (void)io;
    closes++;
}

static bool never_busy(struct io_loop *io) {
    (void)io;
    return false;
}

static void post_ended(struct io_loop *io) {
    (void)io;
    uv_sem_post(&ended);
}

static const struct io_loop_hooks hooks = {.accept = accept_nothing,
                                           .drain = count_drain,
                                           .close_all = count_close,
                                           .before_sleep = never_busy,
                                           .ended = post_ended};

static int start_loop(void **state) {
    (void)state;
    memset(&loop, 0, sizeof(loop));
    drains = closes = 0;
    uv_sem_init(&ended, 0);
    assert_ok(io_loop_open(
        &loop, &(struct io_loop_options){.hooks = &hooks, .backoff = &backoff, .fds = {-1, -1}}));
    assert_ok(io_loop_start(&loop));
    return 0;
}

static int join_loop(void **state) {
    (void)state;
    io_loop_end_post(&loop);
    uv_sem_wait(&ended);
    uv_sem_destroy(&ended);
    io_loop_join(&loop);
    assert_int_equal(drains, 1);
    assert_true(closes <= 1);
    return 0;
}

struct note {
    struct loop_task task;
    uv_sem_t done;
    uv_thread_t thread;
    size_t turn;
    struct note *posts; /* a note that this one posts while it runs */
    bool drains;
    bool marks_wake; /* as if the next turn had reported the wake-up already */
};

static size_t turns;

static void run_note(struct loop_task *task) {
    struct note *note = (struct note *)task;
    note->thread = uv_thread_self();
    note->turn = ++turns;
    if (note->posts)
        assert_ok(io_loop_post(&loop, &note->posts->task));
    if (note->marks_wake)
        loop.wake.turn = (uint16_t)(loop.sockets.turn + 1);
    if (note->drains)
        loop.drain.run(&loop.drain);
    uv_sem_post(&note->done);
}

static void note_init(struct note *note) {
    *note = (struct note){.task = {.run = run_note}};
    uv_sem_init(&note->done, 0);
}

static void note_wait(struct note *note) {
    uv_sem_wait(&note->done);
    uv_sem_destroy(&note->done);
}

static void tasks_run_on_the_loops_thread_in_order(void **state) {
    (void)state;
    struct note notes[3];
    turns = 0;
    for (int i = 0; i < 3; i++) {
        note_init(&notes[i]);
        assert_ok(io_loop_post(&loop, &notes[i].task));
    }
    for (int i = 0; i < 3; i++) {
        note_wait(&notes[i]);
        assert_true(uv_thread_equal(&notes[i].thread, &loop.thread));
        assert_int_equal(notes[i].turn, i + 1);
    }
}

/* The kernel reports a wake-up once. One that comes while many sockets are ready is reported in the
 * same turn as the one before. */
static void a_second_wake_up_of_a_turn_is_not_left_out(void **state) {
    (void)state;
    struct note first, second;
    note_init(&first);
    note_init(&second);
    first.marks_wake = true;
    assert_ok(io_loop_post(&loop, &first.task));
    note_wait(&first);
    assert_ok(io_loop_post(&loop, &second.task));
    note_wait(&second);
}

static void a_task_posted_while_the_loop_ends_still_runs(void **state) {
    (void)state;
    struct note last;
    struct note first;
    note_init(&last);
    note_init(&first);
    first.posts = &last;
    first.drains = true;
    assert_ok(io_loop_post(&loop, &first.task));
    note_wait(&first);
    note_wait(&last);
    assert_int_equal(io_loop_post(&loop, &last.task), STATUS_SHUTTING_DOWN);
}

static void drain_and_end_may_be_posted_in_any_order_and_repeatedly(void **state) {
    (void)state;
    io_loop_drain_post(&loop);
    io_loop_drain_post(&loop);
    io_loop_end_post(&loop);
    io_loop_drain_post(&loop);
}

static void a_loop_may_end_without_a_drain(void **state) {
    (void)state;
    io_loop_end_post(&loop);
    io_loop_end_post(&loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tasks_run_on_the_loops_thread_in_order, start_loop,
                                        join_loop),
        cmocka_unit_test_setup_teardown(a_second_wake_up_of_a_turn_is_not_left_out, start_loop,
                                        join_loop),
        cmocka_unit_test_setup_teardown(a_task_posted_while_the_loop_ends_still_runs, start_loop,
                                        join_loop),
        cmocka_unit_test_setup_teardown(drain_and_end_may_be_posted_in_any_order_and_repeatedly,
                                        start_loop, join_loop),
        cmocka_unit_test_setup_teardown(a_loop_may_end_without_a_drain, start_loop, join_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
