/* Calls over a real loop, store pool and writer. */
#include "authority/call.h"

#include "authority/writer_fixture.h"

struct world {
    struct fixture *store;
    struct io_loop loop;
    struct io_backoff backoff;
    uv_sem_t ended;
};

static struct world world;
static const struct store_client some_user = {SLICE("some_user"), false};

static void accept_nothing(struct io_loop *io, enum listener_kind kind, int fd,
                           const struct sockaddr *peer) {
    (void)io;
    (void)kind;
    (void)fd;
    (void)peer;
}

static void do_nothing(struct io_loop *io) {
    (void)io;
}

static bool never_busy(struct io_loop *io) {
    (void)io;
    return false;
}

static void post_ended(struct io_loop *io) {
    (void)io;
    uv_sem_post(&world.ended);
}

static const struct io_loop_hooks hooks = {.accept = accept_nothing,
                                           .drain = do_nothing,
                                           .close_all = do_nothing,
                                           .before_sleep = never_busy,
                                           .ended = post_ended};

static int open_world(void **state) {
    (void)state;
    memset(&world, 0, sizeof(world));
    world.store = fixture_new();
    fixture_open(world.store);
    uv_sem_init(&world.ended, 0);
    assert_ok(io_loop_open(
        &world.loop,
        &(struct io_loop_options){.hooks = &hooks, .backoff = &world.backoff, .fds = {-1, -1}}));
    assert_ok(io_loop_start(&world.loop));
    return 0;
}

static int close_world(void **state) {
    (void)state;
    io_loop_end_post(&world.loop);
    uv_sem_wait(&world.ended);
    uv_sem_destroy(&world.ended);
    io_loop_join(&world.loop);
    assert_int_equal(world.loop.hold_count, 0);
    fixture_close(world.store);
    fixture_free(world.store);
    return 0;
}

struct errand {
    struct loop_task start; /* the call is made on the loop's thread */
    struct call call;
    struct store_pool *pool;
    struct writer *writer;
    bool is_begun_only;
    uv_thread_t run_thread;
    uv_thread_t done_thread;
    bool has_run;
    bool is_started; /* the function that made the call has returned */
    bool was_done_inside;
    uv_sem_t begun;
    uv_sem_t done;
};

static void errand_run(struct call *call, struct store_session *store) {
    struct errand *errand = container_of(call, struct errand, call);
    struct store_state state;
    errand->has_run = true;
    errand->run_thread = uv_thread_self();
    call->status = store_read_state(store, &state);
}

static void errand_done(struct call *call) {
    struct errand *errand = container_of(call, struct errand, call);
    errand->done_thread = uv_thread_self();
    errand->was_done_inside = !errand->is_started;
    uv_sem_post(&errand->done);
}

static void errand_start(struct loop_task *task) {
    struct errand *errand = container_of(task, struct errand, start);
    errand->call.run = errand_run;
    errand->call.done = errand_done;
    if (errand->is_begun_only)
        call_begin(&errand->call, &world.loop);
    else if (errand->pool)
        call_store(&errand->call, &world.loop, errand->pool, &some_user);
    else
        call_writer(&errand->call, &world.loop, errand->writer);
    errand->is_started = true;
    uv_sem_post(&errand->begun);
}

static void errand_post(struct errand *errand) {
    errand->start.run = errand_start;
    uv_sem_init(&errand->begun, 0);
    uv_sem_init(&errand->done, 0);
    assert_ok(io_loop_post(&world.loop, &errand->start));
    uv_sem_wait(&errand->begun);
}

static void errand_wait(struct errand *errand) {
    uv_sem_wait(&errand->done);
    uv_sem_destroy(&errand->begun);
    uv_sem_destroy(&errand->done);
    assert_true(uv_thread_equal(&errand->done_thread, &world.loop.thread));
    assert_false(errand->was_done_inside);
}

