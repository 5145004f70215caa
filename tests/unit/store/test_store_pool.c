#include "store/store_pool.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"

#define TASKS 1000

static char folder[] = "/tmp/khala-readers-XXXXXX";
static struct store *store;
static const struct store_client some_user = {SLICE("user:any"), false};
static const struct store_client greedy = {SLICE("user:greedy"), true};
static const struct store_client modest = {SLICE("user:modest"), true};

struct counted {
    struct store_task task;
    atomic_int *runs;
    pthread_barrier_t *meeting; /* where the task waits for another; NULL: it does not */
    struct store_session *session;
    enum status status;
};

static bool count_run(struct store_task *task, struct store_session *session) {
    struct counted *counted = (struct counted *)task;
    struct store_state state;
    counted->session = session;
    counted->status = store_read_state(session, &state);
    if (counted->meeting)
        pthread_barrier_wait(counted->meeting);
    atomic_fetch_add(counted->runs, 1);
    return false;
}

static int setup(void **state) {
    struct store_message message;
    (void)state;
    return mkdtemp(folder) && store_open(&store, folder, true, &message) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
    char command[64];
    (void)state;
    store_close(store);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void every_task_runs_once_on_a_session_of_its_own_thread(void **state) {
    (void)state;
    static struct counted tasks[TASKS];
    struct store_pool *readers;
    atomic_int runs = 0;
    pthread_barrier_t meeting;
    assert_int_equal(pthread_barrier_init(&meeting, NULL, 2), 0);
    assert_ok(store_pool_start(&readers, store, &(struct store_pool_options){3, TASKS, TASKS}));
    for (size_t i = 0; i < TASKS; i++) {
        tasks[i] = (struct counted){
            .task = {.run = count_run}, .runs = &runs, .meeting = i < 2 ? &meeting : NULL};
        assert_ok(store_pool_post(readers, &tasks[i].task, &some_user));
    }
    /* All posted tasks have run when the pool has stopped. */
    store_pool_stop(readers);
    assert_int_equal(runs, TASKS);
    for (size_t i = 0; i < TASKS; i++)
        assert_ok(tasks[i].status);
    /* They ran at the same time. */
    assert_ptr_not_equal(tasks[0].session, tasks[1].session);
    pthread_barrier_destroy(&meeting);
}

struct held {
    struct store_task task;
    pthread_mutex_t *gate;
};

static bool wait_at_gate(struct store_task *task, struct store_session *session) {
    (void)session;
    struct held *held = (struct held *)task;
    pthread_mutex_lock(held->gate);
    pthread_mutex_unlock(held->gate);
    return false;
}

static void tasks_beyond_the_maximum_are_refused(void **state) {
    (void)state;
    struct store_pool *readers;
    struct held tasks[8];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    size_t accepted = 0;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&gate);
    assert_ok(store_pool_start(&readers, store, &(struct store_pool_options){1, 2, 2}));
    for (size_t i = 0; i < 8 && status == STATUS_OK; i++) {
        tasks[i] = (struct held){{.run = wait_at_gate}, &gate};
        status = store_pool_post(readers, &tasks[i].task, &some_user);
        accepted += status == STATUS_OK;
    }
    assert_int_equal(status, STATUS_LIMIT_REACHED);
    assert_in_range(accepted, 2, 4);
    pthread_mutex_unlock(&gate);
    store_pool_stop(readers);
}

/* A task that says that it runs, and then waits for the gate. */
struct gated {
    struct store_task task;
    sem_t *gate;
    sem_t *begun;
    atomic_int *order; /* counts the tasks that have begun */
    int turn;          /* of the last slice */
    int slices;
    enum status status;
};

static bool gated_run(struct store_task *task, struct store_session *session) {
    struct gated *gated = (struct gated *)task;
    struct store_state state;
    gated->turn = atomic_fetch_add(gated->order, 1);
    sem_post(gated->begun);
    sem_wait(gated->gate);
    gated->status = store_read_state(session, &state);
    return --gated->slices > 0;
}

struct stage {
    struct store_pool *pool;
    sem_t gate;
    sem_t begun;
    atomic_int order;
    struct gated tasks[8];
};

static void stage_open(struct stage *stage, size_t threads, size_t principal_tasks_max) {
    memset(stage, 0, sizeof(*stage));
    sem_init(&stage->gate, 0, 0);
    sem_init(&stage->begun, 0, 0);
    assert_ok(store_pool_start(&stage->pool, store,
                               &(struct store_pool_options){threads, 100, principal_tasks_max}));
}

static enum status stage_post(struct stage *stage, size_t index,
                              const struct store_client *client) {
    stage->tasks[index] = (struct gated){
        {.run = gated_run}, &stage->gate, &stage->begun, &stage->order, -1, 1, STATUS_OK};
    return store_pool_post(stage->pool, &stage->tasks[index].task, client);
}

static void stage_close(struct stage *stage) {
    for (size_t i = 0; i < 8; i++)
        sem_post(&stage->gate);
    store_pool_stop(stage->pool);
    sem_destroy(&stage->gate);
    sem_destroy(&stage->begun);
}

static void a_principal_leaves_a_thread_to_the_others(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, 2, 10);
    for (size_t i = 0; i < 4; i++)
        assert_ok(stage_post(&stage, i, &greedy));
    sem_wait(&stage.begun);
    /* The other thread is free, although tasks of the first principal wait. */
    assert_ok(stage_post(&stage, 4, &modest));
    sem_wait(&stage.begun);
    assert_int_equal(stage.tasks[4].turn, 1);
    assert_int_equal(store_pool_waiting(stage.pool), 5);
    stage_close(&stage);
    for (size_t i = 0; i < 5; i++)
        assert_true(stage.tasks[i].turn >= 0);
}

