/* The keeper waits for the timer or a request, reads the clock and runs a pass. It posts batches to
 * the writer one by one: each after the end of the previous one and the pause of pace_update, so
 * that it queues behind all appends that arrived meanwhile. */
#include "retention/retention.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "retention/cycle.h"

#define NS_PER_SECOND  ((uint64_t)1000000000)
#define BATCH_WORK_MIN 250
#define PROGRESS_NS    NS_PER_SECOND
/* Every topic is inspected once in this time, even if it is not due. */
#define FULL_PASS_NS (3600 * NS_PER_SECOND)
/* More than the usual error of a clock. */
#define CURSOR_AHEAD_MS 60000

struct class_counters {
    _Atomic uint64_t topics;
    _Atomic uint64_t topics_pruned;
    _Atomic uint64_t deleted;
    _Atomic uint64_t stale_risk_max;
};

struct counters {
    _Atomic uint64_t cycles;
    _Atomic uint64_t failures;
    _Atomic uint64_t duration_ms_last;
    _Atomic uint64_t duration_ms_total;
    _Atomic uint64_t batches;
    _Atomic uint64_t clock_steps;
    struct class_counters classes[TOPIC_CLASS_COUNT];
};

/* One batch in the queue of the writer. */
struct prune_job {
    struct writer_job job;
    struct retention *retention;
    struct prune_batch *batch;
    enum status status;
    struct pace_batch pace;
    bool is_done;
};

/* Pruning stops at them. The lock is held for a whole batch, so that no pin changes meanwhile. */
struct pins {
    pthread_mutex_t lock;
    struct list list;
    _Atomic uint64_t count; /* readable without the lock */
};

struct retention {
    struct retention_options options;
    struct store_session *session;
    struct pins pins;
    struct counters counters;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* monotonic clock */
    bool is_ending;
    struct list requests; /* requests for the next pass */
    struct prune_job job;
    /* Used by the keeper only. */
    struct clock clock;
    struct step_guard guard;
    struct due due;
    struct pace pace;
    struct list served; /* requests of this pass */
    uint64_t progress_at_ns;
    uint64_t full_pass_at_ns;
    unsigned policy_generation; /* by which the due times were computed */
    uint64_t commits_seen;
    bool is_failing;
    bool is_cursor_ahead;
    char error[STORE_MESSAGE_MAX];
};

/* ---- waiting ---- */

static uint64_t read_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static uint64_t mono_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

/* The caller holds the lock. */
static void wait_until(struct retention *retention, uint64_t at_ns) {
    struct timespec at = {(time_t)(at_ns / NS_PER_SECOND), (long)(at_ns % NS_PER_SECOND)};
    (void)pthread_cond_timedwait(&retention->changed, &retention->lock, &at);
}

/* ---- a batch, on the writer's thread ---- */

static void run_job(struct writer_job *base, struct store_session *session) {
    struct prune_job *job = container_of(base, struct prune_job, job);
    struct retention *retention = job->retention;
    const struct retention_options *options = &retention->options;
    struct prune_batch *batch = job->batch;
    uint64_t begun_ns = mono_ns();
    uint64_t computed_ns = read_ns(CLOCK_THREAD_CPUTIME_ID);
    pthread_mutex_lock(&retention->pins.lock);
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t *below_seq = &batch->prunes[i].below_seq;
        for (struct list_node *node = list_first(&retention->pins.list); node;
             node = list_next(&retention->pins.list, node)) {
            const struct retention_pin *pin = container_of(node, struct retention_pin, node);
            if (pin->seq < *below_seq - 1 && slice_equal(pin->topic, batch->names[i]))
                *below_seq = pin->seq + 1;
        }
    }
    job->status = store_prune_topics(session, batch->prunes, batch->count);
    pthread_mutex_unlock(&retention->pins.lock);
    for (size_t i = 0; job->status == STATUS_OK && options->on_pruned && i < batch->count; i++)
        if (batch->prunes[i].pruned > 0)
            options->on_pruned(options->on_pruned_user, batch->names[i],
                               batch->prunes[i].oldest_seq);
    if (job->status != STATUS_OK)
        snprintf(retention->error, sizeof(retention->error), "%s", store_session_error(session));
    job->pace = (struct pace_batch){.work = batch->work,
                                    .computed_ns = read_ns(CLOCK_THREAD_CPUTIME_ID) - computed_ns,
                                    .took_ns = mono_ns() - begun_ns};
    pthread_mutex_lock(&retention->lock);
    job->is_done = true;
    pthread_cond_broadcast(&retention->changed);
    pthread_mutex_unlock(&retention->lock);
}

/* ---- a pass, on the keeper thread ---- */

