/* Writers of text for encoders of many small members, which check their room once and not at every
 * member. A literal must be a string literal, whose size the compiler knows.
 * Thread: any.
 * Memory: the caller has reserved the bytes.
 * Invariant: each writer returns the end of what it wrote, and adds no NUL. */
#ifndef WIRE_PUT_H
#define WIRE_PUT_H

#include "base/slice.h"

#define PUT_LITERAL(at, literal) put_bytes(at, literal, sizeof(literal) - 1)

static inline char *put_bytes(char *at, const void *data, size_t size) {
    memcpy(at, data, size);
    return at + size;
}

static inline char *put_slice(char *at, struct slice text) {
    return text.size > 0 ? put_bytes(at, text.data, text.size) : at;
}

#endif
