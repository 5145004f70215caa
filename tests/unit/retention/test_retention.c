/* The retention job: every row of the policy table, steps of the clock, a full disk, concurrent
 * appends, pins, and runs on demand. */
#include "base/limits.h"
#include "retention/retention.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "retention/keeper.h"

#define NEVER_MS 86400000

/* ---- every row of the table ---- */

struct row {
    const char *topic;
    uint64_t retention_s; /* from the specification, not from the table */
};

static const struct row rows[] = {
    {"runtime.run_summaries", 604800},
    {"runtime.codex_worker_summaries", 259200},
    {"runtime.codex_worker_events", 86400},
    {"runtime.notifications", 43200},
    {"run:r:events", 86400},
    {"worker:w:lifecycle", 86400},
    {"fleet:user:u:workers", 86400},
    {"chat", 86400},
    {"runtime.audit", 86400},
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

/* At least one frame on every kind of topic. */
static void append_everywhere(struct keeper *keeper, bool is_first) {
    struct fixture *fixture = keeper->fixture;
    if (is_first) {
        (void)ask_ok(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r\"}");
        (void)ask_ok(fixture, APPEND_WORKER_CREATE, NULL,
                     "{\"worker_id\":\"w\",\"owner_user_id\":\"u\"}");
    }
    run_events(keeper, "r", 3);
    (void)ask_ok(fixture, APPEND_WORKER_EVENT, "w", "{\"event_type\":\"worker.log\"}");
    (void)ask_ok(fixture, APPEND_NOTIFICATION, NULL, "{\"event_type\":\"n\"}");
    (void)ask_ok(fixture, APPEND_TOPIC_EVENT, "chat", "{\"event_type\":\"said\"}");
    (void)ask_ok(fixture, APPEND_AUDIT_EVENT, NULL, "{\"event_type\":\"seen\"}");
}

static uint64_t count_events(struct keeper *keeper) {
    struct store_state state;
    assert_ok(store_read_state(keeper->reader, &state));
    return state.log_id;
}

static void assert_documents(struct keeper *keeper) {
    struct store_entity entity;
    struct store_document document;
    arena_reset(&keeper->arena);
    assert_ok(store_load_entity(keeper->reader, ENTITY_RUN, SLICE("r"), &keeper->arena, &entity));
    assert_ok(store_load_document(keeper->reader, DOCUMENT_RUN_SUMMARY, entity.ref, &keeper->arena,
                                  &document));
    assert_ok(
        store_load_entity(keeper->reader, ENTITY_WORKER, SLICE("w"), &keeper->arena, &entity));
    assert_ok(store_load_document(keeper->reader, DOCUMENT_WORKER_SUMMARY, entity.ref,
                                  &keeper->arena, &document));
}

/* A frame is kept until it is older than its row allows, to the millisecond. */
static void assert_floors(struct keeper *keeper, const uint64_t *early, const uint64_t *late,
                          uint64_t elapsed_ms) {
    retention_report_unref(run_now(keeper));
    for (size_t i = 0; i < ROW_COUNT; i++) {
        uint64_t kept_ms = rows[i].retention_s * 1000;
        uint64_t floor = 1;
        if (elapsed_ms > kept_ms)
            floor = early[i] + 1;
        if (elapsed_ms > kept_ms + 1000)
            floor = late[i] + 1;
        assert_int_equal(oldest(keeper, rows[i].topic), floor);
        assert_int_equal(head(keeper, rows[i].topic), late[i]);
    }
}

static void every_topic_keeps_its_frames_for_the_time_of_its_row(void **state) {
    (void)state;
    static const uint64_t times_s[] = {43200, 86400, 259200, 604800};
    struct keeper *keeper = keeper_open(NEVER_MS);
    uint64_t early[ROW_COUNT], late[ROW_COUNT];
    uint64_t elapsed_ms = 1000;
    append_everywhere(keeper, true);
    for (size_t i = 0; i < ROW_COUNT; i++)
        early[i] = head(keeper, rows[i].topic);
    keeper_advance(keeper, 1000);
    append_everywhere(keeper, false);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        late[i] = head(keeper, rows[i].topic);
        assert_true(late[i] > early[i] && early[i] > 0);
    }
    uint64_t events = count_events(keeper);
    for (size_t i = 0; i < sizeof(times_s) / sizeof(times_s[0]); i++) {
        static const uint64_t around_ms[] = {0, 1, 1000, 1001};
        for (size_t j = 0; j < 4; j++) {
            uint64_t at_ms = times_s[i] * 1000 + around_ms[j];
            keeper_advance(keeper, at_ms - elapsed_ms);
            elapsed_ms = at_ms;
            assert_floors(keeper, early, late, elapsed_ms);
        }
    }
    assert_int_equal(count_events(keeper), events);
    assert_documents(keeper);
    keeper_close(keeper);
}