static void principals_take_turns(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, 1, 10);
    for (size_t i = 0; i < 4; i++)
        assert_ok(stage_post(&stage, i, &greedy));
    sem_wait(&stage.begun);
    assert_ok(stage_post(&stage, 4, &modest));
    stage_close(&stage);
    /* The first task of greedy ran already, and at most one more was served before. */
    assert_in_range(stage.tasks[4].turn, 1, 2);
}

static void the_waiting_tasks_of_a_principal_are_bounded(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, 1, 2);
    assert_ok(stage_post(&stage, 0, &greedy));
    sem_wait(&stage.begun);
    assert_ok(stage_post(&stage, 1, &greedy));
    assert_ok(stage_post(&stage, 2, &greedy));
    assert_int_equal(stage_post(&stage, 3, &greedy), STATUS_RATE_LIMITED);
    assert_ok(stage_post(&stage, 4, &modest));
    /* Work that is bounded by its connections is accepted. */
    assert_ok(stage_post(&stage, 5, &(struct store_client){greedy.key, false}));
    stage_close(&stage);
    assert_int_equal(stage.tasks[3].turn, -1);
}

static void a_cancelled_task_does_not_run_or_reads_nothing_more(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, 1, 10);
    assert_ok(stage_post(&stage, 0, &greedy));
    sem_wait(&stage.begun);
    assert_ok(stage_post(&stage, 1, &greedy));
    assert_ok(stage_post(&stage, 2, &greedy));
    assert_true(store_pool_cancel(stage.pool, &stage.tasks[1].task));
    assert_false(store_pool_cancel(stage.pool, &stage.tasks[0].task));
    stage_close(&stage);
    assert_int_equal(stage.tasks[0].status, STATUS_STORE_UNAVAILABLE);
    assert_int_equal(stage.tasks[1].turn, -1);
    assert_ok(stage.tasks[2].status);
}

static void other_principals_run_between_two_slices(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, 1, 10);
    assert_ok(stage_post(&stage, 0, &greedy));
    stage.tasks[0].slices = 4;
    sem_wait(&stage.begun);
    assert_ok(stage_post(&stage, 1, &modest));
    stage_close(&stage);
    assert_in_range(stage.tasks[1].turn, 1, 2);
    assert_int_equal(stage.tasks[0].turn, 4);
    assert_int_equal(stage.tasks[0].slices, 0);
}

static void a_cancelled_task_has_no_further_slice(void **state) {
    (void)state;
    struct stage stage;
    stage_open(&stage, 1, 10);
    assert_ok(stage_post(&stage, 0, &greedy));
    stage.tasks[0].slices = 3;
    sem_wait(&stage.begun);
    assert_ok(stage_post(&stage, 1, &modest));
    sem_post(&stage.gate);
    sem_wait(&stage.begun);
    /* The other task runs, so the first one waits for its second slice. */
    assert_int_equal(stage.tasks[1].turn, 1);
    assert_true(store_pool_cancel(stage.pool, &stage.tasks[0].task));
    stage_close(&stage);
    assert_int_equal(stage.tasks[0].turn, 0);
    assert_int_equal(stage.tasks[0].slices, 2);
}

#define LONG_NS (100 * (uint64_t)CLOCK_NS_PER_MS)

/* A task that takes a long time. */
struct lengthy {
    struct store_task task;
    uint64_t ended_ns;
};

static bool lengthy_run(struct store_task *task, struct store_session *session) {
    struct lengthy *lengthy = (struct lengthy *)task;
    uint64_t begun_ns = clock_now().mono_ns;
    (void)session;
    while ((lengthy->ended_ns = clock_now().mono_ns) - begun_ns < LONG_NS)
        ;
    return false;
}

/* Answers whether time had paid the debt before the next task of the principal came. */
static bool run_after_a_long_task(struct stage *stage) {
    struct lengthy lengthy = {{.run = lengthy_run}, 0};
    stage_open(stage, 1, 10);
    assert_ok(store_pool_post(stage->pool, &lengthy.task, &greedy));
    assert_ok(stage_post(stage, 0, &some_user));
    sem_wait(&stage->begun);
    assert_ok(stage_post(stage, 1, &greedy));
    uint64_t waited_ns = clock_now().mono_ns - lengthy.ended_ns;
    for (size_t i = 2; i < 5; i++)
        assert_ok(stage_post(stage, i, &modest));
    stage_close(stage);
    return waited_ns > LONG_NS / 2;
}

/* The tasks of this principal never wait together, so its queue is empty between them. */
static void a_principal_pays_for_a_long_task_after_its_queue_was_empty(void **state) {
    (void)state;
    struct stage stage;
    while (run_after_a_long_task(&stage))
        ;
    assert_int_equal(stage.tasks[1].turn, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once_on_a_session_of_its_own_thread),
        cmocka_unit_test(tasks_beyond_the_maximum_are_refused),
        cmocka_unit_test(a_principal_leaves_a_thread_to_the_others),
        cmocka_unit_test(principals_take_turns),
        cmocka_unit_test(the_waiting_tasks_of_a_principal_are_bounded),
        cmocka_unit_test(a_cancelled_task_does_not_run_or_reads_nothing_more),
        cmocka_unit_test(other_principals_run_between_two_slices),
        cmocka_unit_test(a_cancelled_task_has_no_further_slice),
        cmocka_unit_test(a_principal_pays_for_a_long_task_after_its_queue_was_empty),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
