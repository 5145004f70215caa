/* The other side of a WebSocket for tests: writes a client's masked frames, and records what a
 * decoder delivers as lines of text, so that two runs compare as two strings. */
#ifndef SUPPORT_WS_PEER_H
#define SUPPORT_WS_PEER_H

#include <stdlib.h>

#include "wire/websocket/ws_decoder.h"

struct client_frame {
    bool final;
    bool compressed;
    enum ws_opcode opcode;
    uint32_t mask;
    struct slice payload;
};

static inline void peer_check(bool holds) {
    if (!holds)
        abort();
}

static inline void peer_append(struct buffer *out, const void *data, size_t size) {
    peer_check(buffer_append(out, data, size) == STATUS_OK);
}

static inline void client_frame_write(struct buffer *out, struct client_frame frame) {
    uint8_t header[WS_HEADER_BYTES_MAX];
    bool control = frame.opcode >= WS_CLOSE;
    size_t header_bytes =
        ws_frame_header(header, frame.opcode, !control && frame.compressed, frame.payload.size);
    uint8_t mask[4] = {(uint8_t)(frame.mask >> 24), (uint8_t)(frame.mask >> 16),
                       (uint8_t)(frame.mask >> 8), (uint8_t)frame.mask};
    if (!frame.final)
        header[0] &= 0x7f;
    header[1] |= 0x80;
    peer_append(out, header, header_bytes);
    peer_append(out, mask, sizeof(mask));
    for (size_t i = 0; i < frame.payload.size; i++) {
        char masked = (char)((uint8_t)frame.payload.data[i] ^ mask[i % 4]);
        peer_append(out, &masked, 1);
    }
}

static inline void record(struct buffer *transcript, const char *kind, unsigned code,
                          struct slice payload) {
    peer_check(buffer_printf(transcript, "%s %u %zu ", kind, code, payload.size) == STATUS_OK);
    peer_append(transcript, payload.data, payload.size);
    peer_append(transcript, "\n", 1);
}

static inline enum status record_message(void *user, enum ws_opcode opcode, struct slice message) {
    record(user, "message", opcode, message);
    return STATUS_OK;
}

static inline enum status record_ping(void *user, struct slice payload) {
    record(user, "ping", 0, payload);
    return STATUS_OK;
}

static inline enum status record_pong(void *user, struct slice payload) {
    record(user, "pong", 0, payload);
    return STATUS_OK;
}

static inline enum status record_close(void *user, unsigned code, struct slice reason) {
    record(user, "close", code, reason);
    return STATUS_OK;
}

static const struct ws_handlers recording = {record_message, record_ping, record_pong,
                                             record_close};

static inline bool holds_no_memory(const struct ws_decoder *decoder) {
    return !decoder->partial;
}

#endif