static const struct retention_topic *listed(const struct retention_report *report,
                                            const char *topic) {
    const struct retention_list *lists[] = {&report->pruned, &report->unpruned};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < lists[i]->count; j++)
            if (slice_equal(lists[i]->topics[j].topic, slice_of(topic)))
                return &lists[i]->topics[j];
    return NULL;
}

static void a_run_reports_every_topic_and_counts_by_class(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    append_everywhere(keeper, true);
    keeper_advance(keeper, DAY_MS + 1);
    run_events(keeper, "r", 2);
    struct retention_report *report = run_now(keeper);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const struct retention_topic *topic = listed(report, rows[i].topic);
        assert_non_null(topic);
        assert_int_equal(topic->policy->retention_seconds, rows[i].retention_s);
        assert_int_equal(topic->deleted, rows[i].retention_s > 86400 ? 0 : topic->oldest_seq - 1);
        assert_int_equal(topic->head_seq, head(keeper, rows[i].topic));
    }
    const struct retention_topic *run = listed(report, "run:r:events");
    assert_int_equal(run->deleted, 4);
    assert_int_equal(run->head_seq, 6);
    assert_int_equal(retention_stale_risk(run->oldest_seq, run->head_seq), 1);
    struct retention_stats stats = retention_stats(keeper->retention);
    assert_int_equal(stats.cycles, 1);
    assert_int_equal(stats.failures, 0);
    assert_int_equal(stats.classes[TOPIC_CLASS_RUN_EVENTS].deleted, 4);
    assert_int_equal(stats.classes[TOPIC_CLASS_RUN_EVENTS].topics_pruned, 1);
    assert_int_equal(stats.classes[TOPIC_CLASS_RUN_EVENTS].stale_risk_max, 1);
    assert_int_equal(stats.classes[TOPIC_CLASS_DURABLE_SUMMARY].deleted, 0);
    assert_true(stats.classes[TOPIC_CLASS_DURABLE_SUMMARY].stale_risk_max > 0);
    assert_true(stats.classes[TOPIC_CLASS_FALLBACK].deleted > 0);
    retention_report_unref(report);
    keeper_close(keeper);
}

/* ---- beside appends ---- */

/* Each batch makes an append wait. The append of the batch before must be stored by then. */
static struct asked *waiting;
static atomic_int overtaken;

static void post_and_look(struct keeper *keeper, struct slice topic) {
    if (!slice_equal(topic, SLICE("runtime.run_summaries")))
        return;
    if (waiting) {
        pthread_mutex_lock(&waiting->lock);
        atomic_fetch_add(&overtaken, !waiting->is_answered);
        pthread_mutex_unlock(&waiting->lock);
    }
    waiting = post(keeper->fixture, APPEND_AUDIT_EVENT, NULL, "{\"event_type\":\"between\"}");
}

static void fill_summaries(struct keeper *keeper, size_t count) {
    new_run(keeper, "r");
    run_events(keeper, "r", count - 1);
    assert_int_equal(head(keeper, "runtime.run_summaries"), count);
}

static void a_waiting_append_goes_before_the_next_batch(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    new_crowd(keeper, 1500);
    keeper_advance(keeper, 7 * DAY_MS + 1);
    waiting = NULL;
    atomic_store(&overtaken, 0);
    keeper->on_pruned = post_and_look;
    assert_int_equal(run_deleted(keeper), 1500 + 1500);
    (void)wait_for(waiting);
    assert_true(retention_stats(keeper->retention).batches > 1500 / 256);
    assert_int_equal(atomic_load(&overtaken), 0);
    assert_int_equal(oldest(keeper, "runtime.run_summaries"), 1501);
    keeper_close(keeper);
}

#define CROWD 1500

