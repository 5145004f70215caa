#include "wire/gzip.h"

#include <assert.h>
#include <limits.h>

#define GZIP_WRAPPER 16
#define MEMORY_LEVEL 8
#define STEP_BYTES   (16u << 10)

enum status gzip_init(struct gzip *gzip, int level) {
    assert(level >= 1 && level <= 9);
    *gzip = (struct gzip){0};
    int result = deflateInit2(&gzip->stream, level, Z_DEFLATED, MAX_WBITS + GZIP_WRAPPER,
                              MEMORY_LEVEL, Z_DEFAULT_STRATEGY);
    assert(result == Z_OK || result == Z_MEM_ERROR);
    return result == Z_OK ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void gzip_release(struct gzip *gzip) {
    deflateEnd(&gzip->stream);
    *gzip = (struct gzip){0};
}

enum status gzip_write(struct gzip *gzip, struct buffer *out, struct slice piece, bool is_last) {
    z_stream *stream = &gzip->stream;
    int result = Z_OK;
    if (piece.size > UINT_MAX)
        return STATUS_PAYLOAD_TOO_LARGE;
    stream->next_in = (z_const Bytef *)piece.data;
    stream->avail_in = (uInt)piece.size;
    /* zlib leaves room in the output when it has no more data ready. */
    do {
        enum status status = buffer_reserve(out, STEP_BYTES);
        if (status != STATUS_OK)
            return status;
        stream->next_out = (Bytef *)out->data + out->size;
        stream->avail_out = STEP_BYTES;
        result = deflate(stream, is_last ? Z_FINISH : Z_NO_FLUSH);
        assert(result != Z_STREAM_ERROR);
        out->size += STEP_BYTES - stream->avail_out;
    } while (stream->avail_out == 0);
    assert(stream->avail_in == 0 && (!is_last || result == Z_STREAM_END));
    return STATUS_OK;
}
