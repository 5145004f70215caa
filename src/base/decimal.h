/* Unsigned decimal text: ASCII digits only, no sign, no space, no leading zero except "0" itself.
 * An amount may have a fraction behind a point, and is added exactly.
 * Thread: any.
 * Errors: false for a text that is not canonical or does not fit; the number is unchanged.
 * Invariant: printing a parsed number gives the same bytes. An amount loses the zeros at the end of
 * its fraction. */
#ifndef BASE_DECIMAL_H
#define BASE_DECIMAL_H

#include <stdint.h>

#include "base/slice.h"

#define DECIMAL_U64_SIZE_MAX 20
/* Digits of an amount before the point, and behind it. */
#define DECIMAL_AMOUNT_DIGITS_MAX 18
#define DECIMAL_AMOUNT_SIZE_MAX   (2 * DECIMAL_AMOUNT_DIGITS_MAX + 1)

bool decimal_parse_u64(struct slice text, uint64_t *number);
/* Writes at most DECIMAL_U64_SIZE_MAX digits, no NUL, and returns their end. */
char *decimal_write_u64(char *at, uint64_t number);

struct decimal_amount {
    uint64_t whole;    /* below 10^18 */
    uint64_t fraction; /* in parts of 10^18 */
};

bool decimal_parse_amount(struct slice text, struct decimal_amount *amount);
/* A sum that does not fit becomes the largest amount. */
struct decimal_amount decimal_add(struct decimal_amount a, struct decimal_amount b);
/* Writes at most DECIMAL_AMOUNT_SIZE_MAX bytes, no NUL, and returns their end. */
char *decimal_write_amount(char *at, struct decimal_amount amount);

#endif
