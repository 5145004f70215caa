/* Reprojection: folds every document from the log again and compares it with the stored one.
 * Verifying changes nothing and works beside a running server. Applying needs the write session,
 * with no other user meanwhile.
 * Thread: that of the session.
 * Memory: the log is read as a stream; the summary of one entity and a bounded number of repairs.
 * Errors: of the store; STATUS_NOT_FOUND if the requested entity does not exist.
 * Invariant: only differences are written, as a new version with a new frame, so no client goes
 * back in time. */
#ifndef PROJECTOR_REPROJECT_H
#define PROJECTOR_REPROJECT_H

#include "projector/sink.h"

/* A document or checkpoint that differs from the log. */
struct reproject_drift {
    struct slice document_key;
    enum reason reason;
    const char *message; /* static text */
    uint64_t expected_seq;
    uint64_t actual_seq;
};

struct reproject_options {
    /* One entity by its kind and id. Without an id: all entities with a summary. */
    enum entity_kind kind;
    struct slice id;
    bool apply;
    uint64_t now_ms;
    struct slice projection_version; /* absent: khala_summary_v2 */
    uint64_t unprojected_from;       /* > 0: the events before this log id have their frames */
    void *user;
    /* Each may be NULL. events_total is an estimate while a server appends. */
    void (*on_drift)(void *user, const struct reproject_drift *drift);
    void (*on_commit)(void *user, const struct store_batch *batch);
    void (*on_progress)(void *user, uint64_t events_done, uint64_t events_total);
};

struct reproject_result {
    uint64_t entities;
    uint64_t events;
    uint64_t drifted;
    uint64_t repaired;
};

MUST_CHECK enum status reproject(struct store_session *session,
                                 const struct reproject_options *options,
                                 struct reproject_result *result);

#endif
