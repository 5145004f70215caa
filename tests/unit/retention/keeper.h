/* The retention job beside a writer with projector and hub, on a real store, with a test clock. */
#ifndef KEEPER_H
#define KEEPER_H

#include <stdatomic.h>

#include "authority/writer_fixture.h"
#include "base/log.h"
#include "hub/hub.h"
#include "projector/projector.h"
#include "retention/retention.h"

#define HOUR_MS ((uint64_t)3600000)
#define DAY_MS  (24 * HOUR_MS)

struct keeper {
    struct fixture *fixture;
    struct projector *projector;
    struct hub *hub;
    struct retention *retention;
    struct retention_options options;
    struct store_session *reader;
    struct arena arena;
    _Atomic uint64_t wall_ms;
    _Atomic uint64_t mono_ns;
    atomic_int batches; /* calls of on_pruned */
    pthread_mutex_t lock;
    pthread_cond_t read_clock;
    uint64_t clock_readings; /* by the job, one at the start of each pass */
    /* Called by on_pruned, on the writer's thread; may be NULL. */
    void (*on_pruned)(struct keeper *keeper, struct slice topic);
};

static inline struct clock_reading keeper_clock(void *user) {
    struct keeper *keeper = user;
    return (struct clock_reading){atomic_load(&keeper->wall_ms), atomic_load(&keeper->mono_ns)};
}

static inline struct clock_reading keeper_job_clock(void *user) {
    struct keeper *keeper = user;
    pthread_mutex_lock(&keeper->lock);
    keeper->clock_readings++;
    pthread_cond_broadcast(&keeper->read_clock);
    pthread_mutex_unlock(&keeper->lock);
    return keeper_clock(user);
}

/* Returns when the job begins a pass. The passes before it have been counted by then. Only with a
 * short interval: the timer begins one pass after the other. */
static inline void keeper_await_pass(struct keeper *keeper) {
    pthread_mutex_lock(&keeper->lock);
    for (uint64_t before = keeper->clock_readings; keeper->clock_readings == before;)
        pthread_cond_wait(&keeper->read_clock, &keeper->lock);
    pthread_mutex_unlock(&keeper->lock);
}

static inline void keeper_advance(struct keeper *keeper, uint64_t delta_ms) {
    atomic_fetch_add(&keeper->mono_ns, delta_ms * CLOCK_NS_PER_MS);
    atomic_fetch_add(&keeper->wall_ms, delta_ms);
}

static inline void keeper_committed(void *user, const struct store_batch *batch,
                                    const struct store_entity *states) {
    struct keeper *keeper = user;
    fixture_on_commit(keeper->fixture, batch, states);
    hub_publish(keeper->hub, batch, states);
}

static inline void keeper_pruned(void *user, struct slice topic, uint64_t oldest_seq) {
    struct keeper *keeper = user;
    atomic_fetch_add(&keeper->batches, 1);
    hub_prune(keeper->hub, topic, oldest_seq);
    if (keeper->on_pruned)
        keeper->on_pruned(keeper, topic);
}

/* Sets the retention of all classes; 0: the defaults. */
static inline struct keeper *keeper_open_with(uint64_t interval_ms, uint64_t retention_s) {
    struct keeper *keeper = calloc(1, sizeof(*keeper));
    const struct hub_options hub = {{64, 1u << 20}, 64u << 20};
    const struct projector_options derive = {.sink = NULL};
    struct fixture *fixture = keeper->fixture = fixture_new_unlimited();
    log_configure(LOG_OFF, LOG_TEXT, 2);
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_cond_init(&keeper->read_clock, NULL);
    keeper->wall_ms = 1700000000000;
    keeper->mono_ns = 1000000000;
    for (size_t row = 0; row < POLICY_ROW_COUNT && retention_s > 0; row++)
        fixture->policies.rows[row].retention_seconds = retention_s;
    assert_ok(hub_open(&keeper->hub, &hub));
    assert_ok(projector_open(&keeper->projector, &derive));
    fixture->options.projection = projector_projection(keeper->projector);
    fixture->options.on_commit = keeper_committed;
    fixture->options.user = keeper;
    fixture->options.clock_read = keeper_clock;
    fixture->options.clock_user = keeper;
    fixture_open(fixture);
    assert_ok(store_session_open(fixture->store, STORE_READ, &keeper->reader));
    arena_init(&keeper->arena, 1u << 20);
    keeper->options = (struct retention_options){.store = fixture->store,
                                                 .writer = fixture->writer,
                                                 .policies = &fixture->policies,
                                                 .interval_ms = interval_ms,
                                                 .on_pruned = keeper_pruned,
                                                 .on_pruned_user = keeper,
                                                 .clock_read = keeper_job_clock,
                                                 .clock_user = keeper};
    assert_ok(retention_start(&keeper->retention, &keeper->options));
    return keeper;
}

