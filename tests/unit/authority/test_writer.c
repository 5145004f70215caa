/* The writer itself: many threads, clocks that step back, a store that fails, what is derived, and
 * its bounds. On a real store. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "authority/projection.h"
#include "authority/writer_fixture.h"
#include "base/log.h"

#define THREAD_COUNT     64
#define POSTS_PER_THREAD 200

static void new_run(struct fixture *fixture, const char *id) {
    char body[300];
    (void)snprintf(body, sizeof(body), "{\"run_id\":\"%s\"}", id);
    ask_ok(fixture, APPEND_RUN_CREATE, NULL, body);
}

static uint64_t append(struct fixture *fixture, const char *run) {
    return ask_ok(fixture, APPEND_RUN_EVENT, run, "{\"event_type\":\"x\"}")->event.seq;
}

/* ---- many threads ---- */

struct poster {
    struct fixture *fixture;
    pthread_t thread;
    struct asked *asked[POSTS_PER_THREAD];
};

static void *post_many(void *argument) {
    struct poster *poster = argument;
    for (size_t i = 0; i < POSTS_PER_THREAD; i++) {
        assert_ok(writer_post(poster->fixture->writer, &poster->asked[i]->group));
        (void)wait_for(poster->asked[i]);
    }
    return NULL;
}

static void threads_get_distinct_contiguous_sequences(void **state) {
    struct fixture *fixture = *state;
    static struct poster posters[THREAD_COUNT];
    static bool seen[THREAD_COUNT * POSTS_PER_THREAD];
    memset(seen, 0, sizeof(seen));
    new_run(fixture, "r1");
    for (size_t i = 0; i < THREAD_COUNT; i++) {
        posters[i].fixture = fixture;
        for (size_t j = 0; j < POSTS_PER_THREAD; j++) {
            struct asked *asked = asked_new(fixture, 1);
            posters[i].asked[j] = asked;
            assert_ok(append_read(&fixture->reader, APPEND_RUN_EVENT, SLICE("r1"),
                                  parsed("{\"event_type\":\"x\",\"payload\":{\"n\":1}}"),
                                  &asked->group.arena, &asked->requests[0]));
        }
    }
    for (size_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_many, &posters[i]), 0);
    for (size_t i = 0; i < THREAD_COUNT; i++)
        pthread_join(posters[i].thread, NULL);
    for (size_t i = 0; i < THREAD_COUNT; i++) {
        uint64_t before = 0;
        for (size_t j = 0; j < POSTS_PER_THREAD; j++) {
            uint64_t seq = posters[i].asked[j]->requests[0].event.seq;
            assert_in_range(seq, 2, THREAD_COUNT * POSTS_PER_THREAD + 1);
            assert_false(seen[seq - 2]);
            seen[seq - 2] = true;
            assert_true(seq > before);
            before = seq;
        }
    }
    struct writer_stats stats = writer_stats(fixture->writer);
    assert_int_equal(stats.events, THREAD_COUNT * POSTS_PER_THREAD + 1);
    assert_true(stats.commits < stats.events);
    assert_int_equal(stats.refused, 0);
    assert_int_equal(checked_log(fixture), THREAD_COUNT * POSTS_PER_THREAD + 1);
}

static void waiting_requests_are_committed_together_and_answered_in_order(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    uint64_t commits = writer_stats(fixture->writer).commits;
    struct asked *asked[50];
    gate_shut(fixture);
    for (size_t i = 0; i < 50; i++)
        asked[i] = post(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\"}");
    gate_open(fixture);
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(wait_for(asked[i])->event.seq, 2 + i);
    assert_int_equal(writer_stats(fixture->writer).commits, commits + 2);
}

static void requests_beyond_one_batch_become_several_batches(void **state) {
    struct fixture *fixture = *state;
    struct asked *asked[20];
    const char *items[1000];
    for (size_t i = 0; i < 1000; i++)
        items[i] = "{\"topic\":\"t\",\"event_type\":\"x\"}";
    gate_shut(fixture);
    for (size_t i = 0; i < 20; i++)
        asked[i] = post_items(fixture, 1000, items);
    gate_open(fixture);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(wait_for(asked[i])[999].event.seq, 1000 * (i + 1));
    assert_int_equal(checked_log(fixture), 20001);
}

