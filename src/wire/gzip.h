/* Writes a gzip file in pieces (RFC 1952), for an answer that is compressed while it is produced.
 * Thread: one at a time.
 * Memory: about 256 KiB of zlib from init to release, independent of the file's length; output goes
 * into the caller's buffer.
 * Errors: STATUS_OUT_OF_MEMORY and the buffer's; after an error the file cannot be continued.
 * Invariant: the unpacked bytes equal the written bytes, however they were split into pieces. */
#ifndef WIRE_GZIP_H
#define WIRE_GZIP_H

#include <zlib.h>

#include "base/buffer.h"

struct gzip {
    z_stream stream;
};

MUST_CHECK enum status gzip_init(struct gzip *gzip, int level);
void gzip_release(struct gzip *gzip);
/* Appends the output that is ready, possibly none before the last piece. The last piece may be
 * empty. */
MUST_CHECK enum status gzip_write(struct gzip *gzip, struct buffer *out, struct slice piece,
                                  bool is_last);

#endif
