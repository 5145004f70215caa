#include "wire/sse.h"

#include <inttypes.h>

#include "wire/put.h"

static bool has_any(struct slice text, const char *characters, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text.size > 0 && memchr(text.data, characters[i], text.size))
            return true;
    return false;
}

static size_t line_size(struct slice text) {
    size_t size = 0;
    while (size < text.size && text.data[size] != '\n' && text.data[size] != '\r')
        size++;
    return size;
}

/* One space always follows the colon. Clients remove one, so a value may begin with spaces. */
static void line_append(struct buffer *out, struct slice field, struct slice value) {
    buffer_append_slice(out, field);
    buffer_append_slice(out, SLICE(": "));
    buffer_append_slice(out, value);
    buffer_append_byte(out, '\n');
}

/* Writes each line of the text as a field, and the blank line after them. Any of LF, CRLF and CR
 * ends a line: "a" is one line, "a\n" is two. */
static enum status lines_end(struct buffer *out, size_t begin, struct slice field,
                             struct slice text) {
    for (;;) {
        size_t size = line_size(text);
        line_append(out, field, (struct slice){text.data, size});
        if (size == text.size || buffer_status(out) != STATUS_OK)
            break;
        bool is_pair =
            text.data[size] == '\r' && size + 1 < text.size && text.data[size + 1] == '\n';
        text = slice_from(text, size + (is_pair ? 2 : 1));
    }
    buffer_append_byte(out, '\n');
    return buffer_end(out, begin);
}

enum status sse_event(struct buffer *out, const struct sse_event *event) {
    size_t begin = out->size;
    /* Clients ignore an id with NUL, and would resume from the previous id. */
    if (has_any(event->id, "\r\n\0", 3) || has_any(event->event, "\r\n", 2))
        return STATUS_INVALID_MESSAGE;
    if (event->id.data)
        line_append(out, SLICE("id"), event->id);
    if (event->event.size > 0)
        line_append(out, SLICE("event"), event->event);
    return lines_end(out, begin, SLICE("data"), event->data);
}

char *sse_put_line_begin(char *at, struct slice id) {
    at = put_slice(PUT_LITERAL(at, "id: "), id);
    return PUT_LITERAL(at, "\ndata: ");
}

enum status sse_comment(struct buffer *out, struct slice text) {
    return lines_end(out, out->size, SLICE(""), text);
}

enum status sse_retry(struct buffer *out, uint64_t delay_ms) {
    size_t begin = out->size;
    buffer_printf(out, "retry: %" PRIu64 "\n\n", delay_ms);
    return buffer_end(out, begin);
}

/* ---- reading ---------------------------------------------------------------------------- */

/* A longer delay is not plausible. */
#define RETRY_MS_MAX 3600000u

static const char byte_order_mark[] = {'\xef', '\xbb', '\xbf'};

void sse_decoder_init(struct sse_decoder *decoder, const struct sse_handlers *handlers, void *user,
                      size_t bytes_max) {
    *decoder = (struct sse_decoder){.handlers = handlers, .user = user};
    buffer_init(&decoder->line, bytes_max);
    buffer_init(&decoder->event, bytes_max);
    buffer_init(&decoder->data, bytes_max);
    buffer_init(&decoder->id, bytes_max);
}

void sse_decoder_release(struct sse_decoder *decoder) {
    buffer_release(&decoder->line);
    buffer_release(&decoder->event);
    buffer_release(&decoder->data);
    buffer_release(&decoder->id);
}

void sse_decoder_restart(struct sse_decoder *decoder) {
    buffer_clear(&decoder->line);
    buffer_clear(&decoder->event);
    buffer_clear(&decoder->data);
    buffer_clear(&decoder->id);
    decoder->begun = 0;
    decoder->after_cr = false;
}

/* A blank line ends an event. Any other line is a field of it, or a comment, whose name is empty.
 */
static enum status take_line(struct sse_decoder *decoder) {
    struct slice line = buffer_slice(&decoder->line);
    enum status status = STATUS_OK;
    if (line.size == 0) {
        struct slice event = buffer_slice(&decoder->event);
        const struct sse_message message = {
            .event = event.size > 0 ? event : SLICE("message"),
            .id = buffer_slice(&decoder->id),
            /* The end of its last line is not part of it. */
            .data = {decoder->data.data, decoder->data.size - (decoder->data.size > 0)},
        };
        if (decoder->data.size > 0)
            status = decoder->handlers->on_message(decoder->user, &message);
        buffer_clear(&decoder->event);
        buffer_clear(&decoder->data);
        return status;
    }
    const char *colon = memchr(line.data, ':', line.size);
    struct slice name = {line.data, colon ? (size_t)(colon - line.data) : line.size};
    struct slice value = slice_from(line, colon ? name.size + 1 : line.size);
    if (slice_starts(value, SLICE(" ")))
        value = slice_from(value, 1);
    if (slice_equal(name, SLICE("data"))) {
        buffer_append_slice(&decoder->data, value);
        status = buffer_append_byte(&decoder->data, '\n');
    } else if (slice_equal(name, SLICE("event"))) {
        buffer_clear(&decoder->event);
        status = buffer_append_slice(&decoder->event, value);
    } else if (slice_equal(name, SLICE("id"))) {
        if (value.size == 0 || !memchr(value.data, '\0', value.size)) {
            buffer_clear(&decoder->id);
            status = buffer_append_slice(&decoder->id, value);
        }
    } else if (slice_equal(name, SLICE("retry"))) {
        uint64_t delay_ms = 0;
        size_t digits = 0;
        for (; digits < value.size && value.data[digits] >= '0' && value.data[digits] <= '9';
             digits++) {
            delay_ms = delay_ms * 10 + (uint64_t)(value.data[digits] - '0');
            if (delay_ms > RETRY_MS_MAX)
                delay_ms = RETRY_MS_MAX;
        }
        if (digits > 0 && digits == value.size && decoder->handlers->on_retry)
            decoder->handlers->on_retry(decoder->user, delay_ms);
    }
    buffer_clear(&decoder->line);
    return status;
}

/* Skips the byte order mark at the start of the stream. Other bytes are decoded. */
static enum status skip_mark(struct sse_decoder *decoder, struct slice *piece) {
    while (decoder->begun < sizeof(byte_order_mark) && piece->size > 0) {
        if (piece->data[0] != byte_order_mark[decoder->begun]) {
            size_t held = decoder->begun;
            decoder->begun = sizeof(byte_order_mark);
            return buffer_append(&decoder->line, byte_order_mark, held);
        }
        decoder->begun++;
        *piece = slice_from(*piece, 1);
    }
    return STATUS_OK;
}

enum status sse_decoder_feed(struct sse_decoder *decoder, struct slice piece) {
    enum status status = skip_mark(decoder, &piece);
    while (status == STATUS_OK && piece.size > 0) {
        if (decoder->after_cr && piece.data[0] == '\n')
            piece = slice_from(piece, 1);
        decoder->after_cr = false;
        size_t size = line_size(piece);
        status = buffer_append(&decoder->line, piece.data, size);
        if (status != STATUS_OK || size == piece.size)
            break;
        decoder->after_cr = piece.data[size] == '\r';
        piece = slice_from(piece, size + 1);
        status = take_line(decoder);
    }
    return status;
}
