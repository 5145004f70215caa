/* How fast pruning may go beside appends: the size of the next batch, and the pause before it.
 * Owned by one thread. Allocates nothing. Cannot fail.
 * A batch is as large as the writer computes in PACE_BATCH_NS, since an append may have to wait for
 * all of it; what the disk takes to sync comes on top, and would not be less for a smaller one.
 * While appends come, batches take one part of the writer's time in PACE_SHARE. */
#ifndef RETENTION_PACE_H
#define RETENTION_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_BATCH_NS ((uint64_t)3000000)
#define PACE_SHARE    10
/* One batch that met a slow disk is no reason to wait for long. */
#define PACE_PAUSE_NS_MAX ((uint64_t)1000000000)

struct pace {
    uint64_t work_min;
    uint64_t work_max;
    uint64_t work_next; /* what the next batch may hold */
};

void pace_init(struct pace *pace, uint64_t work_min, uint64_t work_max);
struct pace_batch {
    uint64_t work;
    uint64_t computed_ns; /* of the writer's processor time */
    uint64_t took_ns;
};

/* After a batch; answers how long to leave the writer alone, which appends keep busy or not. */
uint64_t pace_note(struct pace *pace, const struct pace_batch *batch, bool is_busy);

#endif
