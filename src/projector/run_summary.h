/* The run summary: what a run's events say of it, folded one event at a time.
 * Any thread; a summary belongs to one at a time. Texts live as summary.h says.
 * STATUS_OUT_OF_MEMORY: the summary is spoilt then, and must be read or folded anew.
 * The log is trusted: the authority let only legal transitions in. */
#ifndef PROJECTOR_RUN_SUMMARY_H
#define PROJECTOR_RUN_SUMMARY_H

#include "projector/summary.h"

struct run_summary {
    struct summary common;
    struct slice thread_id;
};

extern const struct summary_layout run_summary_layout;

/* event is the one after common.latest_seq. */
MUST_CHECK enum status run_summary_fold(struct run_summary *summary,
                                        const struct store_event *event, struct arena *arena);

#endif
