/* The rebuild after a change of RUNTIME_KHALA_PROJECTION_VERSION: every summary of another version
 * is rebuilt from the log, one at a time, while the server runs.
 * Thread: its own, which main starts and stops; the writer serves it between two batches.
 * Memory: a page of entities.
 * Errors: an entity that fails is logged and left for its next event or a reprojection.
 * Invariant: a property of the store names the version of all summaries. The rebuild goes on after
 * a restart until it is set. */
#ifndef SERVER_REBUILD_H
#define SERVER_REBUILD_H

#include "authority/writer.h"
#include "projector/projector.h"

struct rebuild_options {
    struct store *store;
    struct writer *writer;
    struct projector *projector;
    struct slice projection_version;
    const char *folder; /* earlier builds kept the version in this folder */
};

struct rebuild;

/* NULL in *rebuild: all summaries have the version. */
MUST_CHECK enum status rebuild_start(struct rebuild **rebuild,
                                     const struct rebuild_options *options);
/* Before the writer stops. */
void rebuild_stop(struct rebuild *rebuild);

#endif