static void thousands_of_topics_expire_in_batches_and_are_then_idle(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    char name[32];
    new_crowd(keeper, CROWD);
    keeper_advance(keeper, DAY_MS + 1);
    struct retention_report *report = run_now(keeper);
    struct retention_class_totals total = retention_report_total(report);
    assert_int_equal(total.topics_pruned, CROWD);
    assert_int_equal(total.deleted, CROWD);
    assert_int_equal(report->pruned.count, RETENTION_REPORT_TOPICS_MAX);
    assert_int_equal(report->omitted, CROWD - RETENTION_REPORT_TOPICS_MAX);
    retention_report_unref(report);
    assert_true(retention_stats(keeper->retention).batches >= CROWD / 256);
    for (size_t i = 0; i < CROWD; i += 97) {
        snprintf(name, sizeof(name), "run:c%zu:events", i);
        assert_int_equal(oldest(keeper, name), 2);
    }
    keeper_close(keeper);
}

static void idle_topics_are_not_inspected_before_they_are_due(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(10);
    new_crowd(keeper, 300);
    retention_report_unref(run_now(keeper));
    const struct retention_stats before = retention_stats(keeper->retention);
    while (retention_stats(keeper->retention).cycles < before.cycles + 5)
        keeper_await_pass(keeper);
    struct retention_stats after = retention_stats(keeper->retention);
    for (size_t i = 0; i < TOPIC_CLASS_COUNT; i++)
        assert_int_equal(after.classes[i].topics, before.classes[i].topics);
    /* The timer prunes all of them later. */
    keeper_advance(keeper, DAY_MS + 1);
    while (retention_stats(keeper->retention).classes[TOPIC_CLASS_RUN_EVENTS].deleted < 300)
        keeper_await_pass(keeper);
    assert_int_equal(oldest(keeper, "run:c299:events"), 2);
    /* A topic with a new frame is inspected when the frame is due. */
    (void)ask_ok(keeper->fixture, APPEND_RUN_EVENT, "c7", "{\"event_type\":\"x\"}");
    keeper_advance(keeper, DAY_MS);
    uint64_t cycles = retention_stats(keeper->retention).cycles;
    while (retention_stats(keeper->retention).cycles < cycles + 3)
        keeper_await_pass(keeper);
    assert_int_equal(oldest(keeper, "run:c7:events"), 2);
    keeper_advance(keeper, 2);
    while (oldest(keeper, "run:c7:events") < 3)
        keeper_await_pass(keeper);
    keeper_close(keeper);
}

/* ---- pins ---- */

static void a_pin_holds_the_floor_until_it_is_removed(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    struct retention_pin pin, lower, other;
    fill_summaries(keeper, 50);
    keeper_advance(keeper, 7 * DAY_MS + 1);
    retention_pin(keeper->retention, &pin, SLICE("runtime.run_summaries"), 20);
    retention_pin(keeper->retention, &lower, SLICE("runtime.run_summaries"), 10);
    retention_pin(keeper->retention, &other, SLICE("runtime.notifications"), 0);
    assert_int_equal(retention_stats(keeper->retention).pins, 3);
    assert_int_equal(run_deleted(keeper), 10 + 50);
    assert_int_equal(oldest(keeper, "runtime.run_summaries"), 11);
    assert_int_equal(run_deleted(keeper), 0);
    retention_unpin(keeper->retention, &lower);
    assert_int_equal(run_deleted(keeper), 10);
    assert_int_equal(oldest(keeper, "runtime.run_summaries"), 21);
    retention_unpin(keeper->retention, &pin);
    assert_int_equal(run_deleted(keeper), 30);
    assert_int_equal(oldest(keeper, "runtime.run_summaries"), 51);
    retention_unpin(keeper->retention, &other);
    keeper_close(keeper);
}

struct pinner {
    struct keeper *keeper;
    atomic_bool is_over;
    size_t held;
};

/* After a pin, a floor that is low enough stays low enough. */
static void *pin_and_look(void *user) {
    struct pinner *pinner = user;
    struct keeper *keeper = pinner->keeper;
    struct store_session *session;
    struct arena arena;
    struct store_topic topic;
    uint64_t seed = 3;
    arena_init(&arena, 65536);
    assert_ok(store_session_open(keeper->fixture->store, STORE_READ, &session));
    while (!atomic_load(&pinner->is_over)) {
        struct retention_pin pin;
        arena_reset(&arena);
        assert_ok(store_load_topic(session, SLICE("runtime.run_summaries"), &arena, &topic));
        uint64_t seq = topic.oldest_seq + test_random(&seed) % 4;
        retention_pin(keeper->retention, &pin, SLICE("runtime.run_summaries"), seq);
        assert_ok(store_load_topic(session, SLICE("runtime.run_summaries"), &arena, &topic));
        bool is_held = topic.oldest_seq <= seq + 1;
        uint64_t cycles = retention_stats(keeper->retention).cycles;
        while (is_held && !atomic_load(&pinner->is_over) &&
               retention_stats(keeper->retention).cycles < cycles + 2) {
            arena_reset(&arena);
            assert_ok(store_load_topic(session, SLICE("runtime.run_summaries"), &arena, &topic));
            assert_true(topic.oldest_seq <= seq + 1);
        }
        pinner->held += is_held;
        retention_unpin(keeper->retention, &pin);
    }
    store_session_close(session);
    arena_release(&arena);
    return NULL;
}

