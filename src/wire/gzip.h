/* A gzip file out of pieces (RFC 1952), for an answer that is compressed while it is made.
 * Belongs to one thread at a time; does no I/O.
 * Holds about 256 KiB of zlib's from init to release, whatever the length of the file; what is
 * written goes into the caller's buffer.
 * STATUS_OUT_OF_MEMORY, and the buffer's own, after which the file cannot go on.
 * What unpacks is what was written, however it was cut into pieces. */
#ifndef WIRE_GZIP_H
#define WIRE_GZIP_H

#include <zlib.h>

#include "base/buffer.h"

struct gzip {
    z_stream stream;
};

MUST_CHECK enum status gzip_init(struct gzip *gzip, int level);
void gzip_release(struct gzip *gzip);
/* Appends what is ready: maybe nothing before the last piece, which may be empty. */
MUST_CHECK enum status gzip_write(struct gzip *gzip, struct buffer *out, struct slice piece,
                                  bool is_last);

#endif
