/* Bytes as lower-case hexadecimal text, for the ids and hashes in every frame.
 * Thread: any.
 * Memory: the caller's, two characters a byte and no NUL.
 * Invariant: one value has exactly one text. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>

void hex_write(char *text, const void *data, size_t size);

#endif
