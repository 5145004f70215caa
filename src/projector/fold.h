/* Folds of any document kind: one event onto a summary, or the events of an entity from the log.
 * Thread: one at a time for a fold.
 * Memory: a fold owns the texts of its summary. To bound them, it sometimes copies the summary into
 * another arena and resets the old one.
 * Errors: STATUS_INTERNAL_ERROR for a gap in the log, STATUS_NOT_FOUND if it ends early, those of
 * the store, STATUS_OUT_OF_MEMORY. A failure leaves the summary invalid.
 * Invariant: reading a written document and folding on gives the same summary as folding on
 * directly. */
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
/* Copies every text of a summary into another arena. */
MUST_CHECK enum status fold_move(enum document_kind kind, union any_summary *summary,
                                 struct arena *arena);

/* Reads a summary from its stored document. False: the document is not whole, or has not the hash
 * and the seq of the checkpoint. */
MUST_CHECK bool fold_document(const struct store_document *document,
                              const struct store_checkpoint *checkpoint, struct slice entity_id,
                              union any_summary *summary);

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
/* Folds the events after summary.common.latest_seq up to until_seq. callback, which may be NULL, is
 * called for each. */
MUST_CHECK enum status fold_from_log(struct fold *fold, struct store_session *session,
                                     uint64_t entity_ref, uint64_t until_seq, void *user,
                                     fold_event_cb *callback);

#endif
