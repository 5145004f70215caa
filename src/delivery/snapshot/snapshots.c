/* Each topic has a slot with its current snapshot. A request reads the floor and the head of the
 * journal, and gets the current snapshot if it is young enough and the journal behind it is
 * complete. Otherwise it waits, and the first that waits starts a build. The end of the build
 * answers all that wait. The service posts builds to a pool of one thread, and lets loops wait
 * without blocking. */
#include "delivery/snapshot/snapshots.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metrics.h"
#include "delivery/repair.h"
#include "delivery/snapshot/snapshot.h"

/* Repairs on behalf of one build, of up to SNAPSHOT_DAMAGES_MAX documents each. */
#define REPAIRS_MAX 64

struct slot {
    struct snapshot *current; /* also in alive; NULL: none may be handed out */
    uint64_t made_at_ms;      /* when the current one was first requested */
    uint64_t asked_at_ms;     /* when the build under way was requested */
    bool is_building;
    struct list askers; /* the requests that wait for the build under way */
    uint64_t built_count;
    uint64_t failed_count;
    uint64_t served_count;
    enum status last_status; /* the result of the last build; only the builder's thread uses it,
                                without the lock */
};

struct snapshots {
    struct snapshots_options options;
    pthread_mutex_t lock;
    struct slot slots[POLICY_ROW_COUNT];
    struct list alive; /* all snapshots, with a reference of each; the newest first */
    uint64_t bytes;    /* the size of all files, also those being built */
    bool is_cancelled;
};

/* One build, and what it must give back if it fails. */
struct build_work {
    struct snapshots *snapshots;
    const struct policy *policy;
    uint64_t reserved_bytes;
    uint64_t watermark;
    bool is_pinned;
};

enum status snapshots_open(struct snapshots **snapshots, const struct snapshots_options *options) {
    struct snapshots *made = calloc(1, sizeof(*made));
    assert(!options->pin == !options->unpin);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    list_init(&made->alive);
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++)
        list_init(&made->slots[i].askers);
    pthread_mutex_init(&made->lock, NULL);
    *snapshots = made;
    return STATUS_OK;
}

static const struct policy *policy_at(const struct snapshots *snapshots, enum policy_row row) {
    const struct policy_table *policies = snapshots->options.policies;
    assert(policy_has_snapshot(&policies->rows[row]));
    return policy_of(policies, policy_snapshot_topic(&policies->rows[row]));
}

static bool is_fresh(const struct slot *slot, uint64_t now_ms) {
    uint64_t cadence_ms = slot->current->policy->snapshot_cadence_seconds * 1000;
    return now_ms < slot->made_at_ms || now_ms - slot->made_at_ms < cadence_ms;
}

/* ---- releasing ---------------------------------------------------------------------------- */

static bool is_current(const struct snapshots *snapshots, const struct snapshot *snapshot) {
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++)
        if (snapshots->slots[i].current == snapshot)
            return true;
    return false;
}

/* Moves the snapshots that are not current and have no other reference to idle. Lock held. */
static void take_idle(struct snapshots *snapshots, struct list *idle) {
    list_init(idle);
    for (struct list_node *node = list_first(&snapshots->alive), *next; node; node = next) {
        struct snapshot *snapshot = container_of(node, struct snapshot, node);
        next = list_next(&snapshots->alive, node);
        if (is_current(snapshots, snapshot) || atomic_load(&snapshot->references) > 1)
            continue;
        list_remove(node);
        list_push_front(idle, node);
    }
}

static void drop_idle(struct snapshots *snapshots, struct list *idle) {
    const struct snapshots_options *options = &snapshots->options;
    struct list_node *node;
    while ((node = list_pop_front(idle))) {
        struct snapshot *snapshot = container_of(node, struct snapshot, node);
        uint64_t disk_bytes = snapshot->disk_bytes;
        if (options->unpin)
            options->unpin(options->keeper, snapshot->topic, snapshot->watermark);
        snapshot_unref(snapshot);
        /* The disk is free only after the last reference is gone. */
        pthread_mutex_lock(&snapshots->lock);
        snapshots->bytes -= disk_bytes;
        pthread_mutex_unlock(&snapshots->lock);
    }
}

