/* wslay pulls bytes through a callback into its context, unmasks them there and returns pieces of
 * payload. It refuses control frames that are long or fragmented, sizes that are not minimal, and
 * sizes with the top bit. Every other rule is enforced here, in this order:
 *
 *     header_check      checks the header, before a byte is kept
 *     frame_payload     keeps the piece, unless the frame is complete in it
 *     control_deliver   delivers a complete control frame
 *     message_deliver   delivers the message of a complete last fragment
 *
 * The context reads ahead, so "at a frame boundary" means that every byte it was given belongs
 * to a frame that has ended: frame_bytes is zero. Then the context holds no state, and the next
 * decoder of the thread may use it. */
#include "wire/websocket/ws_decoder.h"

#include <assert.h>
#include <stdlib.h>
#include <wslay/wslay.h>

#define CONTROL_BIT      0x8
#define MASK_BYTES       4
#define HEADER_BYTES_MAX (2 + 8 + MASK_BYTES)

static_assert(sizeof(struct ws_decoder) <= 48, "one per connection, most of them idle");

void ws_shared_init(struct ws_shared *shared) {
    *shared = (struct ws_shared){0};
    ws_inflater_init(&shared->inflater);
}

void ws_shared_release(struct ws_shared *shared) {
    assert(!shared->feeding);
    wslay_frame_context_free(shared->spare);
    free(shared->spare_partial);
    ws_inflater_release(&shared->inflater);
    ws_shared_init(shared);
}

void ws_decoder_init(struct ws_decoder *decoder, struct ws_shared *shared,
                     const struct ws_handlers *handlers, void *user, size_t message_bytes_max,
                     bool deflate) {
    *decoder = (struct ws_decoder){.shared = shared,
                                   .handlers = handlers,
                                   .user = user,
                                   .message_bytes_max = message_bytes_max,
                                   .deflate = deflate};
}

void ws_decoder_from_server(struct ws_decoder *decoder) {
    decoder->from_server = true;
}

static void decoder_drop(struct ws_decoder *decoder) {
    struct ws_partial *partial = decoder->partial;
    if (!partial)
        return;
    wslay_frame_context_free(partial->frames);
    buffer_release(&partial->message);
    buffer_release(&partial->control);
    free(partial);
    decoder->partial = NULL;
}

void ws_decoder_release(struct ws_decoder *decoder) {
    assert(decoder->shared->feeding != decoder);
    decoder_drop(decoder);
}

static ssize_t frames_pull(uint8_t *room, size_t room_bytes, int flags, void *user) {
    struct ws_shared *shared = user;
    (void)flags;
    size_t size = shared->input.size < room_bytes ? shared->input.size : room_bytes;
    if (size == 0)
        return -1;
    memcpy(room, shared->input.data, size);
    shared->input = slice_from(shared->input, size);
    return (ssize_t)size;
}

/* State for a frame, which earlier decoders of the thread may have left. */
static enum status partial_take(struct ws_decoder *decoder) {
    static const struct wslay_frame_callbacks callbacks = {.recv_callback = frames_pull};
    struct ws_shared *shared = decoder->shared;
    struct ws_partial *partial = decoder->partial;
    if (!partial) {
        partial = shared->spare_partial ? shared->spare_partial : malloc(sizeof(*partial));
        if (!partial)
            return STATUS_OUT_OF_MEMORY;
        shared->spare_partial = NULL;
        *partial = (struct ws_partial){0};
        buffer_init(&partial->message, decoder->message_bytes_max);
        buffer_init(&partial->control, WS_CONTROL_BYTES_MAX);
        decoder->partial = partial;
    }
    if (partial->frames)
        return STATUS_OK;
    assert(partial->frame_bytes == 0 && !partial->in_frame);
    if (shared->spare) {
        partial->frames = shared->spare;
        shared->spare = NULL;
        return STATUS_OK;
    }
    if (wslay_frame_context_init(&partial->frames, &callbacks, shared) == 0)
        return STATUS_OK;
    partial->frames = NULL;
    return STATUS_OUT_OF_MEMORY;
}

/* Between frames wslay holds no state; between messages the decoder holds none. */
static void partial_give_back(struct ws_decoder *decoder) {
    struct ws_partial *partial = decoder->partial;
    struct ws_shared *shared = decoder->shared;
    assert(partial->frame_bytes == 0 && !partial->in_frame);
    if (shared->spare)
        wslay_frame_context_free(partial->frames);
    else
        shared->spare = partial->frames;
    partial->frames = NULL;
    if (partial->in_message)
        return;
    assert(!partial->message.data && !partial->control.data);
    if (shared->spare_partial)
        free(partial);
    else
        shared->spare_partial = partial;
    decoder->partial = NULL;
}

static bool is_control(uint8_t opcode) {
    return (opcode & CONTROL_BIT) != 0;
}

