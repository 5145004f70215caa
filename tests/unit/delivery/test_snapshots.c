#include "delivery/snapshot/snapshots.h"

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include "base/log.h"
#include "documents.h"

#define CADENCE_MS 300000
#define ASKERS     64

static const struct principal operator_all = {.read_all = true};

struct service {
    struct documents *documents;
    struct policy_table policies;
    struct snapshots *snapshots;
    enum status start_status;
    unsigned started;
    unsigned pinned;
    unsigned unpinned;
    uint64_t pinned_seq;
};

/* The test runs the builds. */
static enum status on_start(void *user, enum policy_row row) {
    struct service *service = user;
    assert_int_equal(row, POLICY_RUN_SUMMARIES);
    service->started += service->start_status == STATUS_OK;
    return service->start_status;
}

static void on_pin(void *user, struct slice topic, uint64_t seq) {
    struct service *service = user;
    assert_slice(topic, SUMMARIES);
    service->pinned++;
    service->pinned_seq = seq;
}

static void on_unpin(void *user, struct slice topic, uint64_t seq) {
    struct service *service = user;
    assert_slice(topic, SUMMARIES);
    assert_in_range(seq, 0, service->pinned_seq);
    service->unpinned++;
}

static void service_open(struct service *service, uint64_t bytes_max) {
    *service = (struct service){.documents = documents_open(), .start_status = STATUS_OK};
    policy_table_init(&service->policies);
    assert_ok(snapshots_open(&service->snapshots,
                             &(struct snapshots_options){.policies = &service->policies,
                                                         .folder = service->documents->folder,
                                                         .bytes_max = bytes_max,
                                                         .builder = service,
                                                         .start = on_start,
                                                         .keeper = service,
                                                         .pin = on_pin,
                                                         .unpin = on_unpin}));
}

static void service_close(struct service *service) {
    snapshots_close(service->snapshots);
    assert_int_equal(service->pinned, service->unpinned);
    documents_close(service->documents);
}

struct asked {
    struct snapshot_asker asker;
    unsigned answers;
};

static void on_answered(struct snapshot_asker *asker) {
    ((struct asked *)asker)->answers++;
}

static void ask(struct service *service, uint64_t now_ms, struct asked *asked) {
    *asked = (struct asked){.asker.answered = on_answered};
    snapshots_ask(service->snapshots, service->documents->reader, POLICY_RUN_SUMMARIES, now_ms,
                  &asked->asker);
}

static void build(struct service *service) {
    snapshots_build(service->snapshots, service->documents->reader, POLICY_RUN_SUMMARIES);
}

/* Asks, builds if necessary, and answers the snapshot. */
static struct snapshot *take(struct service *service, uint64_t now_ms) {
    struct asked asked;
    unsigned started = service->started;
    ask(service, now_ms, &asked);
    if (service->started > started)
        build(service);
    assert_int_equal(asked.answers, 1);
    assert_ok(asked.asker.status);
    return asked.asker.snapshot;
}

static void simultaneous_requests_share_one_build(void **state) {
    (void)state;
    struct service service;
    struct asked asked[ASKERS];
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 300);
    for (size_t i = 0; i < ASKERS; i++)
        ask(&service, 1000 + i, &asked[i]);
    assert_int_equal(service.started, 1);
    assert_int_equal(asked[0].answers, 0);
    uint64_t before = store_session_rows_read(service.documents->reader);
    build(&service);
    assert_in_range(store_session_rows_read(service.documents->reader) - before, 300, 310);
    for (size_t i = 0; i < ASKERS; i++) {
        assert_int_equal(asked[i].answers, 1);
        assert_ok(asked[i].asker.status);
        assert_ptr_equal(asked[i].asker.snapshot, asked[0].asker.snapshot);
    }
    assert_int_equal(asked[0].asker.snapshot->watermark, 300);
    for (size_t i = 0; i < ASKERS; i++)
        snapshot_unref(asked[i].asker.snapshot);
    struct snapshots_state look;
    assert_true(snapshots_read_state(service.snapshots, POLICY_RUN_SUMMARIES, 1500, &look));
    assert_int_equal(look.built_count, 1);
    assert_int_equal(look.served_count, ASKERS);
    assert_int_equal(look.age_ms, 500);
    assert_int_equal(look.document_count, 300);
    assert_int_equal(look.file_bytes, snapshots_bytes(service.snapshots));
    assert_false(snapshots_read_state(service.snapshots, POLICY_FALLBACK, 1500, &look));
    service_close(&service);
}

