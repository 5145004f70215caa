/* The projector: folds the events of each commit into documents, checkpoints and journal rows,
 * which are written with the events. It implements authority/projection.h.
 * Thread: the writer's; any for projector_stats.
 * Memory: a cache of summaries bounded in bytes, and the data of one commit.
 * Errors: STATUS_OUT_OF_MEMORY of projector_open. Later failures never fail the append: the entity
 * is folded from the log with the next commit.
 * Invariant: documents follow from the log alone. The cache holds committed data only. */
#ifndef PROJECTOR_PROJECTOR_H
#define PROJECTOR_PROJECTOR_H

#include "authority/projection.h"
#include "projector/sink.h"

#define PROJECTOR_ATTEMPTS_MAX 8

struct projector;

struct projector_options {
    struct slice projection_version; /* absent: khala_summary_v2 */
    const struct sink *sink;         /* NULL: tables */
    size_t cache_bytes_max;          /* 0: the default */
};

struct projector_stats {
    uint64_t updates;  /* summaries written */
    uint64_t skipped;  /* because of their checkpoint */
    uint64_t drifts;   /* found */
    uint64_t failures; /* entities that a commit could not project */
    uint64_t given_up; /* not retried until their next event or a reprojection */
    uint64_t cache_misses;
    uint64_t cache_bytes;
};

MUST_CHECK enum status projector_open(struct projector **projector,
                                      const struct projector_options *options);
void projector_close(struct projector *projector);
/* Lives as long as the projector. */
const struct projection *projector_projection(const struct projector *projector);
/* Call it between commits, after another module wrote the rows of the entity. */
void projector_forget(struct projector *projector, uint64_t entity_ref);
struct projector_stats projector_stats(const struct projector *projector);

#endif