static enum status header_check(const struct ws_decoder *decoder,
                                const struct wslay_frame_iocb *frame) {
    const struct ws_partial *partial = decoder->partial;
    bool is_data = frame->opcode == WS_TEXT || frame->opcode == WS_BINARY;
    bool is_known =
        frame->opcode <= WS_BINARY || (frame->opcode >= WS_CLOSE && frame->opcode <= WS_PONG);
    /* RSV1 marks a compressed message on its first frame; no other reserved bit was agreed on. */
    bool are_bits_allowed = frame->rsv == WSLAY_RSV_NONE ||
                            (frame->rsv == WSLAY_RSV1_BIT && decoder->deflate && is_data);
    if (!frame->mask != decoder->from_server || !is_known || !are_bits_allowed)
        return STATUS_WS_PROTOCOL_ERROR;
    if (is_control(frame->opcode)) {
        assert(frame->fin && frame->payload_length <= WS_CONTROL_BYTES_MAX);
        return STATUS_OK;
    }
    bool is_first = frame->opcode != WS_CONTINUATION;
    if (is_first == partial->in_message)
        return STATUS_WS_PROTOCOL_ERROR;
    /* The size of the message bounds the number of the other fragments. */
    if (frame->payload_length == 0 && partial->empty_fragments == WS_EMPTY_FRAGMENTS_MAX)
        return STATUS_WS_MESSAGE_TOO_BIG;
    if (frame->payload_length > partial->message.size_max - partial->message.size)
        return STATUS_WS_MESSAGE_TOO_BIG;
    return STATUS_OK;
}

/* Checks a header as soon as its size is complete. wslay reports a frame only with the first byte
 * of its payload, so a peer could send the header of an invalid frame, stop there, and hold its
 * connection. */
static enum status header_check_early(struct ws_decoder *decoder, struct slice data) {
    struct ws_partial *partial = decoder->partial;
    uint8_t header[HEADER_BYTES_MAX] = {0};
    size_t fresh = data.size;
    if (partial->in_frame || partial->frame_bytes == 0)
        return STATUS_OK;
    if (fresh > partial->frame_bytes)
        fresh = (size_t)partial->frame_bytes;
    enum status status = buffer_append(&partial->control, data.data + data.size - fresh, fresh);
    if (status != STATUS_OK)
        return status;
    struct slice bytes = buffer_slice(&partial->control);
    assert(bytes.size == partial->frame_bytes && bytes.size <= sizeof(header));
    memcpy(header, bytes.data, bytes.size);
    size_t size_bytes = (header[1] & 0x7f) == 127 ? 8 : (header[1] & 0x7f) == 126 ? 2 : 0;
    uint64_t payload_bytes = size_bytes == 0 ? header[1] & 0x7f : 0;
    for (size_t i = 0; i < size_bytes; i++)
        payload_bytes = payload_bytes << 8 | header[2 + i];
    const struct wslay_frame_iocb frame = {.fin = header[0] >> 7,
                                           .rsv = header[0] >> 4 & 0x7,
                                           .opcode = header[0] & 0xf,
                                           .mask = header[1] >> 7,
                                           .payload_length = payload_bytes};
    return bytes.size < 2 + size_bytes ? STATUS_OK : header_check(decoder, &frame);
}

/* A frame or message in one piece is delivered from wslay's memory. Only several pieces are
 * gathered. */
static enum status frame_payload(struct ws_decoder *decoder, const struct wslay_frame_iocb *frame,
                                 struct slice *whole) {
    struct slice piece = {(const char *)frame->data, frame->data_length};
    bool control = is_control(frame->opcode);
    struct buffer *gathered = control ? &decoder->partial->control : &decoder->partial->message;
    assert(piece.size <= decoder->partial->payload_bytes_left);
    decoder->partial->payload_bytes_left -= piece.size;
    if (!control && decoder->partial->opcode == WS_TEXT && !decoder->partial->compressed &&
        !utf8_feed(&decoder->partial->utf8, piece.data, piece.size))
        return STATUS_INVALID_UTF8;
    *whole = piece;
    if (decoder->partial->payload_bytes_left == 0 && frame->fin && gathered->size == 0)
        return STATUS_OK;
    enum status status = buffer_append_slice(gathered, piece);
    assert(status != STATUS_PAYLOAD_TOO_LARGE);
    *whole = buffer_slice(gathered);
    return status;
}

