/* The run summary: the state of a run, folded from its events one at a time.
 * Any thread; a summary belongs to one thread at a time.
 * Texts live as summary.h says.
 * STATUS_OUT_OF_MEMORY leaves the summary invalid: read it or fold it again.
 * The log is trusted: the authority accepts only legal transitions. */
#ifndef PROJECTOR_RUN_SUMMARY_H
#define PROJECTOR_RUN_SUMMARY_H

#include "projector/summary.h"

struct run_summary {
    struct summary common;
    struct slice thread_id;
};

extern const struct summary_layout run_summary_layout;

#endif
