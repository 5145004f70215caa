/* WebSocket frames to be sent (RFC 6455 section 5): single frames; those of a client are masked.
 * Thread: any.
 * Memory: the caller's.
 * Errors: a full buffer returns its own status and is left unchanged.
 * Invariant: a header depends on opcode, compression and size only, so one payload serves many
 * sockets. */
#ifndef WIRE_WEBSOCKET_WS_FRAME_H
#define WIRE_WEBSOCKET_WS_FRAME_H

#include "base/buffer.h"

#define WS_HEADER_BYTES_MAX       10
#define WS_CONTROL_BYTES_MAX      125
#define WS_CLOSE_REASON_BYTES_MAX 123
/* Stands for a close frame without a code; never on the wire. */
#define WS_CLOSE_CODE_ABSENT 1005

enum ws_opcode {
    WS_CONTINUATION = 0x0,
    WS_TEXT = 0x1,
    WS_BINARY = 0x2,
    WS_CLOSE = 0x8,
    WS_PING = 0x9,
    WS_PONG = 0xa,
};

/* Writes the header of a payload of that size and answers the header's own size. compressed
 * says that the payload comes from ws_deflate. */
size_t ws_frame_header(uint8_t header[WS_HEADER_BYTES_MAX], enum ws_opcode opcode, bool compressed,
                       uint64_t payload_bytes);
MUST_CHECK enum status ws_frame_write(struct buffer *out, enum ws_opcode opcode, bool compressed,
                                      struct slice payload);
/* The frame of a client. The mask is random. */
MUST_CHECK enum status ws_frame_write_masked(struct buffer *out, enum ws_opcode opcode,
                                             struct slice payload, const uint8_t mask[4]);
/* The size of the header of such a payload. */
size_t ws_header_bytes(uint64_t payload_bytes);
/* Turns the bytes of out behind begin + gap into a frame at begin, in place. A gap as large as the
 * header saves a move of the payload. */
MUST_CHECK enum status ws_frame_wrap(struct buffer *out, size_t begin, size_t gap,
                                     enum ws_opcode opcode);
/* The reason is UTF-8, and is truncated between characters. WS_CLOSE_CODE_ABSENT writes a
 * close frame without code and reason, the answer to one of that kind. */
MUST_CHECK enum status ws_close_write(struct buffer *out, unsigned code, struct slice reason);
/* Whether a code may stand in a close frame on the wire. */
bool ws_close_code_valid(unsigned code);
/* The code to close with when a connection ends because of that status. */
enum close_code ws_close_code(enum status status);

#endif