void snapshots_tick(struct snapshots *snapshots, uint64_t now_ms) {
    struct list idle;
    pthread_mutex_lock(&snapshots->lock);
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++)
        if (snapshots->slots[i].current && !is_fresh(&snapshots->slots[i], now_ms))
            snapshots->slots[i].current = NULL;
    take_idle(snapshots, &idle);
    pthread_mutex_unlock(&snapshots->lock);
    drop_idle(snapshots, &idle);
}

void snapshots_close(struct snapshots *snapshots) {
    struct list idle;
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++) {
        assert(!snapshots->slots[i].is_building && list_is_empty(&snapshots->slots[i].askers));
        snapshots->slots[i].current = NULL;
    }
    take_idle(snapshots, &idle);
    drop_idle(snapshots, &idle);
    assert(list_is_empty(&snapshots->alive) && snapshots->bytes == 0);
    pthread_mutex_destroy(&snapshots->lock);
    free(snapshots);
}

void snapshots_cancel(struct snapshots *snapshots) {
    pthread_mutex_lock(&snapshots->lock);
    snapshots->is_cancelled = true;
    pthread_mutex_unlock(&snapshots->lock);
}

/* ---- building ----------------------------------------------------------------------------- */

static void build_began(void *user, uint64_t watermark) {
    struct build_work *work = user;
    const struct snapshots_options *options = &work->snapshots->options;
    work->watermark = watermark;
    work->is_pinned = true;
    if (options->pin)
        options->pin(options->keeper, policy_snapshot_topic(work->policy), watermark);
}

static bool withdraw_oldest(struct snapshots *snapshots) {
    uint64_t disk_bytes = 0;
    struct snapshot *oldest = NULL;
    pthread_mutex_lock(&snapshots->lock);
    for (struct list_node *node = list_first(&snapshots->alive); node;
         node = list_next(&snapshots->alive, node)) {
        struct snapshot *one = container_of(node, struct snapshot, node);
        if (one->disk_bytes > 0 && !is_current(snapshots, one))
            oldest = one;
    }
    if (oldest) {
        disk_bytes = oldest->disk_bytes;
        oldest->disk_bytes = 0;
        (void)snapshot_ref(oldest);
    }
    pthread_mutex_unlock(&snapshots->lock);
    if (!oldest)
        return false;
    snapshot_withdraw(oldest);
    log_event(LOG_WARN, "snapshot.withdrawn", log_slice("topic", oldest->topic),
              log_int("watermark", (int64_t)oldest->watermark),
              log_int("bytes", (int64_t)disk_bytes),
              log_str("reason", "it was still being read, and a new one needs its room"));
    snapshot_unref(oldest);
    pthread_mutex_lock(&snapshots->lock);
    snapshots->bytes -= disk_bytes;
    pthread_mutex_unlock(&snapshots->lock);
    return true;
}

static enum status reserve(struct snapshots *snapshots, uint64_t bytes) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&snapshots->lock);
    if (snapshots->is_cancelled)
        status = STATUS_SHUTTING_DOWN;
    else if (bytes > snapshots->options.bytes_max - snapshots->bytes)
        status = STATUS_LIMIT_REACHED;
    else
        snapshots->bytes += bytes;
    pthread_mutex_unlock(&snapshots->lock);
    return status;
}

static enum status build_reserve(void *user, uint64_t bytes) {
    struct build_work *work = user;
    enum status status = reserve(work->snapshots, bytes);
    while (status == STATUS_LIMIT_REACHED && withdraw_oldest(work->snapshots))
        status = reserve(work->snapshots, bytes);
    if (status == STATUS_OK)
        work->reserved_bytes += bytes;
    return status;
}

