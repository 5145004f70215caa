/* Unsigned decimal text: ASCII digits only, no sign, no space, no leading zero except "0" itself.
 * Thread: any.
 * Errors: false for a text that is not canonical or does not fit into 64 bits; the number is
 * unchanged.
 * Invariant: printing a parsed number gives the same bytes. */
#ifndef BASE_DECIMAL_H
#define BASE_DECIMAL_H

#include <stdint.h>

#include "base/slice.h"

#define DECIMAL_U64_SIZE_MAX 20

bool decimal_parse_u64(struct slice text, uint64_t *number);
/* Writes at most DECIMAL_U64_SIZE_MAX digits, no NUL, and returns their end. */
char *decimal_write_u64(char *at, uint64_t number);

#endif