static void a_pin_below_the_floor_check_holds(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open_with(10, 1);
    struct pinner pinner = {.keeper = keeper};
    pthread_t thread;
    new_run(keeper, "r");
    assert_int_equal(pthread_create(&thread, NULL, pin_and_look, &pinner), 0);
    for (size_t i = 0; i < 200; i++) {
        run_events(keeper, "r", 1);
        keeper_advance(keeper, 100);
        if (i % 25 == 0)
            retention_report_unref(run_now(keeper));
    }
    atomic_store(&pinner.is_over, true);
    pthread_join(thread, NULL);
    assert_true(pinner.held > 0);
    assert_true(oldest(keeper, "runtime.run_summaries") > 1);
    keeper_close(keeper);
}

/* ---- the clock ---- */

static void a_clock_that_jumps_ahead_is_trusted_after_an_hour(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    fill_summaries(keeper, 10);
    assert_int_equal(run_deleted(keeper), 0);
    atomic_fetch_add(&keeper->wall_ms, 30 * DAY_MS);
    assert_int_equal(run_deleted(keeper), 0);
    keeper_advance(keeper, STEP_GUARD_HOLD_MS - 1);
    assert_int_equal(run_deleted(keeper), 0);
    assert_int_equal(retention_stats(keeper->retention).clock_steps, 1);
    keeper_advance(keeper, 1);
    assert_int_equal(run_deleted(keeper), 20);
    assert_int_equal(retention_stats(keeper->retention).clock_steps, 2);
    keeper_close(keeper);
}

static void a_clock_that_is_corrected_prunes_nothing_early(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    fill_summaries(keeper, 10);
    atomic_fetch_add(&keeper->wall_ms, 5 * HOUR_MS);
    assert_int_equal(run_deleted(keeper), 0);
    run_events(keeper, "r", 5); /* with times of the wrong clock */
    atomic_fetch_sub(&keeper->wall_ms, 5 * HOUR_MS);
    assert_int_equal(run_deleted(keeper), 0);
    run_events(keeper, "r", 5); /* times never fall */
    keeper_advance(keeper, DAY_MS + 1);
    retention_report_unref(run_now(keeper));
    assert_int_equal(oldest(keeper, "run:r:events"), 11);
    /* Frames with times in the future are kept that much longer. */
    keeper_advance(keeper, 5 * HOUR_MS);
    retention_report_unref(run_now(keeper));
    assert_int_equal(oldest(keeper, "run:r:events"), 21);
    keeper_close(keeper);
}

static void a_clock_that_steps_back_stops_neither_timer_nor_pruning(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(10);
    fill_summaries(keeper, 10);
    retention_report_unref(run_now(keeper));
    atomic_fetch_sub(&keeper->wall_ms, 6 * HOUR_MS);
    uint64_t cycles = retention_stats(keeper->retention).cycles;
    while (retention_stats(keeper->retention).cycles < cycles + 3)
        keeper_await_pass(keeper);
    assert_int_equal(retention_stats(keeper->retention).clock_steps, 1);
    assert_int_equal(oldest(keeper, "run:r:events"), 1);
    run_events(keeper, "r", 5);
    keeper_advance(keeper, DAY_MS + 6 * HOUR_MS + 1);
    while (oldest(keeper, "run:r:events") < 16)
        keeper_await_pass(keeper);
    keeper_close(keeper);
}

/* ---- the disk ---- */

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_ends_the_pass_and_the_next_one_continues(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    struct run_asked asked;
    fill_summaries(keeper, 200);
    keeper_advance(keeper, 7 * DAY_MS + 1);
    signal(SIGXFSZ, SIG_IGN);
    /* The reserve cannot help: no file may be written behind its first page. */
    limit_file_size(4096);
    for (uint64_t i = 1; i <= 2; i++) {
        assert_ok(run_post(keeper, &asked));
        assert_int_equal(run_wait(&asked), STATUS_STORE_UNAVAILABLE);
        assert_null(asked.request.report);
        assert_int_equal(retention_stats(keeper->retention).failures, i);
        assert_int_equal(oldest(keeper, "runtime.run_summaries"), 1);
    }
    limit_file_size(RLIM_INFINITY);
    assert_int_equal(run_deleted(keeper), 400);
    assert_int_equal(retention_stats(keeper->retention).failures, 2);
    run_events(keeper, "r", 1);
    keeper_close(keeper);
}

