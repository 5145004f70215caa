/* Bytes as lower-case hexadecimal text, for the ids and hashes in every frame.
 * Any thread; a pure function.
 * Writes into the caller's memory, two characters a byte and no NUL.
 * Cannot fail.
 * One value has exactly one text. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>

void hex_write(char *text, const void *data, size_t size);

#endif