/* An id from the future stays above all others, and must be known for all time. */
#define FUTURE_ITEM                                                                                \
    "{\"topic\":\"t\",\"event_type\":\"x\",\"event_id\":\"0fffffff-ffff-7000-8000-000000000001\"}"

static void an_event_id_is_found_after_many_other_events(void **state) {
    struct fixture *fixture = *state;
    const char *const future[] = {FUTURE_ITEM};
    const char *items[1000];
    for (size_t i = 0; i < 1000; i++)
        items[i] = "{\"topic\":\"t\",\"event_type\":\"x\"}";
    assert_false(wait_for(post_items(fixture, 1, future))->deduplicated);
    for (size_t i = 0; i < 67; i++) {
        const struct append_request *requests = wait_for(post_items(fixture, 1000, items));
        assert_int_equal(requests[999].event.seq, 1000 * i + 1001);
        assert_true(i % 20 != 0 || wait_for(post_items(fixture, 1, future))->deduplicated);
    }
    assert_true(wait_for(post_items(fixture, 1, future))->deduplicated);
    fixture_restart(fixture);
    assert_true(wait_for(post_items(fixture, 1, future))->deduplicated);
    assert_int_equal(checked_log(fixture), 67001);
}

/* ---- time ---- */

static void cursors_rise_when_the_clock_steps_back(void **state) {
    struct fixture *fixture = *state;
    struct uuid last = {{0}};
    new_run(fixture, "r1");
    for (int i = 0; i < 6; i++) {
        const struct append_request *made =
            ask_ok(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\"}");
        assert_true(uuid_compare(&made->event.cursor, &last) > 0);
        assert_memory_equal(&made->event.event_id, &made->event.cursor, sizeof(struct uuid));
        last = made->event.cursor;
        __atomic_fetch_sub(&fixture->clock.reading.wall_ms, 3 * 3600 * 1000, __ATOMIC_RELAXED);
        if (i % 2 == 1)
            fixture_restart(fixture);
    }
}

/* ---- a store that fails ---- */

static void break_store(void) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void mend_store(void) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#define WITH_ID_A "{\"event_type\":\"x\",\"event_id\":\"018f3b7e-0000-7000-8000-00000000000a\"}"
#define WITH_ID_B "{\"event_type\":\"x\",\"event_id\":\"018f3b7e-0000-7000-8000-00000000000b\"}"

static void appends_to_a_failing_store_are_refused_and_leave_no_gap(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_A);
    for (int round = 0; round < 3; round++) {
        uint64_t before = append(fixture, "r1");
        break_store();
        const struct append_request *lost =
            ask(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"run.cancel_requested\"}");
        assert_int_equal(lost->status, STATUS_STORE_UNAVAILABLE);
        assert_int_equal(lost->event.log_id, 0);
        refused(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"lost\"}",
                STATUS_STORE_UNAVAILABLE);
        mend_store();
        assert_int_equal(append(fixture, "r1"), before + 1);
        refused(fixture, APPEND_RUN_EVENT, "lost", "{\"event_type\":\"x\"}", STATUS_RUN_NOT_FOUND);
    }
    assert_true(writer_stats(fixture->writer).commit_failures >= 6);
    /* The cancellation that was lost did not happen. */
    ask_ok(fixture, APPEND_RUN_EVENT, "r1",
           "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"succeeded\"}}");
    assert_int_equal(checked_log(fixture), 9);
}

/* How often the log has named an event so far. */
static size_t lines_of(int log, const char *event) {
    static char text[65536];
    static size_t size;
    ssize_t more = read(log, text + size, sizeof(text) - 1 - size);
    size += more > 0 ? (size_t)more : 0;
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, event)); at++)
        count++;
    return count;
}

