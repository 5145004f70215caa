/* The snapshot that a subscriber begins with: waited for, then read part by part, then left for the
 * frames behind it.
 * Belongs to the session's loop, except subscriber_snapshot_read, which runs on the store pool.
 * Memory: one block with the documents of one part. It outlives its subscriber while it is waited
 * for.
 * Errors: a snapshot that cannot be had is SUBSCRIBER_SNAPSHOT_FAILED, with its status.
 * Parts come in order; the frames begin behind the watermark of the very snapshot. */
#ifndef DELIVERY_SESSION_SUBSCRIBER_SNAPSHOT_H
#define DELIVERY_SESSION_SUBSCRIBER_SNAPSHOT_H

#include "delivery/session/session.h"
#include "delivery/snapshot/snapshot_service.h"

enum subscriber_snapshot_state {
    SUBSCRIBER_SNAPSHOT_WAITING, /* for the snapshot to be built */
    SUBSCRIBER_SNAPSHOT_READY,   /* the next part may be asked for */
    SUBSCRIBER_SNAPSHOT_READING, /* a part is asked for or under way */
    SUBSCRIBER_SNAPSHOT_PART,    /* the documents of a part are here */
    SUBSCRIBER_SNAPSHOT_FAILED,  /* see status */
};

struct subscriber_snapshot {
    struct snapshot_wait wait;
    struct subscriber *subscriber; /* NULL: the subscriber is gone */
    struct snapshot *snapshot;
    enum subscriber_snapshot_state state;
    enum status status;
    size_t part; /* the next to be read */
    size_t parts_sent;
    const struct principal *principal; /* of the read under way */
    struct buffer documents;
    size_t document_count; /* in documents */
};

/* STATUS_OUT_OF_MEMORY, or it waits; then the subscriber gets a turn. */
MUST_CHECK enum status subscriber_snapshot_begin(struct subscriber *subscriber,
                                                 enum policy_row row);
/* Not while a part is being read. A subscriber without a snapshot is left alone. */
void subscriber_snapshot_drop(struct subscriber *subscriber);
/* Asks for the next part. */
void subscriber_snapshot_ask(struct subscriber_snapshot *snapshot);
/* A part that was asked for is not wanted any more; not when its read is under way. */
void subscriber_snapshot_cancel(struct subscriber_snapshot *snapshot);
/* Around the read of a part, for the principal as it is now. status: whether it was run. */
void subscriber_snapshot_read_begin(struct subscriber_snapshot *snapshot,
                                    const struct principal *principal);
void subscriber_snapshot_read(struct subscriber_snapshot *snapshot);
void subscriber_snapshot_read_end(struct subscriber_snapshot *snapshot, enum status status);
/* The part was sent. */
void subscriber_snapshot_next(struct subscriber_snapshot *snapshot);
bool subscriber_snapshot_is_reading(const struct subscriber_snapshot *snapshot);
bool subscriber_snapshot_is_last(const struct subscriber_snapshot *snapshot);
/* {"topic","format","schema_version","epoch","watermark","part","last","documents":[…]} of the part
 * that is here. */
MUST_CHECK enum status subscriber_snapshot_write(const struct subscriber_snapshot *snapshot,
                                                 struct buffer *out);

#endif