/* Has the writer prune the batch, and waits for it and for the pause after it. */
static enum status prune(void *user, struct prune_batch *batch) {
    struct retention *retention = user;
    struct prune_job *job = &retention->job;
    *job = (struct prune_job){.job.run = run_job, .retention = retention, .batch = batch};
    enum status status = writer_post_job(retention->options.writer, &retention->job.job);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&retention->lock);
    while (!job->is_done)
        pthread_cond_wait(&retention->changed, &retention->lock);
    pthread_mutex_unlock(&retention->lock);
    if (job->status != STATUS_OK)
        return job->status;
    atomic_fetch_add(&retention->counters.batches, 1);
    metrics_add(METRIC_SYNC_RETENTION_CYCLE_BATCHES, METRIC_PLAIN, 1);
    uint64_t commits = writer_stats(retention->options.writer).commits;
    uint64_t pause_ns =
        pace_update(&retention->pace, &job->pace, commits != retention->commits_seen);
    retention->commits_seen = commits;
    batch->work_max = retention->pace.work_next;
    uint64_t until_ns = mono_ns() + pause_ns;
    pthread_mutex_lock(&retention->lock);
    while (pause_ns > 0 && !retention->is_ending && mono_ns() < until_ns)
        wait_until(retention, until_ns);
    pthread_mutex_unlock(&retention->lock);
    return STATUS_OK;
}

static enum status may_continue(void *user) {
    struct retention *retention = user;
    pthread_mutex_lock(&retention->lock);
    bool is_ending = retention->is_ending;
    pthread_mutex_unlock(&retention->lock);
    if (is_ending)
        return STATUS_SHUTTING_DOWN;
    uint64_t now_ns = mono_ns();
    if (now_ns < retention->progress_at_ns)
        return STATUS_OK;
    retention->progress_at_ns = now_ns + PROGRESS_NS;
    for (struct list_node *node = list_first(&retention->served); node;
         node = list_next(&retention->served, node)) {
        struct retention_request *request = container_of(node, struct retention_request, node);
        if (request->progress)
            request->progress(request);
    }
    return STATUS_OK;
}

/* Counts and logs a pass. A pass that a shutdown ended is counted by its topics only. */
static void record_pass(struct retention *retention, enum status status,
                        const struct retention_report *report, uint64_t duration_ns, bool is_full) {
    struct counters *counters = &retention->counters;
    struct retention_class_totals total = retention_report_total(report);
    bool is_whole = status == STATUS_OK;
    enum label_outcome outcome = is_whole ? LABEL_OUTCOME_OK : LABEL_OUTCOME_FAILED;
    for (size_t i = 0; i < TOPIC_CLASS_COUNT; i++) {
        const struct retention_class_totals *seen = &report->classes[i];
        struct class_counters *class = &counters->classes[i];
        atomic_fetch_add(&class->topics, seen->topics);
        atomic_fetch_add(&class->topics_pruned, seen->topics_pruned);
        atomic_fetch_add(&class->deleted, seen->deleted);
        if ((is_full && is_whole) || seen->stale_risk_max > atomic_load(&class->stale_risk_max))
            atomic_store(&class->stale_risk_max, seen->stale_risk_max);
        if (status == STATUS_SHUTTING_DOWN)
            continue;
        metrics_add(METRIC_SYNC_RETENTION_TOPIC_RUNS, METRIC_LABELS(i, outcome), seen->topics);
        metrics_add(METRIC_SYNC_RETENTION_TOPIC_DELETED, METRIC_LABELS(i, outcome), seen->deleted);
        metrics_set(METRIC_SYNC_RETENTION_TOPIC_STALE_RISK_EVENTS, METRIC_LABELS(i),
                    atomic_load(&class->stale_risk_max));
    }
    if (status == STATUS_SHUTTING_DOWN)
        return;
    metrics_add(METRIC_SYNC_RETENTION_CYCLE, METRIC_LABELS(outcome), 1);
    metrics_observe(METRIC_SYNC_RETENTION_CYCLE_DURATION_SECONDS, METRIC_PLAIN, duration_ns, 1);
    metrics_add(METRIC_SYNC_RETENTION_CYCLE_DELETED, METRIC_PLAIN, total.deleted);
    if (is_whole)
        metrics_set(METRIC_SYNC_RETENTION_CYCLE_LAST_SUCCESS_TIMESTAMP_SECONDS, METRIC_PLAIN,
                    clock_wall_ms(&retention->clock) * CLOCK_NS_PER_MS);
    atomic_fetch_add(&counters->cycles, 1);
    atomic_fetch_add(&counters->failures, !is_whole);
    atomic_store(&counters->duration_ms_last, report->duration_ms);
    atomic_fetch_add(&counters->duration_ms_total, report->duration_ms);
    if (!is_whole && !retention->is_failing)
        log_event(LOG_ERROR, "retention.failed", log_str("status", status_code(status)),
                  log_str("error", retention->error),
                  log_str("effect", "frames are kept until a later pass"));
    else if (is_whole && retention->is_failing)
        log_event(LOG_INFO, "retention.recovered", log_int("deleted", (int64_t)total.deleted));
    retention->is_failing = !is_whole;
    log_event(report->is_listing ? LOG_INFO : LOG_DEBUG, "retention.pass",
              log_int("deleted", (int64_t)total.deleted), log_int("topics", (int64_t)total.topics),
              log_int("topics_pruned", (int64_t)total.topics_pruned),
              log_int("duration_ms", (int64_t)report->duration_ms));
}