/* A disk that is nearly full takes small commits and no large ones. */
static void an_unreliable_store_is_logged_once_a_second_with_the_reason(void **state) {
    struct fixture *fixture = *state;
    enum reason reason = REASON_STORE_FAILED;
    int log[2]; /* a pipe, for which there is room whatever becomes of the disk */
    assert_int_equal(pipe2(log, O_CLOEXEC | O_NONBLOCK), 0);
    log_configure(LOG_INFO, LOG_TEXT, log[1]);
    new_run(fixture, "r1");
    for (size_t second = 1; second <= 3; second++) {
        for (int i = 0; i < 20; i++) {
            assert_false(writer_is_failing(fixture->writer, &reason));
            break_store();
            refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\"}",
                    STATUS_STORE_UNAVAILABLE);
            assert_true(writer_is_failing(fixture->writer, &reason));
            assert_int_equal(reason, REASON_STORE_FULL);
            mend_store();
            (void)append(fixture, "r1");
        }
        assert_int_equal(lines_of(log[0], "store.commit_failed"), second);
        assert_int_equal(lines_of(log[0], "store.commit_recovered"), second);
        clock_manual_advance_ms(&fixture->clock, 1000);
    }
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
    close(log[0]);
    close(log[1]);
}

static void a_failed_batch_fails_only_the_requests_that_depend_on_it(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_A);
    gate_shut(fixture);
    struct asked *committed = post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_A);
    struct asked *fresh = post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_B);
    struct asked *repeat = post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_B);
    struct asked *wrong = post(fixture, APPEND_RUN_EVENT, "nobody", "{\"event_type\":\"x\"}");
    struct asked *worker =
        post(fixture, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w\",\"owner_user_id\":\"u\"}");
    struct asked *worker_again =
        post(fixture, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w\",\"owner_user_id\":\"u\"}");
    break_store();
    gate_open(fixture);
    assert_int_equal(wait_for(fresh)->status, STATUS_STORE_UNAVAILABLE);
    assert_int_equal(wait_for(repeat)->status, STATUS_STORE_UNAVAILABLE);
    assert_false(wait_for(repeat)->deduplicated);
    assert_int_equal(wait_for(wrong)->status, STATUS_RUN_NOT_FOUND);
    assert_int_equal(wait_for(worker)->status, STATUS_STORE_UNAVAILABLE);
    assert_int_equal(wait_for(worker_again)->status, STATUS_STORE_UNAVAILABLE);
    assert_int_equal(wait_for(committed)->status, STATUS_OK);
    assert_true(wait_for(committed)->deduplicated);
    mend_store();
    assert_false(ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_B)->deduplicated);
    assert_true(ask_ok(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_B)->deduplicated);
    assert_true(
        ask_ok(fixture, APPEND_WORKER_CREATE, NULL, "{\"worker_id\":\"w\",\"owner_user_id\":\"u\"}")
            ->created);
}

static void refusals_that_depend_on_a_failed_batch_are_withdrawn(void **state) {
    struct fixture *fixture = *state;
    new_run(fixture, "r1");
    new_run(fixture, "r2");
    gate_shut(fixture);
    (void)post(fixture, APPEND_RUN_EVENT, "r1", WITH_ID_A);
    (void)post(fixture, APPEND_RUN_EVENT, "r1",
               "{\"event_type\":\"run.cancel_requested\",\"idempotency_key\":\"k\"}");
    (void)post(fixture, APPEND_TOPIC_EVENT, "a.b", "{\"event_type\":\"x\"}");
    (void)post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r3\"}");
    struct asked *refused_too[] = {
        post(fixture, APPEND_RUN_EVENT, "r1",
             "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"succeeded\"}}"),
        post(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"idempotency_key\":\"k\"}"),
        post(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\",\"expected_previous_seq\":1}"),
        post(fixture, APPEND_RUN_EVENT, "r2", WITH_ID_A),
        post(fixture, APPEND_TOPIC_EVENT, "a:b", "{\"event_type\":\"x\"}"),
        post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r3\",\"thread_id\":\"t\"}"),
        /* What it would say of the run's head is not so. */
        post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r1\"}"),
    };
    struct asked *wrong_anyway =
        post(fixture, APPEND_RUN_EVENT, "r2", "{\"event_type\":\"x\",\"expected_previous_seq\":9}");
    break_store();
    gate_open(fixture);
    for (size_t i = 0; i < sizeof(refused_too) / sizeof(refused_too[0]); i++) {
        const struct append_request *request = wait_for(refused_too[i]);
        assert_string_equal(status_code(request->status), "store_unavailable");
        assert_int_equal(request->refusal.actual_seq, 0);
    }
    assert_int_equal(wait_for(wrong_anyway)->status, STATUS_SEQUENCE_CONFLICT);
    mend_store();
    ask_ok(fixture, APPEND_RUN_EVENT, "r1",
           "{\"event_type\":\"run.finished\",\"payload\":{\"status\":\"succeeded\"}}");
    ask_ok(fixture, APPEND_RUN_EVENT, "r2", WITH_ID_A);
    ask_ok(fixture, APPEND_TOPIC_EVENT, "a:b", "{\"event_type\":\"x\"}");
}

