#include "wire/websocket/ws_frame.h"

#include <assert.h>

#include "base/utf8.h"

#define FIN        0x80u
#define RSV1       0x40u
#define MASKED     0x80u
#define MASK_BYTES 4

#define SIZE_16_BIT 126
#define SIZE_64_BIT 127

static size_t size_bytes_of(uint64_t payload_bytes) {
    return payload_bytes < SIZE_16_BIT ? 0 : payload_bytes <= UINT16_MAX ? 2 : 8;
}

size_t ws_header_bytes(uint64_t payload_bytes) {
    return 2 + size_bytes_of(payload_bytes);
}

/* wslay is not used here: it writes a header only through a context of 4 KiB and a callback, and
 * only together with its payload. A shared payload needs its header alone. */
size_t ws_frame_header(uint8_t header[WS_HEADER_BYTES_MAX], enum ws_opcode opcode, bool compressed,
                       uint64_t payload_bytes) {
    assert(payload_bytes <= INT64_MAX);
    assert(opcode < WS_CLOSE || (payload_bytes <= WS_CONTROL_BYTES_MAX && !compressed));
    header[0] = (uint8_t)(FIN | (compressed ? RSV1 : 0u) | (unsigned)opcode);
    size_t size_bytes = size_bytes_of(payload_bytes);
    if (size_bytes == 0)
        header[1] = (uint8_t)payload_bytes;
    else
        header[1] = size_bytes == 2 ? SIZE_16_BIT : SIZE_64_BIT;
    for (size_t i = 0; i < size_bytes; i++)
        header[2 + i] = (uint8_t)(payload_bytes >> (8 * (size_bytes - 1 - i)));
    return 2 + size_bytes;
}

enum status ws_frame_write(struct buffer *out, enum ws_opcode opcode, bool compressed,
                           struct slice payload) {
    uint8_t header[WS_HEADER_BYTES_MAX];
    size_t header_bytes = ws_frame_header(header, opcode, compressed, payload.size);
    enum status status = buffer_reserve(out, header_bytes + payload.size);
    if (status != STATUS_OK)
        return status;
    buffer_append(out, header, header_bytes);
    return buffer_append_slice(out, payload);
}

enum status ws_frame_write_masked(struct buffer *out, enum ws_opcode opcode, struct slice payload,
                                  const uint8_t mask[4]) {
    uint8_t header[WS_HEADER_BYTES_MAX];
    size_t header_bytes = ws_frame_header(header, opcode, false, payload.size);
    header[1] |= MASKED;
    enum status status = buffer_reserve(out, header_bytes + MASK_BYTES + payload.size);
    if (status != STATUS_OK)
        return status;
    buffer_append(out, header, header_bytes);
    buffer_append(out, mask, MASK_BYTES);
    size_t begin = out->size;
    status = buffer_append_slice(out, payload);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < payload.size; i++)
        out->data[begin + i] = (char)((uint8_t)out->data[begin + i] ^ mask[i % MASK_BYTES]);
    return STATUS_OK;
}

enum status ws_frame_wrap(struct buffer *out, size_t begin, size_t gap, enum ws_opcode opcode) {
    uint8_t header[WS_HEADER_BYTES_MAX];
    assert(begin <= out->size && gap <= out->size - begin);
    size_t payload_bytes = out->size - begin - gap;
    size_t header_bytes = ws_frame_header(header, opcode, false, payload_bytes);
    enum status status = buffer_reserve(out, header_bytes > gap ? header_bytes - gap : 0);
    if (status != STATUS_OK)
        return status;
    if (header_bytes != gap)
        memmove(out->data + begin + header_bytes, out->data + begin + gap, payload_bytes);
    memcpy(out->data + begin, header, header_bytes);
    out->size = begin + header_bytes + payload_bytes;
    return STATUS_OK;
}

static size_t reason_fit(struct slice reason) {
    if (reason.size <= WS_CLOSE_REASON_BYTES_MAX)
        return reason.size;
    size_t size = WS_CLOSE_REASON_BYTES_MAX;
    while (size > 0 && ((uint8_t)reason.data[size] & 0xc0u) == 0x80u)
        size--;
    return size;
}

enum status ws_close_write(struct buffer *out, unsigned code, struct slice reason) {
    char payload[WS_CONTROL_BYTES_MAX];
    if (code == WS_CLOSE_CODE_ABSENT)
        return ws_frame_write(out, WS_CLOSE, false, (struct slice){payload, 0});
    assert(ws_close_code_valid(code));
    assert(utf8_valid(reason));
    size_t reason_bytes = reason_fit(reason);
    payload[0] = (char)(code >> 8);
    payload[1] = (char)(code & 0xff);
    if (reason_bytes > 0)
        memcpy(payload + 2, reason.data, reason_bytes);
    return ws_frame_write(out, WS_CLOSE, false, (struct slice){payload, 2 + reason_bytes});
}

bool ws_close_code_valid(unsigned code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

/* Statuses whose close code does not follow from their HTTP class. */
static const struct {
    enum status status;
    enum close_code code;
} close_codes[] = {
    {STATUS_OK, CLOSE_NORMAL},
    {STATUS_SHUTTING_DOWN, CLOSE_GOING_AWAY},
    {STATUS_WS_PROTOCOL_ERROR, CLOSE_PROTOCOL_ERROR},
    {STATUS_INVALID_UTF8, CLOSE_INVALID_UTF8},
    {STATUS_SLOW_CONSUMER, CLOSE_SLOW_CONSUMER},
    {STATUS_SLOW_CONSUMER_EVICTED, CLOSE_SLOW_CONSUMER},
    {STATUS_TOKEN_EXPIRED, CLOSE_TOKEN_EXPIRED},
    {STATUS_REAUTH_REQUIRED, CLOSE_TOKEN_EXPIRED},
    {STATUS_TOKEN_REVOKED, CLOSE_POLICY_VIOLATION},
    {STATUS_TOO_MANY_CONNECTIONS, CLOSE_TRY_AGAIN_LATER},
    /* A peer that stays silent on an open connection is gone, not malformed. */
    {STATUS_WS_SILENT, CLOSE_GOING_AWAY},
};

enum close_code ws_close_code(enum status status) {
    for (size_t i = 0; i < sizeof(close_codes) / sizeof(close_codes[0]); i++)
        if (close_codes[i].status == status)
            return close_codes[i].code;
    int http = status_http(status);
    if (http >= 500)
        return CLOSE_INTERNAL_ERROR;
    if (http == 401)
        return CLOSE_AUTH_FAILED;
    if (http == 403)
        return CLOSE_POLICY_VIOLATION;
    if (http == 429)
        return CLOSE_TRY_AGAIN_LATER;
    if (http == 413)
        return CLOSE_TOO_BIG;
    return CLOSE_INVALID_MESSAGE;
}
