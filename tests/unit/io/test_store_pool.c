#include "io/store_pool.h"

#include <stdatomic.h>
#include <unistd.h>

#include "test.h"

#define TASKS 1000

static char folder[] = "/tmp/khala-readers-XXXXXX";
static struct store *store;

struct counted {
    struct store_task task;
    atomic_int *runs;
    struct store_session *session;
    enum status status;
};

static void count_run(struct store_task *task, struct store_session *session) {
    struct counted *counted = (struct counted *)task;
    struct store_state state;
    counted->session = session;
    counted->status = store_read_state(session, &state);
    atomic_fetch_add(counted->runs, 1);
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
    bool seen_two = false;
    assert_ok(store_pool_start(&readers, store, 3, TASKS));
    for (size_t i = 0; i < TASKS; i++) {
        tasks[i] = (struct counted){.task = {.run = count_run}, .runs = &runs};
        assert_ok(store_pool_post(readers, &tasks[i].task));
    }
    /* All posted tasks have run when the pool has stopped. */
    store_pool_stop(readers);
    assert_int_equal(runs, TASKS);
    for (size_t i = 0; i < TASKS; i++) {
        assert_ok(tasks[i].status);
        seen_two = seen_two || tasks[i].session != tasks[0].session;
    }
    assert_true(seen_two);
}

struct held {
    struct store_task task;
    pthread_mutex_t *gate;
};

static void wait_at_gate(struct store_task *task, struct store_session *session) {
    (void)session;
    struct held *held = (struct held *)task;
    pthread_mutex_lock(held->gate);
    pthread_mutex_unlock(held->gate);
}

static void tasks_beyond_the_maximum_are_refused(void **state) {
    (void)state;
    struct store_pool *readers;
    struct held tasks[8];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    size_t accepted = 0;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&gate);
    assert_ok(store_pool_start(&readers, store, 1, 2));
    for (size_t i = 0; i < 8 && status == STATUS_OK; i++) {
        tasks[i] = (struct held){{.run = wait_at_gate}, &gate};
        status = store_pool_post(readers, &tasks[i].task);
        accepted += status == STATUS_OK;
    }
    assert_int_equal(status, STATUS_LIMIT_REACHED);
    assert_in_range(accepted, 2, 4);
    pthread_mutex_unlock(&gate);
    store_pool_stop(readers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once_on_a_session_of_its_own_thread),
        cmocka_unit_test(tasks_beyond_the_maximum_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