/* ---- what is derived ---- */

/* Notes how it is called, one letter a call: begin, fold, collect, committed, abandoned. */
struct note {
    char calls[64];
    char statuses[8][16];
    size_t fold_count;
    const struct store_entity *entities[8];
};

static void note_call(struct note *note, char call) {
    size_t size = strlen(note->calls);
    assert_true(size + 1 < sizeof(note->calls));
    note->calls[size] = call;
}

static void note_begin(void *user, struct store_session *session, uint64_t now_ms) {
    assert_non_null(session);
    assert_true(now_ms > 0);
    ((struct note *)user)->fold_count = 0;
    note_call(user, 'b');
}

static void note_fold(void *user, const struct store_entity *entity,
                      const struct store_event *event) {
    struct note *note = user;
    assert_int_equal(entity->head_seq, event->seq);
    assert_int_equal(entity->ref, event->entity_ref);
    assert_memory_equal(entity->head_hash, event->chain_hash, SHA256_BYTES);
    note->entities[note->fold_count % 8] = entity;
    (void)snprintf(note->statuses[note->fold_count++ % 8], 16, "%.*s", (int)entity->status.size,
                   entity->status.data ? entity->status.data : "");
    note_call(note, 'f');
}

static void note_collect(void *user, struct arena *arena, struct store_batch *batch,
                         uint64_t *last_topic_ref) {
    struct note *note = user;
    assert_non_null(arena);
    assert_true(*last_topic_ref > 0);
    assert_int_equal(batch->event_count, note->fold_count);
    /* Entities are as they were after each event until now. */
    for (size_t i = 0; i < note->fold_count && i < 8; i++)
        assert_int_equal(
            strncmp(note->statuses[i],
                    note->entities[i]->status.data ? note->entities[i]->status.data : "",
                    note->entities[i]->status.size),
            0);
    note_call(note, 'c');
}

static void note_committed(void *user) {
    note_call(user, 'C');
}

static void note_abandoned(void *user) {
    note_call(user, 'A');
}

static void note_unprojected(void *user, uint64_t first_log_id) {
    (void)first_log_id;
    note_call(user, 'U');
}

static int64_t note_heal(void *user, const struct projection_step *step) {
    (void)user;
    assert_non_null(step->session);
    return PROJECTION_IS_WHOLE;
}

static void every_batch_with_events_is_projected_and_ended_once(void **state) {
    struct fixture *fixture = *state;
    struct note note = {0};
    const struct projection projection = {.user = &note,
                                          .begin = note_begin,
                                          .fold = note_fold,
                                          .collect = note_collect,
                                          .committed = note_committed,
                                          .abandoned = note_abandoned,
                                          .unprojected = note_unprojected,
                                          .heal = note_heal};
    fixture->options.projection = &projection;
    fixture_restart(fixture);
    new_run(fixture, "r1");
    assert_string_equal(note.calls, "bfcC");
    refused(fixture, APPEND_RUN_EVENT, "nobody", "{\"event_type\":\"x\"}", STATUS_RUN_NOT_FOUND);
    assert_string_equal(note.calls, "bfcC");
    const char *const items[] = {
        "{\"run_id\":\"r1\",\"event_type\":\"x\"}",
        "{\"run_id\":\"r1\",\"event_type\":\"run.cancel_requested\"}",
        "{\"run_id\":\"r1\",\"event_type\":\"run.finished\",\"payload\":{\"status\":\"failed\"}}",
    };
    note = (struct note){0};
    (void)wait_for(post_items(fixture, 3, items));
    assert_string_equal(note.calls, "bfffcC");
    assert_string_equal(note.statuses[0], "running");
    assert_string_equal(note.statuses[1], "canceling");
    assert_string_equal(note.statuses[2], "failed");
    note = (struct note){0};
    break_store();
    refused(fixture, APPEND_RUN_EVENT, "r1", "{\"event_type\":\"x\"}", STATUS_STORE_UNAVAILABLE);
    mend_store();
    assert_string_equal(note.calls, "bfcA");
    fixture->options.projection = NULL;
    fixture_restart(fixture);
}