static enum status make_pass(struct retention *retention, struct retention_report *report) {
    uint64_t begun_ns = mono_ns();
    struct store_state state;
    clock_tick(&retention->clock);
    const struct step step = step_guard_read(&retention->guard, retention->clock.reading);
    bool is_full = report->is_listing || begun_ns >= retention->full_pass_at_ns;
    /* After a step of the clock, or with other rules, the due times are invalid. */
    unsigned generation = policy_generation(retention->options.policies);
    if (is_full || step.event != STEP_NONE || generation != retention->policy_generation)
        due_clear(&retention->due);
    retention->policy_generation = generation;
    if (step.event != STEP_NONE) {
        atomic_fetch_add(&retention->counters.clock_steps, 1);
        log_event(LOG_WARN, "retention.clock_stepped", log_str("step", step_event_name(step.event)),
                  log_int("step_ms", (int64_t)step.step_ms),
                  log_int("judged_by_ms", (int64_t)step.now_ms),
                  log_int("hold_ms", step.event == STEP_FORWARD ? (int64_t)STEP_GUARD_HOLD_MS : 0));
    }
    /* Cursors order events and never go back. Retention goes by recorded_at and is not affected. */
    if (store_read_state(retention->session, &state) == STATUS_OK && state.log_id > 0) {
        uint64_t cursor_ms = uuid7_timestamp_ms(&state.cursor);
        bool is_ahead = cursor_ms > step.now_ms + CURSOR_AHEAD_MS;
        if (is_ahead && !retention->is_cursor_ahead)
            log_event(LOG_WARN, "log.cursor_clock_ahead",
                      log_int("ahead_ms", (int64_t)(cursor_ms - step.now_ms)),
                      log_str("effect", "new cursors keep that time until the clock has caught "
                                        "up"));
        retention->is_cursor_ahead = is_ahead;
    }
    retention->progress_at_ns = begun_ns + PROGRESS_NS;
    retention->error[0] = '\0';
    const struct cycle_options options = {
        .session = retention->session,
        .policies = retention->options.policies,
        .now_ms = step.now_ms,
        .work_max = retention->pace.work_next,
        .due = &retention->due,
        .user = retention,
        .prune = prune,
        .may_continue = may_continue,
    };
    enum status status = retention_cycle(&options, report);
    if (status != STATUS_OK && retention->error[0] == '\0')
        snprintf(retention->error, sizeof(retention->error), "%s",
                 store_session_error(retention->session));
    uint64_t duration_ns = mono_ns() - begun_ns;
    report->duration_ms = duration_ns / CLOCK_NS_PER_MS;
    if (is_full && status == STATUS_OK)
        retention->full_pass_at_ns = begun_ns + FULL_PASS_NS;
    record_pass(retention, status, report, duration_ns, is_full);
    return status;
}

static void answer_served(struct retention *retention, enum status status,
                          struct retention_report *report) {
    /* done may free the request. */
    for (struct list_node *node; (node = list_pop_front(&retention->served));) {
        struct retention_request *request = container_of(node, struct retention_request, node);
        request->status = status;
        request->report = status == STATUS_OK ? retention_report_ref(report) : NULL;
        request->done(request);
    }
}

/* The caller holds the lock. */
static void take_requests(struct retention *retention) {
    for (struct list_node *node; (node = list_pop_front(&retention->requests));)
        list_push_back(&retention->served, node);
}

static void measure_store(struct retention *retention) {
    struct store_size size;
    if (store_measure(retention->session, &size) != STATUS_OK)
        return; /* the pass meets the same fault, and reports it */
    metrics_set(METRIC_STORE_BYTES, METRIC_PLAIN, size.bytes);
    metrics_set(METRIC_STORE_WAL_BYTES, METRIC_PLAIN, size.wal_bytes);
}

