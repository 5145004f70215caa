#include "authority/entity_state.h"

#include <assert.h>

#define BIT(state) (1u << (state))

/* ---- runs ---- */

static const char *const run_names[RUN_STATE_COUNT] = {
    "created", "running", "canceling", "canceled", "succeeded", "failed",
};

/* The states before each state. */
static const unsigned may_come_from[RUN_STATE_COUNT] = {
    [RUN_RUNNING] = BIT(RUN_CREATED) | BIT(RUN_RUNNING),
    [RUN_CANCELING] = BIT(RUN_CREATED) | BIT(RUN_RUNNING) | BIT(RUN_CANCELING),
    [RUN_CANCELED] = BIT(RUN_CREATED) | BIT(RUN_RUNNING) | BIT(RUN_CANCELING),
    [RUN_SUCCEEDED] = BIT(RUN_CREATED) | BIT(RUN_RUNNING),
    [RUN_FAILED] = BIT(RUN_CREATED) | BIT(RUN_RUNNING) | BIT(RUN_CANCELING),
};

static const char *const looks_final[RUN_HINT_COUNT] = {
    "run.failed", "run.error", "run.succeeded", "run.completed", "run.complete",
    "run.done",   "run.ended", "run.stopped",   "run.canceled",  "run.cancelled",
};

const char *run_event_hint(struct slice event_type, unsigned *index) {
    for (unsigned i = 0; i < RUN_HINT_COUNT; i++) {
        if (!slice_equal(event_type, slice_of(looks_final[i])))
            continue;
        *index = i;
        return "The event was stored and changed no state: a run ends with " RUN_EVENT_FINISHED
               " and payload.status succeeded, failed or canceled.";
    }
    return NULL;
}

const char *run_state_name(enum run_state state) {
    assert((unsigned)state < RUN_STATE_COUNT);
    return run_names[state];
}

bool run_state_parse(struct slice name, enum run_state *state) {
    for (unsigned i = 0; i < RUN_STATE_COUNT; i++) {
        if (slice_equal(name, slice_of(run_names[i]))) {
            *state = (enum run_state)i;
            return true;
        }
    }
    return false;
}

bool run_state_is_final(enum run_state state) {
    return state == RUN_CANCELED || state == RUN_SUCCEEDED || state == RUN_FAILED;
}

enum status run_state_next(enum run_state state, struct slice event_type, enum run_state outcome,
                           enum run_state *next) {
    enum run_state wanted = state;
    *next = state;
    if (slice_equal(event_type, SLICE(RUN_EVENT_STARTED)))
        wanted = RUN_RUNNING;
    else if (slice_equal(event_type, SLICE(RUN_EVENT_CANCEL_REQUESTED)))
        wanted = RUN_CANCELING;
    else if (slice_equal(event_type, SLICE(RUN_EVENT_FINISHED)))
        wanted = outcome;
    else
        return STATUS_OK;
    if (!(may_come_from[wanted] & BIT(state)))
        return STATUS_INVALID_TRANSITION;
    *next = wanted;
    return STATUS_OK;
}

/* ---- workers ---- */

static const char *const worker_names[WORKER_STATE_COUNT] = {
    "starting", "running", "stopping", "stopped", "failed",
};

static const unsigned may_go_to[WORKER_STATE_COUNT] = {
    [WORKER_STARTING] = BIT(WORKER_RUNNING) | BIT(WORKER_STOPPING) | BIT(WORKER_FAILED),
    [WORKER_RUNNING] = BIT(WORKER_STOPPING) | BIT(WORKER_STOPPED) | BIT(WORKER_FAILED),
    [WORKER_STOPPING] = BIT(WORKER_STOPPED) | BIT(WORKER_FAILED),
    [WORKER_STOPPED] = BIT(WORKER_STARTING) | BIT(WORKER_RUNNING),
    [WORKER_FAILED] = BIT(WORKER_STARTING) | BIT(WORKER_RUNNING),
};

const char *worker_state_name(enum worker_state state) {
    assert((unsigned)state < WORKER_STATE_COUNT);
    return worker_names[state];
}

bool worker_state_parse(struct slice name, enum worker_state *state) {
    for (unsigned i = 0; i < WORKER_STATE_COUNT; i++) {
        if (slice_equal(name, slice_of(worker_names[i]))) {
            *state = (enum worker_state)i;
            return true;
        }
    }
    return false;
}

bool worker_state_allows(enum worker_state from, enum worker_state to) {
    return from == to || (may_go_to[from] & BIT(to));
}

bool worker_state_is_down(enum worker_state state) {
    return state == WORKER_STOPPED || state == WORKER_FAILED;
}

const char *worker_liveness(const struct store_entity *worker, uint64_t now_ms) {
    enum worker_state state;
    if (worker_state_parse(worker->status, &state) && worker_state_is_down(state))
        return worker_state_name(state);
    if (worker->last_heartbeat_at_ms == 0)
        return "missing";
    /* A heartbeat ahead of this clock is as fresh as one can be. */
    bool is_stale = now_ms > worker->last_heartbeat_at_ms &&
                    now_ms - worker->last_heartbeat_at_ms > WORKER_HEARTBEAT_STALE_MS;
    return is_stale ? "stale" : "fresh";
}
