/* One pass of the retention job: finds expired frames of all topics and prunes them in bounded
 * batches, at a pace that lets appends pass.
 * Thread: that of its session, which is not the writer's while a server runs; a callback does the
 * pruning.
 * Memory: one batch.
 * Errors: an error of the store or of pruning ends the pass. The next pass continues.
 * Invariant: no read of the store is open during pruning. Only the journal shrinks: for the topic
 * of an entity only the floor rises. */
#ifndef RETENTION_CYCLE_H
#define RETENTION_CYCLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "retention/report.h"
#include "store/store.h"

struct prune_batch {
    uint64_t work_max; /* size of the next batch; the prune callback may change it */
    uint64_t work;
    /* The topics to prune, and their names. */
    struct store_prune prunes[PRUNE_BATCH_TOPICS_MAX];
    struct slice names[PRUNE_BATCH_TOPICS_MAX];
    size_t count;
};

struct cycle_options {
    struct store_session *session;
    const struct policy_table *policies;
    uint64_t now_ms;
    uint64_t work_max; /* size of the first batch */
    /* Topics that are not due are skipped. NULL: no topic is skipped. */
    struct due *due;
    void *user;
    /* Prunes the batch and fills in the results. */
    enum status (*prune)(void *user, struct prune_batch *batch);
    /* Called between pages. A status other than STATUS_OK ends the pass. May be NULL. */
    enum status (*may_continue)(void *user);
};

/* The report must be new. */
MUST_CHECK enum status retention_cycle(const struct cycle_options *options,
                                       struct retention_report *report);

/* ---- due times -------------------------------------------------------------------------- */

/* The time at which each topic may next have expired frames, so that a pass costs as much as there
 * is to expire. A topic without frames is due when a frame published now would expire. Refs are
 * small and dense, so a topic takes eight bytes; without memory it is always due. The times only
 * save work: those in the store decide which frames expire. */

struct due {
    uint64_t *at_ms; /* indexed by ref; 0: due now */
    size_t capacity;
};

/* Frees the memory. Every topic is due again. */
void due_clear(struct due *due);
void due_set(struct due *due, uint64_t ref, uint64_t at_ms);
bool due_is(const struct due *due, uint64_t ref, uint64_t now_ms);
/* The first ref from ref to last that is due; last + 1 when none is. */
uint64_t due_next(const struct due *due, uint64_t ref, uint64_t last, uint64_t now_ms);
/* The number of consecutive refs from ref on that are due, at most count_max. */
uint64_t due_run(const struct due *due, uint64_t ref, uint64_t count_max, uint64_t now_ms);

/* ---- the pace beside appends ------------------------------------------------------------ */

/* A batch takes about PACE_BATCH_NS of the writer's processor time, because an append may wait for
 * all of it. The sync of the disk comes on top at any size. While appends arrive, batches take one
 * part in PACE_SHARE of the writer's time. */

#define PACE_BATCH_NS ((uint64_t)3000000)
#define PACE_SHARE    10
/* A single batch on a slow disk must not cause a long pause. */
#define PACE_PAUSE_NS_MAX ((uint64_t)1000000000)

struct pace {
    uint64_t work_min;
    uint64_t work_max;
    uint64_t work_next; /* the size of the next batch */
};

struct pace_batch {
    uint64_t work;
    uint64_t computed_ns; /* processor time of the writer */
    uint64_t took_ns;
};

void pace_init(struct pace *pace, uint64_t work_min, uint64_t work_max);
/* After a batch. Returns the pause before the next one. is_busy: appends were committed meanwhile.
 */
uint64_t pace_update(struct pace *pace, const struct pace_batch *batch, bool is_busy);

#endif
