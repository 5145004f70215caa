/* Canonical text of JSON numbers: integers keep their digits, other numbers are written as
 * ECMAScript writes their double.
 * Any thread, in any locale. Allocates nothing but what it appends to the caller's buffer.
 * Errors: JSON_NUMBER_OUT_OF_RANGE for a fraction or exponent beyond a double; the buffer's own.
 * Writing what was written changes nothing: the canonical text is a fixed point. */
#ifndef WIRE_JSON_NUMBER_H
#define WIRE_JSON_NUMBER_H

#include "base/buffer.h"
#include "base/slice.h"
#include "spec/codes.h"

/* Appends the canonical form of a validated literal, all or nothing. */
MUST_CHECK enum status json_number_write(struct buffer *out, struct slice literal);

#endif