/* ---- bounds ---- */

static void a_small_entity_cache_does_not_change_the_answers(void **state) {
    struct fixture *fixture = *state;
    fixture->options.entity_count_max = 3;
    fixture_restart(fixture);
    char body[128];
    for (int i = 0; i < 20; i++) {
        (void)snprintf(body, sizeof(body),
                       "{\"worker_id\":\"w%d\",\"owner_user_id\":\"u\",\"metadata\":{\"n\":%d}}", i,
                       i);
        ask_ok(fixture, APPEND_WORKER_CREATE, NULL, body);
    }
    struct asked *asked[3][20];
    char id[8];
    gate_shut(fixture);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            (void)snprintf(id, sizeof(id), "w%d", i);
            (void)snprintf(body, sizeof(body), "{\"metadata_patch\":{\"r%d\":1}}", round);
            asked[round][i] = post(fixture, APPEND_WORKER_HEARTBEAT, id, body);
        }
    }
    gate_open(fixture);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(body, sizeof(body), "{\"n\":%d,\"r0\":1,\"r1\":1,\"r2\":1}", i);
        assert_int_equal(wait_for(asked[2][i])->event.seq, 4);
        assert_slice(wait_for(asked[2][i])->entity.metadata, body);
        (void)snprintf(id, sizeof(id), "w%d", i);
        assert_slice(ask_ok(fixture, APPEND_WORKER_HEARTBEAT, id, "{}")->entity.metadata, body);
    }
    fixture->options.entity_count_max = 0;
}

static void a_full_mailbox_and_a_stopped_writer_refuse_requests(void **state) {
    struct fixture *fixture = *state;
    fixture->options.group_max = 2;
    fixture_restart(fixture);
    gate_shut(fixture);
    struct asked *first = post(fixture, APPEND_AUDIT_EVENT, NULL, "{\"event_type\":\"x\"}");
    struct asked *second = post(fixture, APPEND_AUDIT_EVENT, NULL, "{\"event_type\":\"x\"}");
    struct asked *third = asked_new(fixture, 1);
    assert_ok(append_read(&fixture->reader, APPEND_AUDIT_EVENT, (struct slice){NULL, 0},
                          parsed("{\"event_type\":\"x\"}"), &third->group.arena,
                          &third->requests[0]));
    assert_int_equal(writer_post(fixture->writer, &third->group), STATUS_LIMIT_REACHED);
    gate_open(fixture);
    assert_int_equal(wait_for(second)->event.seq, wait_for(first)->event.seq + 1);
    assert_ok(writer_post(fixture->writer, &third->group));
    /* Stopping finishes what was posted. */
    fixture_close(fixture);
    assert_true(third->is_answered);
    assert_int_equal(third->requests[0].status, STATUS_OK);
    fixture_open(fixture);
}

static void waiting_groups_hold_bounded_memory(void **state) {
    struct fixture *fixture = *state;
    fixture->options.bytes_max = 1;
    fixture_restart(fixture);
    struct asked *asked = asked_new(fixture, 1);
    assert_ok(append_read(&fixture->reader, APPEND_AUDIT_EVENT, (struct slice){NULL, 0},
                          parsed("{\"event_type\":\"x\"}"), &asked->group.arena,
                          &asked->requests[0]));
    /* The gate's own group waits, larger than the maximum but alone. */
    gate_shut(fixture);
    enum status beside_another = writer_post(fixture->writer, &asked->group);
    gate_open(fixture);
    assert_int_equal(beside_another, STATUS_LIMIT_REACHED);
    /* Restarting answers what waited: now this one is alone. */
    fixture_restart(fixture);
    assert_ok(writer_post(fixture->writer, &asked->group));
    assert_int_equal(wait_for(asked)->status, STATUS_OK);
}

static void an_empty_group_is_answered_too(void **state) {
    struct fixture *fixture = *state;
    struct asked *asked = asked_new(fixture, 0);
    assert_ok(writer_post(fixture->writer, &asked->group));
    (void)wait_for(asked);
    assert_int_equal(writer_stats(fixture->writer).commits, 0);
}

