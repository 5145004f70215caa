/* Builds a snapshot: one read transaction of the store, written to the file as it is read.
 * Belongs to the thread of the session and blocks it until the build is done.
 * Memory: one part and the index of parts, for any number of documents.
 * STATUS_STORE_UNAVAILABLE when the store cannot be read, the file not written (a full disk) or a
 * document is damaged,
 * STATUS_OUT_OF_MEMORY, STATUS_INTERNAL_ERROR for a damaged store, and the status of reserve; the
 * reason is text for operators. A failed build leaves no file and no memory.
 * Documents and watermark are those of one read transaction. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_BUILD_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_BUILD_H

#include "delivery/snapshot/snapshot.h"

#define SNAPSHOT_REASON_MAX 256
/* The damages that one build finds. */
#define SNAPSHOT_DAMAGES_MAX 256

struct snapshot_build {
    enum policy_row row;         /* of a topic that has snapshots */
    const struct policy *policy; /* outlives the snapshot */
    const char *folder;          /* the folder of the file */
    void *user;
    /* The watermark is known, and no document has been read. */
    void (*began)(void *user, uint64_t watermark);
    /* Called before the file grows. Any status but STATUS_OK ends the build. */
    enum status (*reserve)(void *user, uint64_t bytes);
    bool finds_missing;               /* an entity without a document is damage */
    uint64_t absent_ref;              /* up to this one such entities really have no document */
    char reason[SNAPSHOT_REASON_MAX]; /* out: why it failed */
    /* Out: documents that are missing or altered. With any the build has failed. */
    uint64_t damaged_refs[SNAPSHOT_DAMAGES_MAX];
    size_t damaged_count;
};

/* The caller has the one reference. */
MUST_CHECK enum status snapshot_build(struct snapshot_build *build, struct store_session *session,
                                      struct snapshot **snapshot);

#endif
