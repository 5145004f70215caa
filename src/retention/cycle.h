/* One pass of the retention job: finds expired frames of all topics and prunes them in bounded
 * batches.
 * Belongs to the thread of its session, which is not the writer's while a server runs. A callback
 * does the pruning.
 * Memory: one batch.
 * An error of the store or of pruning ends the pass. The next pass continues.
 * No read of the store is open during pruning. Only the journal shrinks: for the topic of an entity
 * only the floor rises. */
#ifndef RETENTION_CYCLE_H
#define RETENTION_CYCLE_H

#include "base/limits.h"
#include "retention/due.h"
#include "retention/report.h"
#include "store/store.h"

struct prune_batch {
    uint64_t work_max; /* of the next batch; the prune callback may change it */
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
    uint64_t work_max; /* of the first batch */
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

#endif
