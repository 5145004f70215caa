/* A growing byte buffer that cannot exist without a maximum.
 * Owned by one thread at a time. Memory is allocated on first use, doubles up to size_max,
 * and is freed by buffer_release. Appending past size_max returns STATUS_PAYLOAD_TOO_LARGE and
 * changes nothing; a failed append never leaves part of its bytes. size <= capacity <= size_max. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <assert.h>
#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

struct buffer {
    char *data;
    size_t size;
    size_t capacity;
    size_t size_max;
};

void buffer_init(struct buffer *buffer, size_t size_max);
void buffer_release(struct buffer *buffer);
/* Drops the content, keeps the memory. */
void buffer_clear(struct buffer *buffer);
/* Drops the first size bytes. */
void buffer_consume(struct buffer *buffer, size_t size);
/* Makes room for size more bytes, so that the appends that use it cannot fail. */
MUST_CHECK enum status buffer_reserve(struct buffer *buffer, size_t size);
/* For buffer_append: the bytes do not fit into the memory that the buffer has. */
MUST_CHECK enum status buffer_append_growing(struct buffer *buffer, const void *data, size_t size);

/* In the header, because writers of JSON append a few bytes at a time. */
MUST_CHECK static inline enum status buffer_append(struct buffer *buffer, const void *data,
                                                   size_t size) {
    if (size > buffer->capacity - buffer->size)
        return buffer_append_growing(buffer, data, size);
    assert(data || size == 0);
    if (size > 0)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return STATUS_OK;
}

MUST_CHECK static inline enum status buffer_append_slice(struct buffer *buffer,
                                                         struct slice slice) {
    return buffer_append(buffer, slice.data, slice.size);
}

MUST_CHECK static inline enum status buffer_append_byte(struct buffer *buffer, char byte) {
    return buffer_append(buffer, &byte, 1);
}

MUST_CHECK enum status buffer_append_u64(struct buffer *buffer, uint64_t number);
MUST_CHECK enum status buffer_append_hex(struct buffer *buffer, const void *data, size_t size);
MUST_CHECK enum status buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline struct slice buffer_slice(const struct buffer *buffer) {
    return (struct slice){buffer->data, buffer->size};
}

#endif
