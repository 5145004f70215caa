#include "delivery/snapshot/snapshot_service.h"

#include <stdlib.h>

#include "base/list.h"

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
