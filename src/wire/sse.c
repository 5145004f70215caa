#include "wire/sse.h"

#include <inttypes.h>

#include "wire/put.h"

static bool has_any(struct slice text, const char *characters, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text.size > 0 && memchr(text.data, characters[i], text.size))
            return true;
    return false;
}

/* The text up to its first line end. *text becomes the text after it, or data NULL if there was no
 * line end: "a" is one line, "a\n" is two. */
static struct slice line_take(struct slice *text) {
    size_t size = 0;
    while (size < text->size && text->data[size] != '\n' && text->data[size] != '\r')
        size++;
    struct slice line = {text->data, size};
    if (size == text->size) {
        *text = (struct slice){NULL, 0};
        return line;
    }
    bool pair = text->data[size] == '\r' && size + 1 < text->size && text->data[size + 1] == '\n';
    *text = slice_from(*text, size + (pair ? 2 : 1));
    return line;
}

/* One space always follows the colon. Clients remove one, so a value may begin with spaces. */
static void line_append(struct buffer *out, struct slice field, struct slice value) {
    buffer_append_slice(out, field);
    buffer_append_slice(out, SLICE(": "));
    buffer_append_slice(out, value);
    buffer_append_byte(out, '\n');
}

static enum status lines_end(struct buffer *out, size_t begin, struct slice field,
                             struct slice text) {
    do
        line_append(out, field, line_take(&text));
    while (buffer_status(out) == STATUS_OK && text.data);
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
