/* Any bytes as a client's stream: in one piece, in pieces and byte by byte they must give the
 * same events and the same end, and memory stays within the limits at every step.
 * Input: flags (bit 0: deflate agreed on), message_bytes_max / 16, seed of the cuts, stream. */
#include "../support/ws_peer.h"
#include "fuzz.h"

#define PREFIX_BYTES 3

struct run {
    struct buffer transcript;
    size_t message_bytes_max;
    enum status status;
    bool closed;
};

static enum status watch_message(void *user, enum ws_opcode opcode, struct slice message) {
    struct run *run = user;
    require(message.size <= run->message_bytes_max);
    require(opcode == WS_TEXT || opcode == WS_BINARY);
    require(opcode != WS_TEXT || utf8_valid(message));
    return record_message(&run->transcript, opcode, message);
}

static enum status watch_ping(void *user, struct slice payload) {
    struct run *run = user;
    require(payload.size <= WS_CONTROL_BYTES_MAX);
    return record_ping(&run->transcript, payload);
}

static enum status watch_pong(void *user, struct slice payload) {
    struct run *run = user;
    require(payload.size <= WS_CONTROL_BYTES_MAX);
    return record_pong(&run->transcript, payload);
}

static enum status watch_close(void *user, unsigned code, struct slice reason) {
    struct run *run = user;
    require(reason.size <= WS_CLOSE_REASON_BYTES_MAX && utf8_valid(reason));
    require(code == WS_CLOSE_CODE_ABSENT || ws_close_code_valid(code));
    return record_close(&run->transcript, code, reason);
}

static const struct ws_handlers watching = {watch_message, watch_ping, watch_pong, watch_close};

static void check_memory(const struct ws_decoder *decoder, size_t arrived) {
    const struct ws_partial *partial = decoder->partial;
    bool over = decoder->failed != STATUS_OK || decoder->closed;
    require(!over || holds_no_memory(decoder));
    if (!partial)
        return;
    require(partial->message.size <= partial->message.size_max);
    require(partial->message.size <= arrived);
    require(partial->control.size <= WS_CONTROL_BYTES_MAX);
    require(partial->empty_fragments <= WS_EMPTY_FRAGMENTS_MAX);
    require(partial->frame_bytes > 0 || partial->in_message);
    require(partial->frame_bytes > 0 || !partial->frames);
}

static void run_pieces(struct run *run, struct slice stream, bool deflate, unsigned seed) {
    struct ws_shared shared;
    struct ws_decoder decoder;
    size_t offset = 0;
    ws_shared_init(&shared);
    buffer_init(&run->transcript, 1u << 26);
    ws_decoder_init(&decoder, &shared, &watching, run, run->message_bytes_max, deflate);
    while (offset < stream.size) {
        size_t size = seed == 0 ? stream.size : 1;
        if (seed > 1) {
            seed = seed * 1103515245u + 12345u;
            size = 1 + (seed >> 16) % 37;
        }
        if (size > stream.size - offset)
            size = stream.size - offset;
        enum status before = decoder.failed;
        enum status status = ws_feed(&decoder, (struct slice){stream.data + offset, size});
        require(status == decoder.failed && (before == STATUS_OK || status == before));
        offset += size;
        check_memory(&decoder, offset);
    }
    run->status = decoder.failed;
    run->closed = decoder.closed;
    ws_decoder_release(&decoder);
    ws_shared_release(&shared);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < PREFIX_BYTES)
        return 0;
    bool deflate = data[0] & 1;
    const unsigned seeds[] = {0, 1, 2u + data[2]};
    struct run runs[3];
    struct slice stream = {(const char *)data + PREFIX_BYTES, size - PREFIX_BYTES};
    for (int i = 0; i < 3; i++) {
        runs[i] = (struct run){.message_bytes_max = 1 + (size_t)data[1] * 16};
        run_pieces(&runs[i], stream, deflate, seeds[i]);
        require(runs[i].status == runs[0].status && runs[i].closed == runs[0].closed);
        require(slice_equal(buffer_slice(&runs[i].transcript), buffer_slice(&runs[0].transcript)));
    }
    require(ws_close_code_valid(ws_close_code(runs[0].status)));
    for (int i = 0; i < 3; i++)
        buffer_release(&runs[i].transcript);
    return 0;
}