static void build_undo(struct build_work *work) {
    struct snapshots *snapshots = work->snapshots;
    const struct snapshots_options *options = &snapshots->options;
    pthread_mutex_lock(&snapshots->lock);
    snapshots->bytes -= work->reserved_bytes;
    pthread_mutex_unlock(&snapshots->lock);
    if (work->is_pinned && options->unpin)
        options->unpin(options->keeper, policy_snapshot_topic(work->policy), work->watermark);
}

static void count_served(struct slot *slot) {
    slot->served_count++;
    metrics_add(METRIC_SNAPSHOT_SERVED, METRIC_PLAIN, 1);
}

/* The build is over, with a snapshot or without: answers all requests that wait for it. */
static void build_end(struct snapshots *snapshots, enum policy_row row, enum status status,
                      struct snapshot *made) {
    struct slot *slot = &snapshots->slots[row];
    struct list answered;
    struct list_node *node;
    list_init(&answered);
    pthread_mutex_lock(&snapshots->lock);
    assert(slot->is_building);
    slot->is_building = false;
    *(status == STATUS_OK ? &slot->built_count : &slot->failed_count) += 1;
    metrics_add(METRIC_SNAPSHOT_BUILDS,
                METRIC_LABELS(status == STATUS_OK ? LABEL_OUTCOME_OK : LABEL_OUTCOME_FAILED), 1);
    if (made) {
        made->disk_bytes = made->file_bytes;
        list_push_front(&snapshots->alive, &made->node);
        slot->current = made;
        slot->made_at_ms = slot->asked_at_ms;
    }
    while ((node = list_pop_front(&slot->askers))) {
        struct snapshot_asker *asker = container_of(node, struct snapshot_asker, node);
        list_push_back(&answered, node);
        asker->status = status;
        asker->snapshot = made ? snapshot_ref(made) : NULL;
        if (made)
            count_served(slot);
    }
    pthread_mutex_unlock(&snapshots->lock);
    while ((node = list_pop_front(&answered))) {
        struct snapshot_asker *asker = container_of(node, struct snapshot_asker, node);
        asker->answered(asker);
    }
}

/* Has the documents repaired that a build found damaged. False: they cannot be repaired now. */
static bool repair_documents(struct writer *writer, struct snapshot_build *build) {
    bool is_repaired = false;
    bool is_refused = !writer;
    for (size_t i = 0; writer && i < build->damaged_count; i++) {
        const struct store_damage damage = {.kind = build->policy->snapshot_document,
                                            .entity_ref = build->damaged_refs[i]};
        enum status status = repair(writer, &damage);
        is_refused |= status != STATUS_OK && status != STATUS_NOT_FOUND;
        is_repaired |= status == STATUS_OK;
    }
    /* Entities without an event have no document. */
    if (!is_repaired && !is_refused)
        build->absent_ref = build->damaged_refs[build->damaged_count - 1];
    return !is_refused;
}