static void a_snapshot_is_reused_within_its_cadence_and_then_rebuilt(void **state) {
    (void)state;
    struct service service;
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 10);
    struct snapshot *first = take(&service, 5000);
    documents_put_many(service.documents, 1);
    struct snapshot *second = take(&service, 5000 + CADENCE_MS - 1);
    assert_ptr_equal(first, second);
    /* From a loop whose clock was read a little earlier. */
    struct snapshot *early = take(&service, 4999);
    assert_ptr_equal(first, early);
    struct snapshot *later = take(&service, 5000 + CADENCE_MS);
    assert_ptr_not_equal(first, later);
    assert_int_equal(service.started, 2);
    assert_int_equal(later->watermark, 11);
    /* Readers of the old snapshot can continue. */
    struct buffer text;
    buffer_init(&text, 1u << 20);
    assert_int_equal(documents_read(first, &operator_all, &text), 10);
    buffer_release(&text);
    snapshot_unref(first);
    snapshot_unref(second);
    snapshot_unref(early);
    snapshot_unref(later);
    service_close(&service);
}

static void a_tick_releases_old_snapshots_without_readers(void **state) {
    (void)state;
    struct service service;
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 10);
    struct snapshot *snapshot = take(&service, 0);
    assert_int_equal(service.pinned_seq, 10);
    snapshots_tick(service.snapshots, CADENCE_MS - 1);
    assert_int_equal(snapshots_bytes(service.snapshots), snapshot->file_bytes);
    snapshots_tick(service.snapshots, CADENCE_MS);
    /* It is still being read. */
    assert_int_equal(snapshots_bytes(service.snapshots), snapshot->file_bytes);
    assert_int_equal(service.unpinned, 0);
    snapshot_unref(snapshot);
    snapshots_tick(service.snapshots, CADENCE_MS + 1);
    assert_int_equal(snapshots_bytes(service.snapshots), 0);
    assert_int_equal(service.unpinned, 1);
    service_close(&service);
}

static void a_snapshot_below_the_floor_of_the_journal_is_not_used(void **state) {
    (void)state;
    struct service service;
    uint64_t pruned;
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 10);
    struct snapshot *first = take(&service, 0);
    documents_put_many(service.documents, 10);
    /* The next row still exists: nothing is missing after the watermark. */
    assert_ok(store_prune(service.documents->writer, 1, 11, 100, &pruned));
    struct snapshot *second = take(&service, 1);
    assert_ptr_equal(first, second);
    assert_ok(store_prune(service.documents->writer, 1, 12, 100, &pruned));
    struct snapshot *third = take(&service, 2);
    assert_ptr_not_equal(first, third);
    assert_int_equal(third->watermark, 20);
    snapshot_unref(first);
    snapshot_unref(second);
    snapshot_unref(third);
    service_close(&service);
}

static void a_snapshot_too_far_behind_is_not_used(void **state) {
    (void)state;
    struct service service;
    service_open(&service, 1u << 30);
    service.policies.rows[POLICY_RUN_SUMMARIES].replay_budget_events = 20;
    documents_put_many(service.documents, 5);
    struct snapshot *first = take(&service, 0);
    documents_put_many(service.documents, 10);
    struct snapshot *second = take(&service, 1);
    assert_ptr_equal(first, second);
    documents_put_many(service.documents, 1);
    struct snapshot *third = take(&service, 2);
    assert_int_equal(third->watermark, 16);
    snapshot_unref(first);
    snapshot_unref(second);
    snapshot_unref(third);
    service_close(&service);
}

static void a_snapshot_of_another_epoch_is_not_used(void **state) {
    (void)state;
    struct service service;
    sqlite3 *database;
    char path[128];
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 10);
    struct snapshot *first = take(&service, 0);
    snprintf(path, sizeof(path), "%s/khala.db", service.documents->folder);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database,
                                  "UPDATE meta SET value = '019b76da-a800-7000-8000-000000000000' "
                                  "WHERE name = 'epoch'",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(database);
    struct snapshot *second = take(&service, 1);
    assert_ptr_not_equal(first, second);
    assert_string_equal(second->epoch.text, "019b76da-a800-7000-8000-000000000000.0");
    snapshot_unref(first);
    snapshot_unref(second);
    service_close(&service);
}

