#include "base/buffer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "base/hex.h"

#define CAPACITY_FIRST 256

void buffer_init(struct buffer *buffer, size_t size_max) {
    assert(size_max > 0 && size_max <= BUFFER_SIZE_MAX);
    *buffer = (struct buffer){.size_max = size_max & BUFFER_SIZE_MAX};
}

void buffer_release(struct buffer *buffer) {
    free(buffer->data);
    buffer_init(buffer, buffer->size_max);
}

void buffer_clear(struct buffer *buffer) {
    buffer_truncate(buffer, 0);
}

void buffer_truncate(struct buffer *buffer, size_t size) {
    assert(size <= buffer->size);
    buffer->size = size;
    buffer->error = STATUS_OK;
}

enum status buffer_end(struct buffer *buffer, size_t begin) {
    enum status status = buffer_status(buffer);
    if (status != STATUS_OK)
        buffer_truncate(buffer, begin);
    return status;
}

void buffer_consume(struct buffer *buffer, size_t size) {
    assert(size <= buffer->size);
    buffer->size -= size;
    if (buffer->size > 0 && size > 0)
        memmove(buffer->data, buffer->data + size, buffer->size);
}

enum status buffer_reserve(struct buffer *buffer, size_t size) {
    assert(buffer->size_max > 0);
    if (size <= buffer->capacity - buffer->size)
        return STATUS_OK;
    if (size > buffer->size_max - buffer->size)
        return STATUS_PAYLOAD_TOO_LARGE;
    size_t needed = buffer->size + size;
    size_t capacity = buffer->capacity ? buffer->capacity : CAPACITY_FIRST;
    while (capacity < needed)
        capacity = capacity > buffer->size_max / 2 ? buffer->size_max : capacity * 2;
    if (capacity > buffer->size_max)
        capacity = buffer->size_max;
    char *data = realloc(buffer->data, capacity);
    if (!data)
        return STATUS_OUT_OF_MEMORY;
    buffer->data = data;
    buffer->capacity = capacity;
    return STATUS_OK;
}

enum status buffer_append_growing(struct buffer *buffer, const void *data, size_t size) {
    if (buffer->error == STATUS_OK)
        buffer_note(buffer, buffer_reserve(buffer, size));
    return buffer->error == STATUS_OK ? buffer_append(buffer, data, size) : buffer_status(buffer);
}

enum status buffer_append_u64(struct buffer *buffer, uint64_t number) {
    char digits[DECIMAL_U64_SIZE_MAX];
    return buffer_append(buffer, digits, (size_t)(decimal_write_u64(digits, number) - digits));
}

enum status buffer_append_hex(struct buffer *buffer, const void *data, size_t size) {
    enum status status =
        size > SIZE_MAX / 2 ? STATUS_PAYLOAD_TOO_LARGE : buffer_reserve(buffer, size * 2);
    if (buffer_note(buffer, status) != STATUS_OK)
        return buffer_status(buffer);
    if (size > 0)
        hex_write(buffer->data + buffer->size, data, size);
    buffer->size += size * 2;
    return STATUS_OK;
}

enum status buffer_printf(struct buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    assert(written >= 0);
    size_t size = (size_t)written;
    if (buffer->error != STATUS_OK ||
        buffer_note(buffer, buffer_reserve(buffer, size)) != STATUS_OK)
        return buffer_status(buffer);
    /* vsnprintf writes a NUL behind the text, for which a full buffer has no room. */
    char *text = NULL;
    va_start(arguments, format);
    if (size < buffer->capacity - buffer->size) {
        vsnprintf(buffer->data + buffer->size, size + 1, format, arguments);
        buffer->size += size;
    } else if (vasprintf(&text, format, arguments) < 0) {
        buffer_note(buffer, STATUS_OUT_OF_MEMORY);
    } else {
        buffer_append(buffer, text, size);
        free(text);
    }
    va_end(arguments);
    return buffer_status(buffer);
}
