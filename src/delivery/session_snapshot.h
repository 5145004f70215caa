/* The snapshot a subscriber begins with: waited for, then read part by part, then left for the
 * tail. Belongs to the session's loop but for subscriber_snapshot_read, a subscriber thread's. One
 * block of memory, with one part's documents at a time; it outlives its subscriber while it is
 * waited for. What cannot be had is its status. Parts come in order; the tail begins behind the
 * watermark of the very snapshot. */
#ifndef DELIVERY_SESSION_SNAPSHOT_H
#define DELIVERY_SESSION_SNAPSHOT_H

#include "delivery/snapshot/snapshot_service.h"

struct subscriber;

struct subscriber_snapshot {
    struct snapshot_wait wait;     /* first */
    struct subscriber *subscriber; /* NULL: gone */
    struct snapshot *snapshot;
    enum status status;
    size_t part; /* the next to be read */
    size_t parts_told;
    bool is_waiting;
    bool is_reading;
    bool has_part;                     /* its documents are here */
    const struct principal *principal; /* of the read under way */
    struct buffer documents;
};

/* STATUS_OUT_OF_MEMORY, or it has begun; ready is called when there is something to look at. */
MUST_CHECK enum status subscriber_snapshot_begin(struct subscriber *subscriber,
                                                 enum policy_row row);
/* Not while it is being read. */
void subscriber_snapshot_drop(struct subscriber *subscriber);
/* Around a read of the next part, for the principal as it is now. */
void subscriber_snapshot_read_begin(struct subscriber_snapshot *snapshot,
                                    const struct principal *principal);
void subscriber_snapshot_read(struct subscriber_snapshot *snapshot);
void subscriber_snapshot_read_end(struct subscriber_snapshot *snapshot);
bool subscriber_snapshot_is_last(const struct subscriber_snapshot *snapshot);
/* {"topic","format","schema_version","epoch","watermark","part","last","documents":[…]} of the part
 * that is here. */
MUST_CHECK enum status subscriber_snapshot_write(const struct subscriber_snapshot *snapshot,
                                                 struct buffer *out);

#endif
