/* Repair of derived rows from the log: the healer works through all of them; repair_document and
 * repair_journal rebuild the rows of one report.
 * Thread: the writer's, between two commits.
 * Memory: one entity, or the altered rows of one part of a journal; a few numbers between steps.
 * Errors: of the store. A step never fails the append; the healer tries again later.
 * Invariant: the mark in the store is set before a derived row can be missing and removed after the
 * last repair, and each repair is recorded as drift in its own transaction. */
#ifndef PROJECTOR_REPAIR_H
#define PROJECTOR_REPAIR_H

#include "authority/projection.h"

enum healer_stage { HEALER_UNKNOWN, HEALER_WHOLE, HEALER_TABLES, HEALER_DOCUMENTS };

struct healer {
    enum healer_stage stage;
    struct slice projection_version;
    /* Called for each entity with new rows. */
    void *user;
    void (*repaired)(void *user, uint64_t entity_ref);
    uint64_t unprojected_from; /* see struct store_state */
    /* The walk over the documents. */
    enum document_kind kind;
    uint64_t after_ref;
    uint64_t failures;
    /* The next attempt after a failure. */
    uint64_t retry_at_ms;
    uint64_t pause_ms;
};

/* Events from this log id on lack their derived rows: begins again. */
void healer_note(struct healer *healer, uint64_t first_log_id);
/* Another node may have written: reads the mark of the store again. */
void healer_restart(struct healer *healer);
/* As projection.heal. */
int64_t healer_step(struct healer *healer, const struct projection_step *step);

struct repair_options {
    const struct projection_step *step;
    struct slice projection_version;
    uint64_t unprojected_from; /* see struct reproject_options */
};

/* Folds the document and the checkpoint of an entity again. STATUS_NOT_FOUND: they were not
 * damaged, or there is no such entity. */
MUST_CHECK enum status repair_document(const struct repair_options *options, uint64_t entity_ref);

/* Examines the journal of a topic from a frame on, as far as one step may, and rebuilds altered
 * frames. A frame gets back the payload of its document of the same version, or what its events
 * fold to, if its hash or its payload shows that it held this before. Any other frame is lost: the
 * floor rises behind it. STATUS_NOT_FOUND: no frame was damaged. */
MUST_CHECK enum status repair_journal(const struct repair_options *options, struct slice topic,
                                      uint64_t from_seq);

#endif
