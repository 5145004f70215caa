/* The worker summary: what a worker's events say of it, folded one event at a time.
 * Any thread; a summary belongs to one at a time. Texts live as summary.h says.
 * STATUS_OUT_OF_MEMORY: the summary is spoilt then, and must be read or folded anew.
 * The log is trusted: the authority let only legal transitions in. */
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

/* event is the one after common.latest_seq. */
MUST_CHECK enum status worker_summary_fold(struct worker_summary *summary,
                                           const struct store_event *event, struct arena *arena);

#endif
