/* Repair of single derived rows from the log: a document, or altered rows of a journal.
 * The thread of the session, which writes.
 * Memory for one entity, or for the altered rows of a part of a journal.
 * Errors of the store. STATUS_NOT_FOUND: nothing was damaged any more, or there is no such row.
 * Each repair is recorded as drift in the transaction that makes it. */
#ifndef PROJECTOR_MEND_H
#define PROJECTOR_MEND_H

#include "store/store.h"

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
