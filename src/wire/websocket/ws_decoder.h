/* WebSocket frames that arrive (RFC 6455, RFC 7692), over wslay: takes bytes in pieces of any size
 * and returns complete messages.
 * Thread: one for all decoders that share a struct ws_shared, which must not move.
 * Memory: between messages none; in a frame, a wslay context; in a message, its state and at most
 * twice the received bytes.
 * Errors: STATUS_WS_PROTOCOL_ERROR, STATUS_INVALID_UTF8, STATUS_WS_MESSAGE_TOO_BIG or the error of
 * a handler, as early as the bytes allow.
 * Invariant: a failed decoder stays failed; a closed one delivers no more. */
#ifndef WIRE_WEBSOCKET_WS_DECODER_H
#define WIRE_WEBSOCKET_WS_DECODER_H

#include "base/limits.h"
#include "base/utf8.h"
#include "wire/websocket/ws_deflate.h"
#include "wire/websocket/ws_frame.h"

struct wslay_frame_context;

/* A frame or message that has not arrived whole. */
struct ws_partial {
    struct wslay_frame_context *frames; /* NULL: no frame is under way */
    struct buffer message;
    struct buffer control; /* the payload of a control frame; the header of a frame to come */
    /* Bytes wslay was given whose frame has not ended, headers included. */
    uint64_t frame_bytes;
    uint64_t payload_bytes_left;
    uint16_t empty_fragments; /* fragments of the current message */
    struct utf8_state utf8;
    uint8_t opcode;
    bool compressed;
    bool in_frame;
    bool in_message;
};

/* State that the decoders of one thread share: starts zeroed, filled on first use. */
struct ws_shared {
    struct slice input;
    const struct ws_decoder *feeding;
    struct wslay_frame_context *spare; /* the next decoder takes it, and the next one */
    struct ws_partial *spare_partial;
    struct ws_inflater inflater;
};

/* Payloads live until the handler returns. A status other than STATUS_OK fails the decoder.
 * A handler may not feed a decoder of the same thread, nor release its own. */
struct ws_handlers {
    enum status (*on_message)(void *user, enum ws_opcode opcode, struct slice message);
    enum status (*on_ping)(void *user, struct slice payload);
    enum status (*on_pong)(void *user, struct slice payload);
    /* code is WS_CLOSE_CODE_ABSENT when the frame carries none. */
    enum status (*on_close)(void *user, unsigned code, struct slice reason);
};

struct ws_decoder {
    struct ws_shared *shared;
    const struct ws_handlers *handlers;
    void *user;
    struct ws_partial *partial; /* NULL between messages */
    size_t message_bytes_max;
    enum status failed;
    bool deflate;
    bool closed;
    bool from_server; /* frames of a server are not masked */
};

void ws_shared_init(struct ws_shared *shared);
/* Call it after the release of the last decoder. */
void ws_shared_release(struct ws_shared *shared);

/* deflate: permessage-deflate was agreed on. message_bytes_max bounds a message as it arrives
 * and also the inflated size of a compressed message. */
void ws_decoder_init(struct ws_decoder *decoder, struct ws_shared *shared,
                     const struct ws_handlers *handlers, void *user, size_t message_bytes_max,
                     bool deflate);
/* The decoder of a client. Call before the first byte. */
void ws_decoder_from_server(struct ws_decoder *decoder);
void ws_decoder_release(struct ws_decoder *decoder);
MUST_CHECK enum status ws_feed(struct ws_decoder *decoder, struct slice data);

#endif
