/* Reads an event stream as the WHATWG rules say ("Interpreting an event stream"), line by line:
 * the oracle for wire/sse. Written from the rules, sharing nothing with the encoder. */
#ifndef SUPPORT_SSE_READER_H
#define SUPPORT_SSE_READER_H

#include <stdlib.h>

#include "base/buffer.h"

#define READER_BYTES_MAX (1u << 22)

struct sse_reader {
    struct buffer data;
    struct buffer type;
    struct buffer id_pending;
    uint64_t retry_ms;
    /* The last event dispatched. */
    size_t event_count;
    struct buffer event_type;
    struct buffer event_data;
    struct buffer event_id;
};

static inline void reader_set(struct buffer *field, const char *data, size_t size) {
    buffer_clear(field);
    if (buffer_append(field, data, size) != STATUS_OK)
        abort();
}

static inline struct buffer *reader_field(struct sse_reader *reader, int index) {
    struct buffer *fields[] = {&reader->data,       &reader->type,       &reader->id_pending,
                               &reader->event_type, &reader->event_data, &reader->event_id};
    return fields[index];
}

static inline void sse_reader_init(struct sse_reader *reader) {
    *reader = (struct sse_reader){0};
    for (int i = 0; i < 6; i++)
        buffer_init(reader_field(reader, i), READER_BYTES_MAX);
}

static inline void sse_reader_release(struct sse_reader *reader) {
    for (int i = 0; i < 6; i++)
        buffer_release(reader_field(reader, i));
}

static inline void reader_dispatch(struct sse_reader *reader) {
    reader_set(&reader->event_id, reader->id_pending.data, reader->id_pending.size);
    if (reader->data.size > 0) {
        reader_set(&reader->event_data, reader->data.data, reader->data.size - 1);
        if (reader->type.size > 0)
            reader_set(&reader->event_type, reader->type.data, reader->type.size);
        else
            reader_set(&reader->event_type, "message", 7);
        reader->event_count++;
    }
    buffer_clear(&reader->data);
    buffer_clear(&reader->type);
}

static inline void reader_retry(struct sse_reader *reader, struct slice value) {
    uint64_t number = 0;
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return;
        number = number * 10 + (uint64_t)(value.data[i] - '0');
    }
    reader->retry_ms = number;
}

static inline void reader_line(struct sse_reader *reader, struct slice line) {
    if (line.size == 0) {
        reader_dispatch(reader);
        return;
    }
    const char *colon = memchr(line.data, ':', line.size);
    if (colon == line.data)
        return;
    size_t name_size = colon ? (size_t)(colon - line.data) : line.size;
    struct slice name = {line.data, name_size};
    struct slice value = colon ? slice_from(line, name_size + 1) : (struct slice){"", 0};
    if (value.size > 0 && value.data[0] == ' ')
        value = slice_from(value, 1);
    if (slice_equal(name, SLICE("event"))) {
        reader_set(&reader->type, value.data, value.size);
    } else if (slice_equal(name, SLICE("data"))) {
        if (buffer_append_slice(&reader->data, value) != STATUS_OK ||
            buffer_append_byte(&reader->data, '\n') != STATUS_OK)
            abort();
    } else if (slice_equal(name, SLICE("id"))) {
        if (value.size == 0 || !memchr(value.data, '\0', value.size))
            reader_set(&reader->id_pending, value.data, value.size);
    } else if (slice_equal(name, SLICE("retry"))) {
        reader_retry(reader, value);
    }
}

/* Whole lines only: what follows the last line end is dropped, as at the end of a stream. */
static inline void sse_read(struct sse_reader *reader, struct slice stream) {
    size_t begin = 0;
    for (size_t i = 0; i < stream.size; i++) {
        if (stream.data[i] != '\n' && stream.data[i] != '\r')
            continue;
        reader_line(reader, (struct slice){stream.data + begin, i - begin});
        if (stream.data[i] == '\r' && i + 1 < stream.size && stream.data[i + 1] == '\n')
            i++;
        begin = i + 1;
    }
}

/* What a reader makes of a text's line ends. */
static inline void sse_normalize(struct buffer *out, struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        bool carriage = text.data[i] == '\r';
        if (carriage && i + 1 < text.size && text.data[i + 1] == '\n')
            continue;
        if (buffer_append_byte(out, carriage ? '\n' : text.data[i]) != STATUS_OK)
            abort();
    }
}

#endif
