/* Any bytes as an event stream: read whole, in pieces, and by the tests' own reader, the same
 * events come out. Input: the size of a piece, then the stream. */
#include "../support/sse_reader.h"
#include "fuzz.h"
#include "wire/sse.h"

#define BYTES_MAX (1u << 20)

struct seen {
    size_t count;
    struct buffer all; /* every part of every event behind its size */
    struct buffer last;
};

static void put(struct seen *seen, struct slice part) {
    require(buffer_append_u64(&seen->all, part.size) == STATUS_OK);
    require(buffer_append_byte(&seen->all, ' ') == STATUS_OK);
    require(buffer_append_slice(&seen->all, part) == STATUS_OK);
}

static enum status on_message(void *user, const struct sse_message *message) {
    struct seen *seen = user;
    seen->count++;
    put(seen, message->event);
    put(seen, message->id);
    put(seen, message->data);
    buffer_clear(&seen->last);
    require(buffer_append_slice(&seen->last, message->data) == STATUS_OK);
    return STATUS_OK;
}

static void on_retry(void *user, uint64_t delay_ms) {
    (void)user;
    require(delay_ms <= 3600000);
}

static void decode(struct seen *seen, struct slice stream, size_t piece_bytes) {
    static const struct sse_handlers handlers = {on_message, on_retry};
    struct sse_decoder decoder;
    *seen = (struct seen){0};
    buffer_init(&seen->all, 64u << 20);
    buffer_init(&seen->last, BYTES_MAX);
    sse_decoder_init(&decoder, &handlers, seen, BYTES_MAX);
    while (stream.size > 0) {
        size_t size = piece_bytes < stream.size ? piece_bytes : stream.size;
        require(sse_decoder_feed(&decoder, (struct slice){stream.data, size}) == STATUS_OK);
        stream = slice_from(stream, size);
    }
    sse_decoder_release(&decoder);
}

static void seen_release(struct seen *seen) {
    buffer_release(&seen->all);
    buffer_release(&seen->last);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct seen whole, pieces;
    struct sse_reader reader;
    if (size < 1 || size > 65536)
        return 0;
    struct slice stream = {(const char *)data + 1, size - 1};
    decode(&whole, stream, SIZE_MAX);
    decode(&pieces, stream, (size_t)data[0] + 1);
    require(whole.count == pieces.count);
    require(slice_equal(buffer_slice(&whole.all), buffer_slice(&pieces.all)));
    sse_reader_init(&reader);
    sse_read(&reader, slice_starts(stream, SLICE("\xef\xbb\xbf")) ? slice_from(stream, 3) : stream);
    require(reader.event_count == whole.count);
    require(slice_equal(buffer_slice(&reader.event_data), buffer_slice(&whole.last)));
    sse_reader_release(&reader);
    seen_release(&pieces);
    seen_release(&whole);
    return 0;
}
