/* Any id, event name and data: what is written reads back the same by the WHATWG rules, and
 * what cannot be written so is refused. Input: flags (bit 0: with an id, bit 1: a small
 * buffer), size of the id, size of the name, then id, name and data. */
#include "../support/sse_reader.h"
#include "fuzz.h"
#include "wire/sse.h"

#define PREFIX_BYTES 3

static struct slice take(struct slice *input, size_t size) {
    struct slice taken = {input->data, size < input->size ? size : input->size};
    *input = slice_from(*input, taken.size);
    return taken;
}

static bool breaks_line(struct slice text, bool nul_too) {
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] == '\n' || text.data[i] == '\r' || (nul_too && text.data[i] == '\0'))
            return true;
    return false;
}

static void check_read_back(struct slice written, const struct sse_event *event) {
    struct sse_reader reader;
    struct buffer data;
    sse_reader_init(&reader);
    buffer_init(&data, READER_BYTES_MAX);
    sse_normalize(&data, event->data);
    sse_read(&reader, SLICE("id: before\ndata: x\n\n"));
    sse_read(&reader, written);
    require(reader.event_count == 2);
    require(slice_equal(buffer_slice(&reader.event_data), buffer_slice(&data)));
    require(
        slice_equal(buffer_slice(&reader.event_id), event->id.data ? event->id : SLICE("before")));
    require(slice_equal(buffer_slice(&reader.event_type),
                        event->event.size > 0 ? event->event : SLICE("message")));
    require(slice_ends(written, SLICE("\n\n")));
    buffer_release(&data);
    sse_reader_release(&reader);
}

static void check_comment(struct slice text) {
    struct sse_reader reader;
    struct buffer out;
    sse_reader_init(&reader);
    buffer_init(&out, READER_BYTES_MAX);
    require(sse_comment(&out, text) == STATUS_OK);
    require(sse_retry(&out, text.size) == STATUS_OK);
    sse_read(&reader, buffer_slice(&out));
    require(reader.event_count == 0 && reader.retry_ms == text.size && reader.event_id.size == 0);
    buffer_release(&out);
    sse_reader_release(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < PREFIX_BYTES)
        return 0;
    struct slice input = {(const char *)data + PREFIX_BYTES, size - PREFIX_BYTES};
    struct sse_event event = {0};
    event.id = take(&input, data[1]);
    event.event = take(&input, data[2]);
    event.data = input;
    if (!(data[0] & 1))
        event.id = (struct slice){NULL, 0};
    struct buffer out;
    buffer_init(&out, data[0] & 2 ? 64 : READER_BYTES_MAX);
    enum status status = sse_event(&out, &event);
    if (breaks_line(event.id, true) || breaks_line(event.event, false))
        require(status == STATUS_INVALID_MESSAGE && out.size == 0);
    else if (status == STATUS_OK)
        check_read_back(buffer_slice(&out), &event);
    else
        require(status == STATUS_PAYLOAD_TOO_LARGE && (data[0] & 2) && out.size == 0);
    buffer_release(&out);
    check_comment(event.data);
    return 0;
}
