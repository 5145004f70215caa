/* Folds and commits the batch of a ledger.
 * Thread: the writer's.
 * Memory: the ledger's and the projection's.
 * Errors: the statuses of store_commit. The caller then forgets the batch.
 * Invariant: damaged derived rows do not prevent events from being stored. */
#ifndef AUTHORITY_COMMITTER_H
#define AUTHORITY_COMMITTER_H

#include <stdatomic.h>

#include "authority/ledger.h"
#include "authority/projection.h"

struct committer {
    struct ledger *ledger;
    const struct projection *projection; /* NULL: there is no projection */
    bool is_underived;                   /* the last commit left out the derived rows */
    uint64_t derive_at_ns;               /* until then, events are stored without them */
    _Atomic uint64_t underived;          /* commits without their derived rows */
};

/* Sets *rows to the rows that were stored. */
MUST_CHECK enum status committer_commit(struct committer *committer, struct store_batch *rows);

#endif
