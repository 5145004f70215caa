/* Canonical text of JSON numbers: integers keep their digits, other numbers are written as
 * ECMAScript writes their double.
 * Any thread, in any locale. Allocates only in the caller's buffer.
 * Errors: JSON_NUMBER_OUT_OF_RANGE for a fraction or exponent beyond a double; the buffer's own.
 * Canonical text is a fixed point: writing it again gives the same text. */
#ifndef WIRE_JSON_NUMBER_H
#define WIRE_JSON_NUMBER_H

#include "base/buffer.h"
#include "base/slice.h"
#include "spec/codes.h"

/* Appends the canonical form of a validated literal, all or nothing. */
MUST_CHECK enum status json_number_write(struct buffer *out, struct slice literal);

#endif
