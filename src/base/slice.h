/* A slice: a pointer and a size, for bytes that another object owns.
 * Thread: any.
 * Memory: valid as long as that object; not NUL-terminated. */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *data;
    size_t size;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})

static inline struct slice slice_of(const char *text) {
    return (struct slice){text, strlen(text)};
}

static inline bool slice_equal(struct slice a, struct slice b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* The order of the bytes, as memcmp gives it. A text comes before those that continue it. */
static inline int slice_compare(struct slice a, struct slice b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size > 0 ? memcmp(a.data, b.data, size) : 0;
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static inline bool slice_starts(struct slice text, struct slice prefix) {
    return text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(text.data, prefix.data, prefix.size) == 0);
}

static inline bool slice_ends(struct slice text, struct slice suffix) {
    return text.size >= suffix.size &&
           memcmp(text.data + text.size - suffix.size, suffix.data, suffix.size) == 0;
}

static inline struct slice slice_from(struct slice text, size_t offset) {
    return (struct slice){text.data + offset, text.size - offset};
}

#endif
