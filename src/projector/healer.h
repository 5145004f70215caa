/* The healer: repairs derived tables, then folds again every document that is missing, altered or
 * behind the log. It works in steps between the commits of the writer.
 * Writer's thread.
 * Memory for one entity at a time; a few numbers between steps.
 * A step cannot fail the append. A store that cannot be repaired is tried again later.
 * The mark in the store is set before a derived row can be missing and removed after the last
 * repair, so that healing continues after a crash. */
#ifndef PROJECTOR_HEALER_H
#define PROJECTOR_HEALER_H

#include "authority/projection.h"

enum healer_stage { HEALER_UNKNOWN, HEALER_WHOLE, HEALER_TABLES, HEALER_DOCUMENTS };

struct healer {
    enum healer_stage stage;
    struct slice projection_version;
    /* Called for each entity whose rows were written. */
    void *user;
    void (*repaired)(void *user, uint64_t entity_ref);
    uint64_t unprojected_from; /* as in struct store_state */
    /* The walk over the documents. */
    enum document_kind kind;
    uint64_t after_ref;
    uint64_t failures;
    /* After a failure: when to try again. */
    uint64_t retry_at_ms;
    uint64_t pause_ms;
};

/* Events from this log id on lack their derived rows: begins again. */
void healer_note(struct healer *healer, uint64_t first_log_id);
/* Another node may have written: looks again whether there is something to heal. */
void healer_restart(struct healer *healer);
/* As projection.heal. */
int64_t healer_step(struct healer *healer, const struct projection_step *step);

#endif
