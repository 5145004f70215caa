/* The projector: folds each commit's events into documents, checkpoints and journal rows that are
 * written with them. It fills in authority/projection.h.
 * Writer's thread, but for projector_stats, which any thread may ask for.
 * Memory: a cache of summaries bounded in bytes, and what one commit touches. Opening answers
 * STATUS_OUT_OF_MEMORY; afterwards nothing fails the append: an entity that could not be projected
 * is noted, and folded from the log with the next commit.
 * Documents follow from the log alone; nothing that was not committed is remembered. */
#ifndef PROJECTOR_PROJECTOR_H
#define PROJECTOR_PROJECTOR_H

#include "authority/projection.h"
#include "projector/sink.h"

#define PROJECTOR_ATTEMPTS_MAX 8

struct projector;

struct projector_options {
    struct slice projection_version; /* absent: khala_summary_v1 */
    const struct sink *sink;         /* NULL: tables */
    size_t cache_bytes_max;          /* 0: the default */
};

struct projector_stats {
    uint64_t updates;  /* summaries written */
    uint64_t skipped;  /* by the checkpoint's decision */
    uint64_t drifts;   /* seen */
    uint64_t failures; /* entities that a commit could not project */
    uint64_t given_up; /* left for their next event or a reprojection */
    uint64_t cache_misses;
    uint64_t cache_bytes;
};

MUST_CHECK enum status projector_open(struct projector **projector,
                                      const struct projector_options *options);
void projector_close(struct projector *projector);
/* Lives as long as the projector. */
const struct projection *projector_projection(const struct projector *projector);
/* Between commits: the entity's rows were written by somebody else. */
void projector_forget(struct projector *projector, uint64_t entity_ref);
struct projector_stats projector_stats(const struct projector *projector);

#endif
