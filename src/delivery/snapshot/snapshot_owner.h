/* The owners of documents in the file of a snapshot: one row for each document, fixed numbers
 * first, then the texts. Any thread. Allocates nothing. Reading answers false for a row that is
 * longer than its text, which only a failing disk makes. This process both writes and reads the
 * file, so numbers have the byte order of memory. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_OWNER_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_OWNER_H

#include <stdint.h>

#include "base/buffer.h"
#include "topic/owner.h"

struct snapshot_owner {
    uint32_t document_bytes;
    struct owner owner; /* points into the text it was read from */
};

/* STATUS_INTERNAL_ERROR for an owner longer than the limit. On any error nothing is written. */
MUST_CHECK enum status snapshot_owner_write(struct buffer *out, const struct snapshot_owner *row);
/* Removes the first row from rows. */
MUST_CHECK bool snapshot_owner_read(struct slice *rows, struct snapshot_owner *row);

#endif