static void *keeper_main(void *argument) {
    struct retention *retention = argument;
    uint64_t interval_ns = retention->options.interval_ms * CLOCK_NS_PER_MS;
    uint64_t pass_at_ns = mono_ns() + interval_ns;
    measure_store(retention);
    pthread_mutex_lock(&retention->lock);
    while (!retention->is_ending) {
        if (list_is_empty(&retention->requests) && mono_ns() < pass_at_ns) {
            wait_until(retention, pass_at_ns);
            continue;
        }
        take_requests(retention);
        pass_at_ns = mono_ns() + interval_ns;
        pthread_mutex_unlock(&retention->lock);
        measure_store(retention);
        /* The writer prunes for all nodes. A request is answered that this node cannot. */
        if (writer_has_role(retention->options.writer) || !list_is_empty(&retention->served)) {
            struct retention_report *report =
                retention_report_new(!list_is_empty(&retention->served));
            enum status status = report ? make_pass(retention, report) : STATUS_OUT_OF_MEMORY;
            answer_served(retention, status, report);
            retention_report_unref(report);
        }
        pthread_mutex_lock(&retention->lock);
    }
    take_requests(retention);
    pthread_mutex_unlock(&retention->lock);
    answer_served(retention, STATUS_SHUTTING_DOWN, NULL);
    return NULL;
}

/* ---- start and stop ---- */

static void retention_free(struct retention *retention) {
    store_session_close(retention->session);
    due_clear(&retention->due);
    assert(list_is_empty(&retention->pins.list));
    pthread_mutex_destroy(&retention->pins.lock);
    pthread_cond_destroy(&retention->changed);
    pthread_mutex_destroy(&retention->lock);
    free(retention);
}

enum status retention_start(struct retention **retention, const struct retention_options *options) {
    assert(options->store && options->writer && options->policies && options->interval_ms > 0);
    struct retention *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    list_init(&made->requests);
    list_init(&made->served);
    clock_init_source(&made->clock, options->clock_user, options->clock_read);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->pins.lock, NULL);
    list_init(&made->pins.list);
    pace_init(&made->pace, BATCH_WORK_MIN, PRUNE_BATCH_WORK_MAX);
    /* Later steps of the clock are measured from this reading. */
    (void)step_guard_read(&made->guard, made->clock.reading);
    enum status status = store_session_open(options->store, STORE_READ, &made->session);
    if (status != STATUS_OK)
        goto out;
    if (pthread_create(&made->thread, NULL, keeper_main, made) != 0) {
        status = STATUS_SYSTEM_ERROR;
        goto out;
    }
    *retention = made;
    made = NULL;
out:
    if (made)
        retention_free(made);
    return status;
}

enum status retention_run_post(struct retention *retention, struct retention_request *request) {
    enum status status = STATUS_OK;
    assert(request->done);
    pthread_mutex_lock(&retention->lock);
    if (retention->is_ending) {
        status = STATUS_SHUTTING_DOWN;
    } else {
        request->node = (struct list_node){0};
        list_push_back(&retention->requests, &request->node);
        pthread_cond_broadcast(&retention->changed);
    }
    pthread_mutex_unlock(&retention->lock);
    return status;
}

void retention_end_post(struct retention *retention) {
    pthread_mutex_lock(&retention->lock);
    retention->is_ending = true;
    pthread_cond_broadcast(&retention->changed);
    pthread_mutex_unlock(&retention->lock);
}

void retention_stop(struct retention *retention) {
    retention_end_post(retention);
    int error = pthread_join(retention->thread, NULL);
    assert(error == 0);
    (void)error;
    retention_free(retention);
}

void retention_pin(struct retention *retention, struct retention_pin *pin, struct slice topic,
                   uint64_t seq) {
    struct pins *pins = &retention->pins;
    pthread_mutex_lock(&pins->lock);
    *pin = (struct retention_pin){.topic = topic, .seq = seq};
    list_push_back(&pins->list, &pin->node);
    pins->count++;
    pthread_mutex_unlock(&pins->lock);
}

void retention_unpin(struct retention *retention, struct retention_pin *pin) {
    struct pins *pins = &retention->pins;
    pthread_mutex_lock(&pins->lock);
    list_remove(&pin->node);
    pins->count--;
    pthread_mutex_unlock(&pins->lock);
}

struct retention_stats retention_stats(const struct retention *retention) {
    const struct counters *counters = &retention->counters;
    struct retention_stats stats = {
        .cycles = atomic_load(&counters->cycles),
        .failures = atomic_load(&counters->failures),
        .duration_ms_last = atomic_load(&counters->duration_ms_last),
        .duration_ms_total = atomic_load(&counters->duration_ms_total),
        .batches = atomic_load(&counters->batches),
        .clock_steps = atomic_load(&counters->clock_steps),
        .pins = atomic_load(&retention->pins.count),
    };
    for (size_t i = 0; i < TOPIC_CLASS_COUNT; i++) {
        const struct class_counters *class = &counters->classes[i];
        stats.classes[i] = (struct retention_class_totals){
            .topics = atomic_load(&class->topics),
            .topics_pruned = atomic_load(&class->topics_pruned),
            .deleted = atomic_load(&class->deleted),
            .stale_risk_max = atomic_load(&class->stale_risk_max),
        };
    }
    return stats;
}
