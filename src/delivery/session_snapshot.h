/* The snapshot a reader begins with: waited for, then read part by part, then left for the tail.
 * Belongs to the link's loop but for link_snapshot_read, a reader thread's. One block of memory,
 * with one part's documents at a time; it outlives its reader while it is waited for.
 * What cannot be had is its status.
 * Parts come in order; the tail begins behind the watermark of the very snapshot. */
#ifndef DELIVERY_SESSION_SNAPSHOT_H
#define DELIVERY_SESSION_SNAPSHOT_H

#include "delivery/snapshot/snapshot_service.h"

struct link_reader;

struct link_snapshot {
    struct snapshot_wait wait;  /* first */
    struct link_reader *reader; /* NULL: gone */
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
MUST_CHECK enum status link_snapshot_begin(struct link_reader *reader, enum policy_row row);
/* Not while it is being read. */
void link_snapshot_drop(struct link_reader *reader);
/* Around a read of the next part, for the principal as it is now. */
void link_snapshot_read_begin(struct link_snapshot *snapshot, const struct principal *principal);
void link_snapshot_read(struct link_snapshot *snapshot);
void link_snapshot_read_end(struct link_snapshot *snapshot);
bool link_snapshot_is_last(const struct link_snapshot *snapshot);
/* {"topic","format","schema_version","epoch","watermark","part","last","documents":[…]} of the part
 * that is here. */
MUST_CHECK enum status link_snapshot_write(const struct link_snapshot *snapshot,
                                           struct buffer *out);

#endif
