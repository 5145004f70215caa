/* permessage-deflate without context takeover (RFC 7692): one message in, one message out.
 * Thread: the one that keeps a deflater or inflater for all its connections.
 * Memory: zlib's (about 256 KiB and 40 KiB), a deflater from init, an inflater from its first
 * message, until release.
 * Errors: STATUS_PAYLOAD_TOO_LARGE for a full buffer, STATUS_WS_PROTOCOL_ERROR for data that is no
 * deflate message.
 * Invariant: no message depends on an earlier one. */
#ifndef WIRE_WEBSOCKET_WS_DEFLATE_H
#define WIRE_WEBSOCKET_WS_DEFLATE_H

#include <zlib.h>

#include "base/buffer.h"

/* The window that both sides may use unless the client asks the server for a smaller one. */
#define WS_WINDOW_BITS 15

struct ws_deflater {
    z_stream stream;
};

struct ws_inflater {
    z_stream stream;
    bool ready;
};

/* level as in zlib: 1 is fast, 9 is small. */
MUST_CHECK enum status ws_deflater_init(struct ws_deflater *deflater, int level);
void ws_deflater_release(struct ws_deflater *deflater);
/* Appends the compressed message, to be sent with the compressed mark of its frame. */
MUST_CHECK enum status ws_deflate(struct ws_deflater *deflater, struct buffer *out,
                                  struct slice message);

/* Whether a message may be compressed for a peer with that window (8 to 15 bits). Without context
 * takeover, no reference goes back further than the message is long. So a message within the window
 * suits the peer as it is; a longer one is sent uncompressed, since a compressed frame may be
 * shared with other peers. */
static inline bool ws_deflate_fits(size_t message_bytes, unsigned window_bits) {
    return window_bits >= WS_WINDOW_BITS || message_bytes <= (size_t)1 << window_bits;
}

void ws_inflater_init(struct ws_inflater *inflater);
void ws_inflater_release(struct ws_inflater *inflater);
/* Appends the message that the payloads of a compressed message's frames stand for. Never
 * produces more than the buffer's maximum, however much the payload would expand to. */
MUST_CHECK enum status ws_inflate(struct ws_inflater *inflater, struct buffer *out,
                                  struct slice payload);

#endif