static void a_request_whose_answer_does_not_fit_stores_nothing(void **state) {
    struct fixture *fixture = *state;
    struct asked *asked = asked_new(fixture, 1);
    arena_release(&asked->group.arena);
    arena_init(&asked->group.arena, 64);
    asked->requests[0] = (struct append_request){
        .kind = APPEND_RUN_CREATE,
        .entity_id = SLICE("a run whose name leaves no room for its answer beside it"),
    };
    assert_ok(writer_post(fixture->writer, &asked->group));
    assert_int_equal(wait_for(asked)->status, STATUS_OUT_OF_MEMORY);
    assert_int_equal(checked_log(fixture), 0);
    new_run(fixture, "r1");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* ---- jobs ---- */

struct topic_job {
    struct writer_job job;
    struct fixture *fixture;
    uint64_t topic_ref;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
};

/* Makes a topic behind the ledger's back. */
static void make_topic(struct writer_job *job, struct store_session *session) {
    struct topic_job *topic_job = (struct topic_job *)job;
    struct store_state state;
    assert_ok(store_read_state(session, &state));
    struct store_topic topic = {
        .ref = state.topic_ref + 1,
        .name = SLICE("fleet:user:u:workers"),
        .stream_id = SLICE("s"),
        .oldest_seq = 1,
    };
    struct store_batch batch = {.topics = &topic, .topic_count = 1};
    assert_ok(store_commit(session, &batch));
    writer_announce(topic_job->fixture->writer, &batch, NULL);
    pthread_mutex_lock(&topic_job->lock);
    topic_job->topic_ref = topic.ref;
    topic_job->is_done = true;
    pthread_cond_signal(&topic_job->done);
    pthread_mutex_unlock(&topic_job->lock);
}

static void a_job_runs_between_two_batches_in_order(void **state) {
    struct fixture *fixture = *state;
    struct topic_job job = {.job.run = make_topic, .fixture = fixture};
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.done, NULL);
    new_run(fixture, "r1");
    uint64_t commits = writer_stats(fixture->writer).commits;
    gate_shut(fixture);
    struct asked *before = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r2\"}");
    assert_ok(writer_post_job(fixture->writer, &job.job));
    struct asked *after = post(fixture, APPEND_RUN_CREATE, NULL, "{\"run_id\":\"r3\"}");
    gate_open(fixture);
    assert_int_equal(wait_for(before)->status, STATUS_OK);
    assert_int_equal(wait_for(after)->status, STATUS_OK);
    pthread_mutex_lock(&job.lock);
    while (!job.is_done)
        pthread_cond_wait(&job.done, &job.lock);
    pthread_mutex_unlock(&job.lock);
    /* The job parted what would have been one batch, and its topic's ref was not given again. */
    assert_int_equal(writer_stats(fixture->writer).commits, commits + 3);
    assert_int_equal(writer_stats(fixture->writer).commit_failures, 0);
    assert_true(job.topic_ref > 0);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
    const struct CMUnitTest tests[] = {
        TEST(threads_get_distinct_contiguous_sequences),
        TEST(waiting_requests_are_committed_together_and_answered_in_order),
        TEST(requests_beyond_one_batch_become_several_batches),
        TEST(an_event_id_is_found_after_many_other_events),
        TEST(cursors_rise_when_the_clock_steps_back),
        TEST(appends_to_a_failing_store_are_refused_and_leave_no_gap),
        TEST(an_unreliable_store_is_logged_once_a_second_with_the_reason),
        TEST(a_failed_batch_fails_only_the_requests_that_depend_on_it),
        TEST(refusals_that_depend_on_a_failed_batch_are_withdrawn),
        TEST(every_batch_with_events_is_projected_and_ended_once),
        TEST(a_small_entity_cache_does_not_change_the_answers),
        TEST(a_full_mailbox_and_a_stopped_writer_refuse_requests),
        TEST(waiting_groups_hold_bounded_memory),
        TEST(an_empty_group_is_answered_too),
        TEST(a_request_whose_answer_does_not_fit_stores_nothing),
        cmocka_unit_test_setup_teardown(a_job_runs_between_two_batches_in_order, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
