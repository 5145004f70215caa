/* The run summary: the state of a run, folded from its events one at a time.
 * Thread: one at a time for a summary.
 * Memory: as in summary.h.
 * Errors: STATUS_OUT_OF_MEMORY leaves the summary invalid: read it or fold it again.
 * Invariant: the log is trusted: the authority accepts only legal transitions. */
#ifndef PROJECTOR_RUN_SUMMARY_H
#define PROJECTOR_RUN_SUMMARY_H

#include "projector/summary.h"

struct run_summary {
    struct summary common;
    struct slice thread_id;
};

extern const struct summary_layout run_summary_layout;

#endif