void snapshots_build(struct snapshots *snapshots, struct store_session *session,
                     enum policy_row row) {
    struct writer *writer = snapshots->options.writer;
    struct build_work work = {.snapshots = snapshots, .policy = policy_at(snapshots, row)};
    struct snapshot_build build = {.row = row,
                                   .policy = work.policy,
                                   .folder = snapshots->options.folder,
                                   .user = &work,
                                   .began = build_began,
                                   .reserve = build_reserve,
                                   .finds_missing = writer && repair_finds_missing(writer)};
    struct snapshot *made = NULL;
    struct list idle;
    /* The last readers of the previous snapshot may have finished since the last tick. */
    pthread_mutex_lock(&snapshots->lock);
    take_idle(snapshots, &idle);
    pthread_mutex_unlock(&snapshots->lock);
    drop_idle(snapshots, &idle);
    log_event(LOG_DEBUG, "snapshot.building",
              log_slice("topic", policy_snapshot_topic(work.policy)));
    uint64_t begun_ns = clock_now().mono_ns;
    enum status status = snapshot_build(&build, session, &made);
    for (int i = 0; i < REPAIRS_MAX && build.damaged_count > 0 && repair_documents(writer, &build);
         i++) {
        build_undo(&work);
        work = (struct build_work){.snapshots = snapshots, .policy = work.policy};
        status = snapshot_build(&build, session, &made);
    }
    metrics_observe(METRIC_SNAPSHOT_BUILD_DURATION_SECONDS, METRIC_PLAIN,
                    clock_now().mono_ns - begun_ns, 1);
    if (status == STATUS_OK) {
        log_event(LOG_INFO, "snapshot.built",
                  log_slice("topic", policy_snapshot_topic(work.policy)),
                  log_int("watermark", (int64_t)made->watermark),
                  log_int("documents", (int64_t)made->document_count),
                  log_int("bytes", (int64_t)made->file_bytes));
    } else {
        build_undo(&work);
        /* A repeated status is not a warning: clients set the pace of builds. */
        log_event(snapshots->slots[row].last_status == status ? LOG_DEBUG : LOG_WARN,
                  "snapshot.failed", log_slice("topic", policy_snapshot_topic(work.policy)),
                  log_str("code", status_code(status)), log_str("reason", build.reason));
    }
    snapshots->slots[row].last_status = status;
    build_end(snapshots, row, status, made);
}

/* ---- asking ------------------------------------------------------------------------------- */

/* The state of the store that a snapshot is compared with. */
struct journal_range {
    struct topic_epoch epoch;
    bool has_fork;
    uint64_t oldest_seq;
    uint64_t head_seq;
};

static enum status read_journal_range(struct store_session *session, struct slice topic_name,
                                      struct journal_range *range) {
    struct arena arena;
    struct store_topic topic;
    struct store_state state;
    arena_init(&arena, SNAPSHOTS_ARENA_BYTES_MAX);
    enum status status = store_read_state(session, &state);
    if (status == STATUS_OK)
        status = store_load_topic(session, topic_name, &arena, &topic);
    if (status == STATUS_OK) {
        range->epoch = topic_epoch_of(&state, &topic);
        range->has_fork = state.has_fork;
        range->oldest_seq = topic.oldest_seq;
        range->head_seq = topic.head_seq;
    }
    arena_release(&arena);
    return status == STATUS_NOT_FOUND ? STATUS_INTERNAL_ERROR : status;
}

/* Whether a client that gets the snapshot now can follow the topic from its watermark: the journal
 * after it is complete, and so short that the replay budget is not exceeded before the client has
 * read the snapshot. Otherwise a client of a busy topic would get the same snapshot again and again
 * until its cadence is over. */
static bool is_usable(const struct slot *slot, uint64_t now_ms, const struct journal_range *range) {
    const struct snapshot *current = slot->current;
    if (!current || !is_fresh(slot, now_ms))
        return false;
    uint64_t behind =
        range->head_seq > current->watermark ? range->head_seq - current->watermark : 0;
    return current->watermark + 1 >= range->oldest_seq &&
           behind <= current->policy->replay_budget_events / 2 &&
           current->has_fork == range->has_fork &&
           strcmp(current->epoch.text, range->epoch.text) == 0;
}

