/* UTF-8 validation (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), in one
 * piece or across pieces.
 * Thread: any.
 * Invariant: a state of zero is both the start and "at a character boundary". */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdint.h>

#include "base/slice.h"

/* An incomplete sequence: the number of missing continuation bytes, and the range of the next. */
struct utf8_state {
    uint8_t missing;
    uint8_t low;
    uint8_t high;
};

/* False as soon as the bytes so far cannot be the start of a valid text. */
bool utf8_feed(struct utf8_state *state, const void *data, size_t size);
/* True for a whole valid text. */
bool utf8_valid(struct slice text);

/* These three are for valid texts only. */
/* Holds a control character: C0, DEL or C1. */
bool utf8_has_control(struct slice text);
/* The size of the Unicode white space character at the start of text; 0 without one. */
size_t utf8_white_space_size(struct slice text);
/* White space at either end. An empty text has none. */
bool utf8_has_outer_space(struct slice text);

#endif