static void a_failed_build_answers_all_requests_and_is_tried_again(void **state) {
    (void)state;
    struct service service;
    struct asked asked[3];
    struct rlimit limit;
    service_open(&service, 1u << 30);
    service.documents->padding_bytes = 2000;
    documents_put_many(service.documents, 300);
    for (size_t i = 0; i < 3; i++)
        ask(&service, i, &asked[i]);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit tight = {100000, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    build(&service);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(asked[i].answers, 1);
        assert_int_equal(asked[i].asker.status, STATUS_STORE_UNAVAILABLE);
        assert_null(asked[i].asker.snapshot);
    }
    assert_int_equal(snapshots_bytes(service.snapshots), 0);
    assert_int_equal(service.unpinned, service.pinned);
    struct snapshot *snapshot = take(&service, 4);
    assert_int_equal(snapshot->document_count, 300);
    snapshot_unref(snapshot);
    service_close(&service);
}

static void a_builder_that_cannot_start_fails_the_request(void **state) {
    (void)state;
    struct service service;
    struct asked asked;
    service_open(&service, 1u << 30);
    service.start_status = STATUS_LIMIT_REACHED;
    ask(&service, 0, &asked);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.asker.status, STATUS_LIMIT_REACHED);
    service.start_status = STATUS_OK;
    snapshot_unref(take(&service, 1));
    service_close(&service);
}

static void files_never_hold_more_than_the_maximum(void **state) {
    (void)state;
    struct service service;
    struct asked asked;
    service_open(&service, 200000);
    service.documents->padding_bytes = 1000;
    documents_put_many(service.documents, 200);
    ask(&service, 0, &asked);
    build(&service);
    assert_int_equal(asked.asker.status, STATUS_LIMIT_REACHED);
    assert_int_equal(snapshots_bytes(service.snapshots), 0);
    service_close(&service);
}

static enum status read_first(struct snapshot *snapshot, size_t *count) {
    struct buffer out;
    buffer_init(&out, 1u << 20);
    enum status status = snapshot_part_read(snapshot, 0, VIEW_OF(&operator_all), &out, count);
    assert_int_equal(out.size > 0, status == STATUS_OK);
    buffer_release(&out);
    return status;
}

static void an_old_snapshot_that_is_read_is_withdrawn_for_a_new_one(void **state) {
    (void)state;
    struct service service;
    size_t count;
    service_open(&service, 300000);
    service.documents->padding_bytes = 1000;
    documents_put_many(service.documents, 100);
    struct snapshot *first = take(&service, 0);
    struct snapshot *second = take(&service, CADENCE_MS);
    assert_int_equal(snapshots_bytes(service.snapshots), 2 * first->file_bytes);
    assert_ok(read_first(first, &count));
    /* There is no room for three. */
    struct snapshot *third = take(&service, 2 * CADENCE_MS);
    assert_int_equal(read_first(first, &count), STATUS_SLOW_CONSUMER);
    assert_int_equal(count, 0);
    assert_ok(read_first(second, &count));
    assert_ok(read_first(third, &count));
    assert_int_equal(snapshots_bytes(service.snapshots), 2 * first->file_bytes);
    snapshot_unref(first);
    snapshots_tick(service.snapshots, 2 * CADENCE_MS);
    assert_int_equal(snapshots_bytes(service.snapshots), 2 * second->file_bytes);
    snapshot_unref(second);
    snapshot_unref(third);
    service_close(&service);
}

static void a_cancelled_build_ends_with_its_status(void **state) {
    (void)state;
    struct service service;
    struct asked asked;
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 10);
    ask(&service, 0, &asked);
    snapshots_cancel(service.snapshots);
    build(&service);
    assert_int_equal(asked.asker.status, STATUS_SHUTTING_DOWN);
    service_close(&service);
}

/* ---- many threads ------------------------------------------------------------------------- */

struct crowd {
    struct service *service;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned wanted_builds;
    unsigned wrong;
    bool over;
};

struct waiter {
    struct snapshot_asker asker;
    struct crowd *crowd;
    bool is_answered;
};

static enum status crowd_start(void *user, enum policy_row row) {
    struct crowd *crowd = user;
    (void)row;
    pthread_mutex_lock(&crowd->lock);
    crowd->wanted_builds++;
    pthread_cond_broadcast(&crowd->changed);
    pthread_mutex_unlock(&crowd->lock);
    return STATUS_OK;
}

static void crowd_answered(struct snapshot_asker *asker) {
    struct waiter *waiter = (struct waiter *)asker;
    pthread_mutex_lock(&waiter->crowd->lock);
    waiter->is_answered = true;
    pthread_cond_broadcast(&waiter->crowd->changed);
    pthread_mutex_unlock(&waiter->crowd->lock);
}