void snapshots_ask(struct snapshots *snapshots, struct store_session *session, enum policy_row row,
                   uint64_t now_ms, struct snapshot_asker *asker) {
    const struct policy *policy = policy_at(snapshots, row);
    struct journal_range range;
    asker->snapshot = NULL;
    asker->node = (struct list_node){0};
    asker->status = read_journal_range(session, policy_snapshot_topic(policy), &range);
    if (asker->status != STATUS_OK) {
        asker->answered(asker);
        return;
    }
    struct slot *slot = &snapshots->slots[row];
    bool starts = false;
    pthread_mutex_lock(&snapshots->lock);
    if (is_usable(slot, now_ms, &range)) {
        asker->snapshot = snapshot_ref(slot->current);
        count_served(slot);
    } else {
        slot->current = NULL;
        list_push_back(&slot->askers, &asker->node);
        starts = !slot->is_building;
        if (starts)
            slot->asked_at_ms = now_ms;
        slot->is_building = true;
        /* The end of the build answers. */
        asker = NULL;
    }
    pthread_mutex_unlock(&snapshots->lock);
    if (asker)
        asker->answered(asker);
    if (!starts)
        return;
    enum status status = snapshots->options.start(snapshots->options.builder, row);
    if (status != STATUS_OK)
        build_end(snapshots, row, status, NULL);
}

/* ---- state -------------------------------------------------------------------------------- */

bool snapshots_read_state(struct snapshots *snapshots, enum policy_row row, uint64_t now_ms,
                          struct snapshots_state *state) {
    const struct policy *policy = &snapshots->options.policies->rows[row];
    if (!policy_has_snapshot(policy))
        return false;
    pthread_mutex_lock(&snapshots->lock);
    const struct slot *slot = &snapshots->slots[row];
    *state = (struct snapshots_state){.topic = policy_snapshot_topic(policy),
                                      .is_building = slot->is_building,
                                      .has_current = slot->current != NULL,
                                      .built_count = slot->built_count,
                                      .failed_count = slot->failed_count,
                                      .served_count = slot->served_count};
    if (slot->current) {
        state->watermark = slot->current->watermark;
        state->document_count = slot->current->document_count;
        state->file_bytes = slot->current->file_bytes;
        state->age_ms = now_ms > slot->made_at_ms ? now_ms - slot->made_at_ms : 0;
    }
    pthread_mutex_unlock(&snapshots->lock);
    return true;
}

uint64_t snapshots_bytes(struct snapshots *snapshots) {
    pthread_mutex_lock(&snapshots->lock);
    uint64_t bytes = snapshots->bytes;
    pthread_mutex_unlock(&snapshots->lock);
    return bytes;
}

/* ---- the service ---- */

#define TICK_MS 1000

static const struct store_client server_client = {.key = SLICE("")};

/* ---- building ----------------------------------------------------------------------------- */

static bool build_run(struct store_task *task, struct store_session *session) {
    struct snapshot_build_task *build = container_of(task, struct snapshot_build_task, task);
    snapshots_build(build->snapshots, session, build->row);
    return false;
}

/* Any thread. A row's task is not posted again before it has run: the builds of a row do not
 * overlap. */
static enum status build_start(void *user, enum policy_row row) {
    struct snapshot_service *service = user;
    return store_pool_post(service->builder, &service->tasks[row].task, &server_client);
}

/* ---- pins of the journal ------------------------------------------------------------------ */

struct snapshot_pin {
    struct retention_pin pin;
    struct list_node node; /* in service.pins */
};

/* Without memory for the pin, the journal after the snapshot may be pruned. Its clients are stale
 * then, and learn it as after any pruning. */
static void pin(void *user, struct slice topic, uint64_t seq) {
    struct snapshot_service *service = user;
    struct snapshot_pin *made = calloc(1, sizeof(*made));
    if (!made)
        return;
    retention_pin(service->retention, &made->pin, topic, seq);
    pthread_mutex_lock(&service->pins_lock);
    list_push_front(&service->pins, &made->node);
    pthread_mutex_unlock(&service->pins_lock);
}

