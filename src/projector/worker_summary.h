/* The worker summary: the state of a worker, folded from its events one at a time.
 * Thread: one at a time for a summary.
 * Memory: as in summary.h.
 * Errors: STATUS_OUT_OF_MEMORY leaves the summary invalid: read it or fold it again.
 * Invariant: the log is trusted: the authority accepts only legal transitions. */
#ifndef PROJECTOR_WORKER_SUMMARY_H
#define PROJECTOR_WORKER_SUMMARY_H

#include "projector/summary.h"

struct worker_summary {
    struct summary common;
    struct slice workspace_ref;
    struct slice codex_home_ref;
    struct slice adapter;
    struct slice metadata; /* an object, or null */
    uint64_t started_at_ms;
    uint64_t stopped_at_ms;
    uint64_t last_heartbeat_at_ms;
};

extern const struct summary_layout worker_summary_layout;

#endif
