#include "io/loop.h"

#include "io/listen.h"
#include "server/server.h"
#include "test.h"

static struct server server;
static struct io_loop loop;

static const char *environment(const char *name) {
    return strcmp(name, "RUNTIME_BIND_ADDR") == 0 ? "127.0.0.1:0" : NULL;
}

static void on_loop_ended(uv_async_t *handle) {
    uv_close((uv_handle_t *)handle, NULL);
}

static int start_loop(void **state) {
    (void)state;
    struct config_error error;
    int fd;
    memset(&server, 0, sizeof(server));
    memset(&loop, 0, sizeof(loop));
    assert_ok(config_load(&server.config, environment, NULL, 0, &error));
    assert_ok(hub_open(&server.hub, &(struct hub_options){{16, 65536}, 1u << 20}));
    server.loop_count = 1;
    server.loops_running = 1;
    uv_loop_init(&server.control);
    uv_async_init(&server.control, &server.loop_ended, on_loop_ended);
    assert_ok(listen_open(&server.config.bind, &fd, 1, &server.port));
    assert_ok(io_loop_open(&loop, &server, fd, -1));
    assert_ok(io_loop_start(&loop));
    return 0;
}

static int join_loop(void **state) {
    (void)state;
    io_loop_end_post(&loop);
    uv_run(&server.control, UV_RUN_DEFAULT);
    io_loop_join(&loop);
    hub_close(server.hub);
    assert_int_equal(server.loops_running, 0);
    return uv_loop_close(&server.control);
}

struct note {
    struct loop_task task;
    uv_sem_t done;
    uv_thread_t thread;
    size_t turn;
    struct note *posts; /* another, from inside */
    bool drains;
};

static size_t turns;

static void run_note(struct loop_task *task) {
    struct note *note = (struct note *)task;
    note->thread = uv_thread_self();
    note->turn = ++turns;
    if (note->posts)
        assert_ok(io_loop_post(&loop, &note->posts->task));
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

static void tasks_run_on_the_loops_thread_in_their_order(void **state) {
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

static void draining_and_ending_may_be_asked_for_in_any_order_and_again(void **state) {
    (void)state;
    io_loop_drain_post(&loop);
    io_loop_drain_post(&loop);
    io_loop_end_post(&loop);
    io_loop_drain_post(&loop);
}

static void ending_needs_no_draining_before(void **state) {
    (void)state;
    io_loop_end_post(&loop);
    io_loop_end_post(&loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tasks_run_on_the_loops_thread_in_their_order, start_loop,
                                        join_loop),
        cmocka_unit_test_setup_teardown(a_task_posted_while_the_loop_ends_still_runs, start_loop,
                                        join_loop),
        cmocka_unit_test_setup_teardown(draining_and_ending_may_be_asked_for_in_any_order_and_again,
                                        start_loop, join_loop),
        cmocka_unit_test_setup_teardown(ending_needs_no_draining_before, start_loop, join_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
