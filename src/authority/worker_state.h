/* The states of a worker, which may follow which, and how alive it looks.
 * Any thread; values in, values out; allocates nothing.
 * Whether a change is allowed is a plain answer: the rules make a status of it.
 * Any state may be set again; a worker leaves stopped and failed by a new registration or a status.
 */
#ifndef AUTHORITY_WORKER_STATE_H
#define AUTHORITY_WORKER_STATE_H

#include "base/slice.h"
#include "store/store.h"

enum worker_state {
    WORKER_STARTING,
    WORKER_RUNNING,
    WORKER_STOPPING,
    WORKER_STOPPED,
    WORKER_FAILED,
    WORKER_STATE_COUNT,
};

#define WORKER_EVENT_REGISTERED     "worker.registered"
#define WORKER_EVENT_HEARTBEAT      "worker.heartbeat"
#define WORKER_EVENT_STATUS_CHANGED "worker.status_changed"
#define WORKER_HEARTBEAT_STALE_MS   120000u

const char *worker_state_name(enum worker_state state);
/* False when it is no state's name. */
bool worker_state_parse(struct slice name, enum worker_state *state);
bool worker_state_allows(enum worker_state from, enum worker_state to);
/* stopped or failed. */
bool worker_state_is_down(enum worker_state state);
/* fresh, stale, missing (no heartbeat yet), stopped or failed. */
const char *worker_liveness(const struct store_entity *worker, uint64_t now_ms);

#endif