static enum status control_deliver(struct ws_decoder *decoder, uint8_t opcode,
                                   struct slice payload) {
    const struct ws_handlers *handlers = decoder->handlers;
    enum status status;
    if (opcode == WS_PING) {
        status = handlers->on_ping(decoder->user, payload);
    } else if (opcode == WS_PONG) {
        status = handlers->on_pong(decoder->user, payload);
    } else {
        unsigned code = WS_CLOSE_CODE_ABSENT;
        struct slice reason = payload;
        decoder->closed = true;
        if (payload.size >= 2) {
            code = (unsigned)(uint8_t)payload.data[0] << 8 | (uint8_t)payload.data[1];
            reason = slice_from(payload, 2);
        }
        if (payload.size == 1 || (payload.size >= 2 && !ws_close_code_valid(code)))
            status = STATUS_WS_PROTOCOL_ERROR;
        else if (!utf8_valid(reason))
            status = STATUS_INVALID_UTF8;
        else
            status = handlers->on_close(decoder->user, code, reason);
    }
    buffer_release(&decoder->partial->control);
    return status;
}

static enum status message_deliver(struct ws_decoder *decoder, struct slice payload) {
    struct ws_partial *partial = decoder->partial;
    struct buffer inflated;
    enum status status = STATUS_OK;
    if (partial->compressed) {
        buffer_init(&inflated, decoder->message_bytes_max);
        status = ws_inflate(&decoder->shared->inflater, &inflated, payload);
        if (status == STATUS_PAYLOAD_TOO_LARGE)
            status = STATUS_WS_MESSAGE_TOO_BIG;
        payload = buffer_slice(&inflated);
        if (status == STATUS_OK && partial->opcode == WS_TEXT && !utf8_valid(payload))
            status = STATUS_INVALID_UTF8;
    } else if (partial->utf8.missing > 0) {
        status = STATUS_INVALID_UTF8;
    }
    if (status == STATUS_OK)
        status =
            decoder->handlers->on_message(decoder->user, (enum ws_opcode)partial->opcode, payload);
    if (partial->compressed)
        buffer_release(&inflated);
    partial->in_message = false;
    partial->empty_fragments = 0;
    buffer_release(&partial->message);
    return status;
}

/* A piece of a frame's payload, or the header of a frame without payload. */
static enum status frame_piece(struct ws_decoder *decoder, const struct wslay_frame_iocb *frame) {
    struct ws_partial *partial = decoder->partial;
    bool control = is_control(frame->opcode);
    struct slice payload;
    enum status status = STATUS_OK;
    if (!partial->in_frame) {
        status = header_check(decoder, frame);
        buffer_release(&partial->control);
        partial->in_frame = true;
        partial->payload_bytes_left = frame->payload_length;
        if (status != STATUS_OK)
            return status;
        if (!control && !partial->in_message) {
            partial->in_message = true;
            partial->opcode = frame->opcode;
            partial->compressed = frame->rsv != WSLAY_RSV_NONE;
            /* A text that ended inside a character has already failed the decoder. */
            assert(partial->utf8.missing == 0);
        }
        if (!control && frame->payload_length == 0)
            partial->empty_fragments++;
    }
    status = frame_payload(decoder, frame, &payload);
    if (status != STATUS_OK || partial->payload_bytes_left > 0)
        return status;
    uint64_t size_bytes = frame->payload_length < 126           ? 2
                          : frame->payload_length <= UINT16_MAX ? 4
                                                                : 10;
    uint64_t frame_bytes =
        size_bytes + (decoder->from_server ? 0 : MASK_BYTES) + frame->payload_length;
    assert(frame_bytes <= partial->frame_bytes);
    partial->frame_bytes -= frame_bytes;
    partial->in_frame = false;
    if (control)
        return control_deliver(decoder, frame->opcode, payload);
    return frame->fin ? message_deliver(decoder, payload) : STATUS_OK;
}

enum status ws_feed(struct ws_decoder *decoder, struct slice data) {
    struct ws_shared *shared = decoder->shared;
    assert(!shared->feeding);
    if (decoder->failed != STATUS_OK || decoder->closed || data.size == 0)
        return decoder->failed;
    enum status status = partial_take(decoder);
    shared->feeding = decoder;
    shared->input = data;
    /* Until wslay has used all input, or the connection is closed. */
    while (status == STATUS_OK && !decoder->closed) {
        struct wslay_frame_iocb frame = {0};
        size_t input_bytes = shared->input.size;
        ssize_t result = wslay_frame_recv(decoder->partial->frames, &frame);
        decoder->partial->frame_bytes += input_bytes - shared->input.size;
        if (result == WSLAY_ERR_WANT_READ)
            break;
        status = result < 0 ? STATUS_WS_PROTOCOL_ERROR : frame_piece(decoder, &frame);
    }
    if (status == STATUS_OK && !decoder->closed)
        status = header_check_early(decoder, data);
    shared->input = (struct slice){NULL, 0};
    shared->feeding = NULL;
    decoder->failed = status;
    if (status != STATUS_OK || decoder->closed)
        decoder_drop(decoder);
    else if (decoder->partial->frame_bytes == 0)
        partial_give_back(decoder);
    return status;
}
