/* Bytes as lower-case hexadecimal text, for the ids and hashes in every frame, and back: the value
 * of a digit.
 * Thread: any.
 * Memory: the caller's, two characters a byte and no NUL.
 * Invariant: one value has exactly one text. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>

/* The value of a digit in either case, or -1. */
static inline int hex_value(char digit) {
    char lower = (char)(digit | 0x20);
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

void hex_write(char *text, const void *data, size_t size);

#endif