static void unpin(void *user, struct slice topic, uint64_t seq) {
    struct snapshot_service *service = user;
    struct snapshot_pin *found = NULL;
    pthread_mutex_lock(&service->pins_lock);
    for (struct list_node *node = list_first(&service->pins); node && !found;
         node = list_next(&service->pins, node)) {
        struct snapshot_pin *one = container_of(node, struct snapshot_pin, node);
        if (one->pin.seq == seq && slice_equal(one->pin.topic, topic))
            found = one;
    }
    if (found)
        list_remove(&found->node);
    pthread_mutex_unlock(&service->pins_lock);
    if (found)
        retention_unpin(service->retention, &found->pin);
    free(found);
}

enum status snapshot_service_start(struct snapshot_service *service,
                                   const struct snapshot_service_options *options) {
    const struct snapshots_options snapshots = {.policies = options->policies,
                                                .folder = options->folder,
                                                .bytes_max = options->bytes_max,
                                                .builder = service,
                                                .start = build_start,
                                                .keeper = service,
                                                .pin = pin,
                                                .unpin = unpin,
                                                .writer = options->writer};
    service->retention = options->retention;
    service->store_pool = options->store_pool;
    pthread_mutex_init(&service->pins_lock, NULL);
    list_init(&service->pins);
    enum status status = snapshots_open(&service->snapshots, &snapshots);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++)
        service->tasks[i] = (struct snapshot_build_task){
            .task.run = build_run, .snapshots = service->snapshots, .row = (enum policy_row)i};
    return store_pool_start(&service->builder, options->store,
                            &(struct store_pool_options){.thread_count = 1,
                                                         .tasks_max = POLICY_ROW_COUNT,
                                                         .principal_tasks_max = POLICY_ROW_COUNT});
}

void snapshot_service_cancel(struct snapshot_service *service) {
    if (service->snapshots)
        snapshots_cancel(service->snapshots);
}

void snapshot_service_stop(struct snapshot_service *service) {
    if (service->builder)
        store_pool_stop(service->builder);
    if (service->snapshots)
        snapshots_close(service->snapshots);
}

static void on_tick(uv_timer_t *timer) {
    struct snapshot_service *service = timer->data;
    struct clock clock;
    clock_init(&clock);
    snapshots_tick(service->snapshots, clock_mono_ms(&clock));
}

void snapshot_service_timer(struct snapshot_service *service, uv_loop_t *control) {
    uv_timer_init(control, &service->timer);
    service->timer.data = service;
    uv_timer_start(&service->timer, on_tick, TICK_MS, TICK_MS);
}

/* ---- waiting ------------------------------------------------------------------------------ */

static void wait_done(struct call *call) {
    struct snapshot_wait *wait = container_of(call, struct snapshot_wait, call);
    wait->done(wait);
}

/* On a thread of the store pool, or on the builder's. */
static void wait_answered(struct snapshot_asker *asker) {
    struct snapshot_wait *wait = container_of(asker, struct snapshot_wait, asker);
    wait->status = asker->status;
    wait->snapshot = asker->snapshot;
    call_return_post(&wait->call);
}

static bool wait_ask(struct store_task *task, struct store_session *session) {
    struct snapshot_wait *wait = container_of(task, struct snapshot_wait, task);
    snapshots_ask(wait->snapshots, session, wait->row, wait->asked_at_ms, &wait->asker);
    return false;
}

void snapshot_wait_begin(struct snapshot_wait *wait, struct snapshot_service *service,
                         struct io_loop *loop, enum policy_row row,
                         const struct store_client *client) {
    wait->task.run = wait_ask;
    wait->call.done = wait_done;
    wait->asker.answered = wait_answered;
    wait->snapshots = service->snapshots;
    wait->row = row;
    wait->asked_at_ms = clock_mono_ms(&loop->clock);
    wait->snapshot = NULL;
    call_begin(&wait->call, loop);
    enum status status = store_pool_post(service->store_pool, &wait->task, client);
    /* Once posted, the wait belongs to the pool's thread, and may even be answered by now. */
    if (status == STATUS_OK)
        return;
    wait->status = status;
    call_return_post(&wait->call);
}
