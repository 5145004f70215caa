/* The run summary: the state of a run, folded from its events one at a time.
 * Thread: one at a time for a summary.
 * Memory: as in summary.h.
 * Errors: STATUS_OUT_OF_MEMORY leaves the summary invalid: read it or fold it again.
 * Invariant: the log is trusted: the authority accepts only legal transitions. */
#ifndef PROJECTOR_RUN_SUMMARY_H
#define PROJECTOR_RUN_SUMMARY_H

#include "projector/summary.h"

/* Open steps beyond these are counted, and forgotten: the oldest first. */
#define RUN_OPEN_STEPS_KEPT_MAX 32
/* The error of a failed run is cut at these sizes. */
#define RUN_ERROR_CODE_BYTES_MAX    128
#define RUN_ERROR_MESSAGE_BYTES_MAX 1024

struct run_summary {
    struct summary common;
    struct slice parent_run_id;
    struct slice thread_id;
    struct slice worker_id;
    struct slice title;
    struct slice tags;
    struct slice metadata; /* an object, or null */
    /* The newest open step {name, started_at, step_id}; null: the run has none. */
    struct slice current_step;
    /* The open steps before it, the newest last; those that were forgotten are absent. */
    struct slice other_open_steps;
    uint64_t open_steps;  /* all of them */
    struct slice waiting; /* {for, question, since}; null: for nothing */
    struct slice usage;   /* {cost, input_tokens, model, output_tokens}; null: none was told */
    struct slice error;   /* {code, message}; null: the run has not failed, or did not say why */
};

extern const struct summary_layout run_summary_layout;

#endif
