/* Folding whatever the kind: one event onto a summary, or an entity's events from the log.
 * A fold belongs to one thread. It owns the memory its summary's texts lie in, and keeps it small
 * however many events it takes: now and then it moves the summary and forgets what the events left.
 * STATUS_INTERNAL_ERROR: the log has a hole; STATUS_NOT_FOUND: it ends too early; the store's own;
 * STATUS_OUT_OF_MEMORY. After a failure the summary is spoilt.
 * Reading back what was written and folding on equals folding on. */
#ifndef PROJECTOR_FOLD_H
#define PROJECTOR_FOLD_H

#include "projector/run_summary.h"
#include "projector/worker_summary.h"

union any_summary {
    struct summary common;
    struct run_summary run;
    struct worker_summary worker;
};

const struct summary_layout *fold_layout(enum document_kind kind);
MUST_CHECK enum status fold_event(enum document_kind kind, union any_summary *summary,
                                  const struct store_event *event, struct arena *arena);
/* Moves every text of a summary into another arena, by way of its document. */
MUST_CHECK enum status fold_move(enum document_kind kind, union any_summary *summary,
                                 struct arena *arena);

struct fold {
    enum document_kind kind;
    union any_summary summary;
    struct arena arenas[2];
    unsigned arena_index;
    uint64_t event_count; /* folded from the log */
};

typedef void fold_event_cb(void *user, const struct store_event *event);

/* Starts with no events. entity_id must outlive the fold. */
void fold_init(struct fold *fold, enum document_kind kind, struct slice entity_id);
void fold_release(struct fold *fold);
/* Folds the events after summary.common.latest_seq up to until_seq. callback, which may be NULL,
 * sees each. */
MUST_CHECK enum status fold_from_log(struct fold *fold, struct store_session *session,
                                     uint64_t entity_ref, uint64_t until_seq, void *user,
                                     fold_event_cb *callback);

#endif
