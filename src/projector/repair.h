/* The healer: repairs derived tables, then folds again every document that is missing, altered or
 * behind the log. It works in steps between the commits of the writer.
 * Writer's thread.
 * Memory for one entity at a time; a few numbers between steps.
 * A step cannot fail the append. A store that cannot be repaired is tried again later.
 * The mark in the store is set before a derived row can be missing and removed after the last
 * repair, so that healing continues after a crash. */
#ifndef PROJECTOR_REPAIR_H
#define PROJECTOR_REPAIR_H

#include "authority/projection.h"
#include "store/store.h"

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

/* Repair of single derived rows from the log: a document, or altered rows of a journal.
 * The thread of the session, which writes.
 * Memory for one entity, or for the altered rows of a part of a journal.
 * Errors of the store. STATUS_NOT_FOUND: nothing was damaged any more, or there is no such row.
 * Each repair is recorded as drift in the transaction that makes it. */

struct mend_options {
    struct store_session *session;
    struct slice projection_version;
    uint64_t now_ms;
    uint64_t unprojected_from; /* as in struct reproject_options */
    void *user;
    void (*on_commit)(void *user, const struct store_batch *batch); /* may be NULL */
};

/* Folds the document and the checkpoint of an entity again. */
MUST_CHECK enum status mend_document(const struct mend_options *options, uint64_t entity_ref);

/* Examines the journal of a topic from a frame on, as far as one step may, and puts altered frames
 * right. A frame gets back what its document of the same version holds, or what its events fold to,
 * if its hash or its payload shows that this is what it held. Any other frame is lost: the floor
 * rises behind it. */
MUST_CHECK enum status mend_journal(const struct mend_options *options, struct slice topic,
                                    uint64_t from_seq);

#endif
