/* Reprojection: every document once more from the log, beside the stored ones.
 * The thread of the session. Reads the log as a stream; holds one entity's summary at a time and a
 * bounded number of repairs. Verifying changes nothing and works beside a running server; applying
 * needs the write session, and nobody else using it meanwhile.
 * The store's own errors; STATUS_NOT_FOUND when the one entity asked for does not exist.
 * Only what differs is written, as a new version with a new frame: no client goes back in time. */
#ifndef PROJECTOR_REPROJECT_H
#define PROJECTOR_REPROJECT_H

#include "projector/sink.h"

/* A document, or its checkpoint, that is not what the log says. */
struct reproject_drift {
    struct slice document_key;
    enum reason reason;
    const char *what; /* a sentence */
    uint64_t expected_seq;
    uint64_t actual_seq;
};

struct reproject_options {
    /* One entity: its kind, run or worker, and its id; absent: all of both. */
    enum entity_kind kind;
    struct slice id;
    bool apply;
    uint64_t now_ms;
    struct slice projection_version; /* absent: khala_summary_v1 */
    void *user;
    /* All may be NULL. total is an estimate when a server appends meanwhile. */
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
