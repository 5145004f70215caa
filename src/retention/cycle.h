/* One pass of the retention job over the topics: finds what has expired and has it pruned, a
 * bounded batch at a time.
 * Belongs to the thread of its session, which is never the writer's while a server runs; pruning
 * itself is asked of whoever may write. Memory: one batch.
 * The store's errors, and what pruning answers, end the pass; the next one finds what is left.
 * No read of the store is open while pruning is waited for. Only the journal shrinks: a topic of
 * an entity's events only has its floor raised. */
#ifndef RETENTION_CYCLE_H
#define RETENTION_CYCLE_H

#include "base/limits.h"
#include "retention/due.h"
#include "retention/report.h"
#include "store/store.h"

struct prune_batch {
    uint64_t work_max; /* of the next batch; whoever prunes may lower it */
    uint64_t work;
    /* Topics to be pruned, with their names. */
    struct store_prune prunes[PRUNE_BATCH_TOPICS_MAX];
    struct slice names[PRUNE_BATCH_TOPICS_MAX];
    size_t count;
};

struct cycle_options {
    struct store_session *session;
    const struct policy_table *policies;
    uint64_t now_ms;
    uint64_t work_max; /* of the first batch */
    /* Topics that are not due are passed over. NULL: none is. */
    struct due *due;
    void *user;
    /* Fills in what was pruned. */
    enum status (*prune)(void *user, struct prune_batch *batch);
    /* Asked between pages: STATUS_OK, or why the pass ends here. May be NULL. */
    enum status (*may_go_on)(void *user);
};

/* Adds to the report, which must be new. */
MUST_CHECK enum status retention_cycle(const struct cycle_options *options,
                                       struct retention_report *report);

#endif
