#include "wire/websocket/ws_deflate.h"

#include <assert.h>
#include <limits.h>

#define MEMORY_LEVEL 8
/* deflateBound counts one finished stream. A flush adds an empty block, and zlib needs one more
 * byte of room to tell "all written" from "full". */
#define FLUSH_BYTES 16

/* A deflate message ends with a flush, whose last four bytes are not sent. */
static const uint8_t flush_tail[4] = {0x00, 0x00, 0xff, 0xff};

enum status ws_deflater_init(struct ws_deflater *deflater, int level) {
    assert(level >= 1 && level <= 9);
    *deflater = (struct ws_deflater){0};
    int result = deflateInit2(&deflater->stream, level, Z_DEFLATED, -WS_WINDOW_BITS, MEMORY_LEVEL,
                              Z_DEFAULT_STRATEGY);
    assert(result == Z_OK || result == Z_MEM_ERROR);
    return result == Z_OK ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void ws_deflater_release(struct ws_deflater *deflater) {
    deflateEnd(&deflater->stream);
    *deflater = (struct ws_deflater){0};
}

enum status ws_deflate(struct ws_deflater *deflater, struct buffer *out, struct slice message) {
    z_stream *stream = &deflater->stream;
    if (message.size > INT_MAX)
        return STATUS_PAYLOAD_TOO_LARGE;
    /* The worst case, or as much as the buffer may have: a message that compresses well fits into
     * less. */
    size_t bound = deflateBound(stream, message.size) + FLUSH_BYTES;
    size_t left = out->size_max - out->size;
    enum status status = buffer_reserve(out, bound < left ? bound : left);
    if (status != STATUS_OK)
        return status;
    size_t room = out->capacity - out->size;
    stream->next_in = (z_const Bytef *)message.data;
    stream->avail_in = (uInt)message.size;
    stream->next_out = (Bytef *)out->data + out->size;
    stream->avail_out = room < UINT_MAX ? (uInt)room : UINT_MAX;
    uInt room_before = stream->avail_out;
    int result = room_before > 0 ? deflate(stream, Z_SYNC_FLUSH) : Z_BUF_ERROR;
    bool complete = result == Z_OK && stream->avail_in == 0 && stream->avail_out > 0;
    size_t written = room_before - stream->avail_out;
    deflateReset(stream);
    if (!complete)
        return STATUS_PAYLOAD_TOO_LARGE;
    assert(written > sizeof(flush_tail));
    written -= sizeof(flush_tail);
    assert(memcmp(out->data + out->size + written, flush_tail, sizeof(flush_tail)) == 0);
    out->size += written;
    return STATUS_OK;
}

void ws_inflater_init(struct ws_inflater *inflater) {
    *inflater = (struct ws_inflater){0};
}

void ws_inflater_release(struct ws_inflater *inflater) {
    if (inflater->ready)
        inflateEnd(&inflater->stream);
    ws_inflater_init(inflater);
}

/* One call of zlib into the buffer. When the buffer is full the output goes to one spare byte. A
 * message that fits exactly writes nothing there. */
static enum status inflate_step(z_stream *stream, struct buffer *out, int *result) {
    Bytef spare;
    enum status status = buffer_reserve(out, 1);
    if (status != STATUS_OK && status != STATUS_PAYLOAD_TOO_LARGE)
        return status;
    bool full = status == STATUS_PAYLOAD_TOO_LARGE;
    size_t room = full ? 1 : out->capacity - out->size;
    stream->next_out = full ? &spare : (Bytef *)out->data + out->size;
    stream->avail_out = room < UINT_MAX ? (uInt)room : UINT_MAX;
    uInt room_before = stream->avail_out;
    *result = inflate(stream, Z_SYNC_FLUSH);
    size_t written = room_before - stream->avail_out;
    if (full)
        return written > 0 ? STATUS_PAYLOAD_TOO_LARGE : STATUS_OK;
    out->size += written;
    return STATUS_OK;
}

/* The state of the inflater after a piece of input. */
struct ending {
    bool block;
    bool stream;
};

static enum status inflate_piece(z_stream *stream, struct buffer *out, struct slice piece,
                                 struct ending *ending) {
    *ending = (struct ending){0};
    stream->next_in = (z_const Bytef *)piece.data;
    stream->avail_in = (uInt)piece.size;
    while (!ending->stream) {
        int result;
        enum status status = inflate_step(stream, out, &result);
        if (status != STATUS_OK)
            return status;
        if (result == Z_BUF_ERROR)
            break;
        if (result == Z_MEM_ERROR)
            return STATUS_OUT_OF_MEMORY;
        if (result != Z_OK && result != Z_STREAM_END)
            return STATUS_WS_PROTOCOL_ERROR;
        /* Only a call that made progress reports its state; a call without work clears it. */
        const int block_ended = 128, bits_unused = 63;
        ending->block = (stream->data_type & block_ended) && (stream->data_type & bits_unused) == 0;
        if (result == Z_STREAM_END) {
            /* A sender may finish a stream inside a message; another stream follows. */
            inflateReset(stream);
            ending->stream = stream->avail_in == 0;
        }
    }
    return STATUS_OK;
}

enum status ws_inflate(struct ws_inflater *inflater, struct buffer *out, struct slice payload) {
    const struct slice tail = {(const char *)flush_tail, sizeof(flush_tail)};
    z_stream *stream = &inflater->stream;
    size_t size_before = out->size;
    struct ending ending = {0};
    if (payload.size > INT_MAX)
        return STATUS_PAYLOAD_TOO_LARGE;
    if (inflater->ready) {
        inflateReset(stream);
    } else {
        int result = inflateInit2(stream, -WS_WINDOW_BITS);
        assert(result == Z_OK || result == Z_MEM_ERROR);
        if (result != Z_OK)
            return STATUS_OUT_OF_MEMORY;
        inflater->ready = true;
    }
    enum status status = inflate_piece(stream, out, payload, &ending);
    if (status == STATUS_OK && !ending.stream) {
        status = inflate_piece(stream, out, tail, &ending);
        /* Still inside a block after the tail: zlib took the tail for data, so the payload was
         * truncated. */
        if (status == STATUS_OK && !ending.stream && !ending.block)
            status = STATUS_WS_PROTOCOL_ERROR;
    }
    if (status != STATUS_OK)
        out->size = size_before;
    return status;
}
