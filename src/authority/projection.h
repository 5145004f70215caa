/* The interface by which the writer folds events. The projector implements it, so that the
 * authority does not depend on the projector.
 * Thread: the writer's.
 * Memory: rows that collect adds live in the arena given to it.
 * Errors: folding cannot fail the append. A failure is counted, recorded as drift and repaired.
 * Invariant: begin, fold for each event, collect, then exactly one of committed and abandoned.
 * After abandoned the events may still have been stored; the next fold finds out by their
 * sequences. */
#ifndef AUTHORITY_PROJECTION_H
#define AUTHORITY_PROJECTION_H

#include "store/store.h"

/* The answer of projection.heal if there is no work left. */
#define PROJECTION_IS_WHOLE (-1)

/* One step of healing or repair, between two commits. */
struct projection_step {
    struct store_session *session; /* the write session */
    uint64_t now_ms;
    uint64_t mono_ms;
    /* Announces a commit of the step, as the writer announces its own. */
    void *user;
    void (*announce)(void *user, const struct store_batch *batch);
};

struct projection {
    void *user;
    /* session: the write session, for reading what is not in memory. */
    void (*begin)(void *user, struct store_session *session, uint64_t now_ms);
    /* entity: the authority's state after the event. Both live until collect has returned. */
    void (*fold)(void *user, const struct store_entity *entity, const struct store_event *event);
    /* Adds documents, checkpoints, journal rows, drifts, and the topics it advanced or made, to the
     * batch. New topics take refs from last_topic_ref. The batch's topics are those of the writer;
     * the array is replaced by one that holds both. */
    void (*collect)(void *user, struct arena *arena, struct store_batch *batch,
                    uint64_t *last_topic_ref);
    void (*committed)(void *user);
    void (*abandoned)(void *user);
    /* Events from this log id on were stored without their derived rows. */
    void (*unprojected)(void *user, uint64_t first_log_id);
    /* Heals a bounded part of the derived data. Answers after how many milliseconds it wants to
     * continue, or PROJECTION_IS_WHOLE. */
    int64_t (*heal)(void *user, const struct projection_step *step);
    bool has_documents; /* the store has a document for each entity of their kinds */
    /* Repairs a damaged row between two commits. STATUS_NOT_FOUND: it is not damaged. */
    enum status (*repair)(void *user, const struct projection_step *step,
                          const struct store_damage *damage);
    /* Another node may have written: drops everything remembered from the store. NULL: the
     * projection remembers nothing. */
    void (*forget)(void *user);
};

#endif
