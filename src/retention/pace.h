/* The pace of pruning beside appends: the size of the next batch, and the pause before it.
 * Owned by one thread.
 * Allocates nothing.
 * Cannot fail.
 * A batch takes about PACE_BATCH_NS of the writer's processor time, because an append may wait for
 * all of it. The sync of the disk comes on top at any size. While appends arrive, batches take one
 * part in PACE_SHARE of the writer's time. */
#ifndef RETENTION_PACE_H
#define RETENTION_PACE_H

#include <stdbool.h>
#include <stdint.h>

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