static void a_call_runs_on_the_pool_and_is_done_on_its_loop(void **state) {
    (void)state;
    struct errand errand = {0};
    assert_ok(store_pool_start(&errand.pool, world.store->store,
                               &(struct store_pool_options){2, 10, 10}));
    errand_post(&errand);
    errand_wait(&errand);
    assert_true(errand.has_run);
    assert_false(uv_thread_equal(&errand.run_thread, &world.loop.thread));
    assert_ok(errand.call.status);
    store_pool_stop(errand.pool);
}

static void a_call_runs_on_the_writer_and_is_done_on_its_loop(void **state) {
    (void)state;
    struct errand errand = {.writer = world.store->writer};
    errand_post(&errand);
    errand_wait(&errand);
    assert_true(errand.has_run);
    assert_false(uv_thread_equal(&errand.run_thread, &world.loop.thread));
    assert_ok(errand.call.status);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static uv_sem_t at_gate;

static bool wait_at_gate(struct store_task *task, struct store_session *store) {
    (void)task;
    (void)store;
    uv_sem_post(&at_gate);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return false;
}

/* One task runs and waits at the gate. Meanwhile the only thread takes no other task, so the next
 * task fills the mailbox. */
static void fill_pool(struct store_pool *pool, struct store_task tasks[2]) {
    tasks[0] = tasks[1] = (struct store_task){.run = wait_at_gate};
    assert_ok(store_pool_post(pool, &tasks[0], &some_user));
    uv_sem_wait(&at_gate);
    assert_ok(store_pool_post(pool, &tasks[1], &some_user));
}

static void a_call_that_the_pool_refuses_is_done_with_the_refusal_and_never_runs(void **state) {
    (void)state;
    struct errand errand = {0};
    struct store_task tasks[2];
    uv_sem_init(&at_gate, 0);
    pthread_mutex_lock(&gate);
    assert_ok(
        store_pool_start(&errand.pool, world.store->store, &(struct store_pool_options){1, 1, 1}));
    fill_pool(errand.pool, tasks);
    errand_post(&errand);
    errand_wait(&errand);
    assert_false(errand.has_run);
    assert_int_equal(errand.call.status, STATUS_LIMIT_REACHED);
    pthread_mutex_unlock(&gate);
    store_pool_stop(errand.pool);
    uv_sem_destroy(&at_gate);
}

static void cancel(struct loop_task *task) {
    struct errand *errand = container_of(task, struct errand, start);
    call_cancel(&errand->call);
    call_cancel(&errand->call); /* does nothing more */
}

static void a_call_that_is_cancelled_before_it_runs_is_done_and_never_runs(void **state) {
    (void)state;
    struct errand errand = {0};
    struct store_task tasks[2];
    uv_sem_init(&at_gate, 0);
    pthread_mutex_lock(&gate);
    assert_ok(
        store_pool_start(&errand.pool, world.store->store, &(struct store_pool_options){1, 3, 3}));
    fill_pool(errand.pool, tasks);
    errand_post(&errand);
    errand.start.run = cancel;
    assert_ok(io_loop_post(&world.loop, &errand.start));
    errand_wait(&errand);
    assert_false(errand.has_run);
    assert_int_equal(errand.call.status, STATUS_STORE_UNAVAILABLE);
    pthread_mutex_unlock(&gate);
    store_pool_stop(errand.pool);
    uv_sem_destroy(&at_gate);
}

static void a_loop_that_ends_waits_for_its_calls(void **state) {
    (void)state;
    struct errand errand = {.is_begun_only = true};
    errand_post(&errand);
    io_loop_end_post(&world.loop);
    assert_int_not_equal(uv_sem_trywait(&world.ended), 0);
    call_return_post(&errand.call);
    errand_wait(&errand);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_call_runs_on_the_pool_and_is_done_on_its_loop, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_call_runs_on_the_writer_and_is_done_on_its_loop,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(
            a_call_that_the_pool_refuses_is_done_with_the_refusal_and_never_runs, open_world,
            close_world),
        cmocka_unit_test_setup_teardown(
            a_call_that_is_cancelled_before_it_runs_is_done_and_never_runs, open_world,
            close_world),
        cmocka_unit_test_setup_teardown(a_loop_that_ends_waits_for_its_calls, open_world,
                                        close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