static inline struct keeper *keeper_open(uint64_t interval_ms) {
    return keeper_open_with(interval_ms, 0);
}

static inline void keeper_close(struct keeper *keeper) {
    if (keeper->retention)
        retention_stop(keeper->retention);
    (void)checked_log(keeper->fixture);
    store_session_close(keeper->reader);
    fixture_close(keeper->fixture);
    projector_close(keeper->projector);
    hub_close(keeper->hub);
    arena_release(&keeper->arena);
    pthread_cond_destroy(&keeper->read_clock);
    pthread_mutex_destroy(&keeper->lock);
    fixture_free(keeper->fixture);
    free(keeper);
}

/* ---- requests ---- */

struct run_asked {
    struct retention_request request;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_done;
};

static inline void run_done(struct retention_request *request) {
    struct run_asked *asked = (struct run_asked *)request;
    pthread_mutex_lock(&asked->lock);
    asked->is_done = true;
    pthread_cond_signal(&asked->answered);
    pthread_mutex_unlock(&asked->lock);
}

static inline enum status run_post(struct keeper *keeper, struct run_asked *asked) {
    *asked = (struct run_asked){.request.done = run_done};
    pthread_mutex_init(&asked->lock, NULL);
    pthread_cond_init(&asked->answered, NULL);
    return retention_run_post(keeper->retention, &asked->request);
}

static inline enum status run_wait(struct run_asked *asked) {
    pthread_mutex_lock(&asked->lock);
    while (!asked->is_done)
        pthread_cond_wait(&asked->answered, &asked->lock);
    pthread_mutex_unlock(&asked->lock);
    return asked->request.status;
}

static inline struct retention_report *run_now(struct keeper *keeper) {
    struct run_asked asked;
    assert_ok(run_post(keeper, &asked));
    assert_ok(run_wait(&asked));
    return asked.request.report;
}

/* The number of frames that a run deleted. */
static inline uint64_t run_deleted(struct keeper *keeper) {
    struct retention_report *report = run_now(keeper);
    uint64_t deleted = retention_report_total(report).deleted;
    retention_report_unref(report);
    return deleted;
}

/* ---- reading ---- */

static inline struct store_topic topic_now(struct keeper *keeper, const char *name) {
    struct store_topic topic;
    arena_reset(&keeper->arena);
    assert_ok(store_load_topic(keeper->reader, slice_of(name), &keeper->arena, &topic));
    return topic;
}

static inline uint64_t oldest(struct keeper *keeper, const char *name) {
    return topic_now(keeper, name).oldest_seq;
}

static inline uint64_t head(struct keeper *keeper, const char *name) {
    return topic_now(keeper, name).head_seq;
}

/* ---- appending ---- */

static inline void run_events(struct keeper *keeper, const char *run, size_t count) {
    for (size_t i = 0; i < count; i++)
        (void)ask_ok(keeper->fixture, APPEND_RUN_EVENT, run, "{\"event_type\":\"x\"}");
}

static inline void new_run(struct keeper *keeper, const char *id) {
    char body[128];
    (void)snprintf(body, sizeof(body), "{\"run_id\":\"%s\"}", id);
    (void)ask_ok(keeper->fixture, APPEND_RUN_CREATE, NULL, body);
}

/* Creates runs c0, c1, … with one summary each, in few commits. */
static inline void new_crowd(struct keeper *keeper, size_t count) {
    static struct asked *asked[512];
    for (size_t done = 0; done < count;) {
        size_t part = count - done < 512 ? count - done : 512;
        for (size_t i = 0; i < part; i++) {
            char body[64];
            (void)snprintf(body, sizeof(body), "{\"run_id\":\"c%zu\"}", done + i);
            asked[i] = post(keeper->fixture, APPEND_RUN_CREATE, NULL, body);
        }
        for (size_t i = 0; i < part; i++)
            assert_ok(wait_for(asked[i])->status);
        done += part;
    }
}

#endif