/* ---- on demand ---- */

static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t pass_held; /* posted for each batch that waits for the lock */

static void wait_for_release(struct keeper *keeper, struct slice topic) {
    (void)keeper;
    (void)topic;
    sem_post(&pass_held);
    pthread_mutex_lock(&hold_lock);
    pthread_mutex_unlock(&hold_lock);
}

static void requests_during_a_pass_share_the_next_one(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    struct run_asked first, others[3];
    fill_summaries(keeper, 20);
    keeper_advance(keeper, 7 * DAY_MS + 1);
    keeper->on_pruned = wait_for_release;
    assert_int_equal(sem_init(&pass_held, 0, 0), 0);
    pthread_mutex_lock(&hold_lock);
    assert_ok(run_post(keeper, &first));
    sem_wait(&pass_held);
    for (size_t i = 0; i < 3; i++)
        assert_ok(run_post(keeper, &others[i]));
    pthread_mutex_unlock(&hold_lock);
    assert_ok(run_wait(&first));
    for (size_t i = 0; i < 3; i++) {
        assert_ok(run_wait(&others[i]));
        assert_ptr_equal(others[i].request.report, others[0].request.report);
    }
    assert_ptr_not_equal(first.request.report, others[0].request.report);
    assert_int_equal(retention_report_total(first.request.report).deleted, 40);
    assert_int_equal(retention_report_total(others[0].request.report).deleted, 0);
    assert_int_equal(retention_stats(keeper->retention).cycles, 2);
    retention_report_unref(first.request.report);
    for (size_t i = 0; i < 3; i++)
        retention_report_unref(others[i].request.report);
    keeper_close(keeper);
    sem_destroy(&pass_held);
}

static void a_shutdown_during_a_pass_answers_all_requests(void **state) {
    (void)state;
    struct keeper *keeper = keeper_open(NEVER_MS);
    struct run_asked first, second, third;
    new_crowd(keeper, 1500);
    keeper_advance(keeper, 7 * DAY_MS + 1);
    keeper->on_pruned = wait_for_release;
    assert_int_equal(sem_init(&pass_held, 0, 0), 0);
    pthread_mutex_lock(&hold_lock);
    assert_ok(run_post(keeper, &first));
    sem_wait(&pass_held);
    assert_ok(run_post(keeper, &second));
    retention_end_post(keeper->retention);
    assert_int_equal(run_post(keeper, &third), STATUS_SHUTTING_DOWN);
    pthread_mutex_unlock(&hold_lock);
    assert_int_equal(run_wait(&first), STATUS_SHUTTING_DOWN);
    assert_int_equal(run_wait(&second), STATUS_SHUTTING_DOWN);
    uint64_t left = oldest(keeper, "runtime.run_summaries");
    assert_true(left > 1 && left < 1500);
    assert_int_equal(retention_stats(keeper->retention).cycles, 0);
    keeper_close(keeper);
    sem_destroy(&pass_held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_topic_keeps_its_frames_for_the_time_of_its_row),
        cmocka_unit_test(a_run_reports_every_topic_and_counts_by_class),
        cmocka_unit_test(a_waiting_append_goes_before_the_next_batch),
        cmocka_unit_test(thousands_of_topics_expire_in_batches_and_are_then_idle),
        cmocka_unit_test(idle_topics_are_not_inspected_before_they_are_due),
        cmocka_unit_test(a_pin_holds_the_floor_until_it_is_removed),
        cmocka_unit_test(a_pin_below_the_floor_check_holds),
        cmocka_unit_test(a_clock_that_jumps_ahead_is_trusted_after_an_hour),
        cmocka_unit_test(a_clock_that_is_corrected_prunes_nothing_early),
        cmocka_unit_test(a_clock_that_steps_back_stops_neither_timer_nor_pruning),
        cmocka_unit_test(a_full_disk_ends_the_pass_and_the_next_one_continues),
        cmocka_unit_test(requests_during_a_pass_share_the_next_one),
        cmocka_unit_test(a_shutdown_during_a_pass_answers_all_requests),
    };
    return cmocka_run_group_tests_name("retention", tests, NULL, NULL);
}
