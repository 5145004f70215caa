/* How a snapshot's file says who owns a document: a row a document, fixed numbers, then the texts.
 * Any thread; allocates nothing.
 * Reading answers false for a row that does not fit into its text, as only a failing disk makes.
 * Both ends are this process, so numbers stand as they do in memory. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_OWNER_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_OWNER_H

#include <stdint.h>

#include "base/buffer.h"
#include "topic/owner.h"

struct snapshot_owner {
    uint32_t document_bytes;
    struct owner owner; /* points into the text it was read from */
};

/* STATUS_INTERNAL_ERROR for an owner longer than any may be; then, as when the buffer is full,
 * nothing is written. */
MUST_CHECK enum status snapshot_owner_write(struct buffer *out, const struct snapshot_owner *row);
/* Takes a row off the front. */
MUST_CHECK bool snapshot_owner_read(struct slice *rows, struct snapshot_owner *row);

#endif
