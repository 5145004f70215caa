#include "authority/worker_state.h"

#include <assert.h>

#define BIT(state) (1u << (state))

static const char *const names[WORKER_STATE_COUNT] = {
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
    return names[state];
}

bool worker_state_parse(struct slice name, enum worker_state *state) {
    for (unsigned i = 0; i < WORKER_STATE_COUNT; i++) {
        if (slice_equal(name, slice_of(names[i]))) {
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
