/* A growing byte buffer that cannot exist without a maximum. A text is written without a check
 * after each of its parts, and checked once.
 * Thread: one at a time.
 * Memory: allocated on first use, doubles up to size_max, freed by buffer_release.
 * Errors: STATUS_PAYLOAD_TOO_LARGE past size_max, STATUS_OUT_OF_MEMORY. The first failure of an
 * append sticks: later appends change nothing and return it, until buffer_truncate, buffer_end or
 * buffer_clear.
 * Invariant: size <= capacity <= size_max, and a failed append never leaves part of its bytes. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <assert.h>
#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

#define BUFFER_SIZE_MAX (((uint64_t)1 << 48) - 1)

struct buffer {
    char *data;
    size_t size;
    size_t capacity;
    /* One word, because every idle connection has a buffer. */
    uint64_t size_max : 48;
    uint64_t error : 16; /* enum status: the first failure of an append */
};

void buffer_init(struct buffer *buffer, size_t size_max);
/* A buffer over memory that the caller owns: it cannot grow, and is not released. */
static inline struct buffer buffer_over(char *memory, size_t size) {
    return (struct buffer){.data = memory, .capacity = size, .size_max = size & BUFFER_SIZE_MAX};
}
void buffer_release(struct buffer *buffer);
/* Drops the content and the failure, keeps the memory. */
void buffer_clear(struct buffer *buffer);
/* Drops the first size bytes. */
void buffer_consume(struct buffer *buffer, size_t size);
/* Returns to an earlier size, and forgets the failure. */
void buffer_truncate(struct buffer *buffer, size_t size);
/* The failure of the appends, if there was one. */
MUST_CHECK static inline enum status buffer_status(const struct buffer *buffer) {
    return (enum status)buffer->error;
}
/* Ends a text that began at that size: whole, or on a failure none of it. Returns the failure, and
 * forgets it. */
MUST_CHECK enum status buffer_end(struct buffer *buffer, size_t begin);
/* Makes room for size more bytes, so that the appends that use it cannot fail. Its failure does not
 * stick. */
MUST_CHECK enum status buffer_reserve(struct buffer *buffer, size_t size);
/* buffer_append calls it when the bytes do not fit into the memory that the buffer has. */
enum status buffer_append_growing(struct buffer *buffer, const void *data, size_t size);

/* In the header, because writers of JSON append a few bytes at a time. */
static inline enum status buffer_append(struct buffer *buffer, const void *data, size_t size) {
    if (size > buffer->capacity - buffer->size || buffer->error != STATUS_OK)
        return buffer_append_growing(buffer, data, size);
    assert(data || size == 0);
    if (size > 0)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return STATUS_OK;
}

static inline enum status buffer_append_slice(struct buffer *buffer, struct slice slice) {
    return buffer_append(buffer, slice.data, slice.size);
}

static inline enum status buffer_append_byte(struct buffer *buffer, char byte) {
    return buffer_append(buffer, &byte, 1);
}

enum status buffer_append_u64(struct buffer *buffer, uint64_t number);
enum status buffer_append_hex(struct buffer *buffer, const void *data, size_t size);
enum status buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Keeps the first failure of appends that do not go through buffer_append. */
static inline enum status buffer_note(struct buffer *buffer, enum status status) {
    if (buffer->error == STATUS_OK)
        buffer->error = (uint16_t)status;
    return (enum status)buffer->error;
}

static inline struct slice buffer_slice(const struct buffer *buffer) {
    return (struct slice){buffer->data, buffer->size};
}

#endif
