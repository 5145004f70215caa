/* How fast pruning may go beside appends: the size of the next batch, and the pause before it.
 * Owned by one thread. Allocates nothing. Cannot fail.
 * A batch is as large as the writer does in PACE_BATCH_NS, since an append may have to wait for all
 * of it. While appends come, batches take one part of the writer's time in PACE_SHARE. */
#ifndef RETENTION_PACE_H
#define RETENTION_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_BATCH_NS ((uint64_t)3000000)
#define PACE_SHARE    8
/* One batch that met a slow disk is no reason to wait for long. */
#define PACE_PAUSE_NS_MAX ((uint64_t)1000000000)

struct pace {
    uint64_t work_min;
    uint64_t work_max;
    uint64_t work_next; /* what the next batch may hold */
};

void pace_init(struct pace *pace, uint64_t work_min, uint64_t work_max);
/* A batch of so much work took that long; answers how long to leave the writer alone. */
uint64_t pace_note(struct pace *pace, uint64_t work, uint64_t took_ns, bool is_busy);

#endif