static void *crowd_builds(void *user) {
    struct crowd *crowd = user;
    struct store_session *session = NULL;
    if (store_session_open(crowd->service->documents->store, STORE_READ, &session) != STATUS_OK)
        abort();
    pthread_mutex_lock(&crowd->lock);
    while (!crowd->over || crowd->wanted_builds > 0) {
        if (crowd->wanted_builds == 0) {
            pthread_cond_wait(&crowd->changed, &crowd->lock);
            continue;
        }
        crowd->wanted_builds--;
        pthread_mutex_unlock(&crowd->lock);
        snapshots_build(crowd->service->snapshots, session, POLICY_RUN_SUMMARIES);
        pthread_mutex_lock(&crowd->lock);
    }
    pthread_mutex_unlock(&crowd->lock);
    store_session_close(session);
    return NULL;
}

static void *crowd_asks(void *user) {
    struct crowd *crowd = user;
    struct store_session *session = NULL;
    struct buffer text;
    unsigned wrong = 0;
    buffer_init(&text, 1u << 20);
    if (store_session_open(crowd->service->documents->store, STORE_READ, &session) != STATUS_OK)
        abort();
    for (uint64_t i = 0; i < 60; i++) {
        struct waiter waiter = {.asker.answered = crowd_answered, .crowd = crowd};
        size_t count = 0;
        snapshots_ask(crowd->service->snapshots, session, POLICY_RUN_SUMMARIES, i * CADENCE_MS / 3,
                      &waiter.asker);
        pthread_mutex_lock(&crowd->lock);
        while (!waiter.is_answered)
            pthread_cond_wait(&crowd->changed, &crowd->lock);
        pthread_mutex_unlock(&crowd->lock);
        struct snapshot *snapshot = waiter.asker.snapshot;
        buffer_clear(&text);
        wrong +=
            waiter.asker.status != STATUS_OK ||
            snapshot_part_read(snapshot, 0, VIEW_OF(&operator_all), &text, &count) != STATUS_OK ||
            count != 50;
        snapshot_unref(snapshot);
        snapshots_tick(crowd->service->snapshots, i * CADENCE_MS / 3);
    }
    buffer_release(&text);
    store_session_close(session);
    pthread_mutex_lock(&crowd->lock);
    crowd->wrong += wrong;
    pthread_mutex_unlock(&crowd->lock);
    return NULL;
}

static void many_threads_ask_build_read_and_release(void **state) {
    (void)state;
    struct service service;
    struct crowd crowd = {.service = &service,
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .changed = PTHREAD_COND_INITIALIZER};
    pthread_t builder, threads[4];
    service_open(&service, 1u << 30);
    documents_put_many(service.documents, 50);
    snapshots_close(service.snapshots);
    assert_ok(snapshots_open(&service.snapshots,
                             &(struct snapshots_options){.policies = &service.policies,
                                                         .folder = service.documents->folder,
                                                         .bytes_max = 1u << 30,
                                                         .builder = &crowd,
                                                         .start = crowd_start}));
    assert_int_equal(pthread_create(&builder, NULL, crowd_builds, &crowd), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_asks, &crowd), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_lock(&crowd.lock);
    crowd.over = true;
    pthread_cond_broadcast(&crowd.changed);
    pthread_mutex_unlock(&crowd.lock);
    pthread_join(builder, NULL);
    assert_int_equal(crowd.wrong, 0);
    service_close(&service);
}

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    log_configure(LOG_OFF, LOG_TEXT, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simultaneous_requests_share_one_build),
        cmocka_unit_test(a_snapshot_is_reused_within_its_cadence_and_then_rebuilt),
        cmocka_unit_test(a_tick_releases_old_snapshots_without_readers),
        cmocka_unit_test(a_snapshot_below_the_floor_of_the_journal_is_not_used),
        cmocka_unit_test(a_snapshot_too_far_behind_is_not_used),
        cmocka_unit_test(a_snapshot_of_another_epoch_is_not_used),
        cmocka_unit_test(a_failed_build_answers_all_requests_and_is_tried_again),
        cmocka_unit_test(a_builder_that_cannot_start_fails_the_request),
        cmocka_unit_test(files_never_hold_more_than_the_maximum),
        cmocka_unit_test(an_old_snapshot_that_is_read_is_withdrawn_for_a_new_one),
        cmocka_unit_test(a_cancelled_build_ends_with_its_status),
        cmocka_unit_test(many_threads_ask_build_read_and_release),
    };
    return cmocka_run_group_tests_name("delivery/snapshots", tests, NULL, NULL);
}
