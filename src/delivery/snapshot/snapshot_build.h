/* Builds a snapshot: one read transaction of the store, written out as it is read.
 * Belongs to the thread of the session, which it keeps until it is done: not for a thread that
 * others wait for. Memory is one part and the index of parts, however many documents there are.
 * STATUS_STORE_UNAVAILABLE when the store cannot be read or the file not written (a full disk),
 * STATUS_OUT_OF_MEMORY, STATUS_INTERNAL_ERROR for a damaged store, and what reserve answers; the
 * reason is for people. On failure nothing is left behind.
 * Documents and watermark are those of one moment. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_BUILD_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_BUILD_H

#include "delivery/snapshot/snapshot.h"

#define SNAPSHOT_REASON_MAX 256

struct snapshot_build {
    enum policy_row row;         /* of a topic that has snapshots */
    const struct policy *policy; /* outlives the snapshot */
    const char *folder;          /* where the file without a name is made */
    void *user;
    /* The watermark is known, and nothing is read yet. */
    void (*began)(void *user, uint64_t watermark);
    /* Before the file grows; anything but STATUS_OK ends the build. */
    enum status (*reserve)(void *user, uint64_t bytes);
    char reason[SNAPSHOT_REASON_MAX]; /* out: why it failed */
};

/* The caller has the one reference. */
MUST_CHECK enum status snapshot_build(struct snapshot_build *build, struct store_session *session,
                                      struct snapshot **snapshot);

#endif
