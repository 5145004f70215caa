/* Comma-separated values (RFC 4180): one field or one line's end at a time. A field is quoted only
 * if it has a comma, a quote, a line end or a blank at either end. A text that a spreadsheet would
 * read as a formula is not escaped.
 * Thread: any.
 * Memory: the caller's buffer.
 * Errors: the buffer's own; a field is written whole or not at all.
 * Invariant: all bytes but quotes stay exactly as they are. */
#ifndef WIRE_CSV_H
#define WIRE_CSV_H

#include "base/buffer.h"
#include "base/slice.h"

MUST_CHECK enum status csv_write_field(struct buffer *out, struct slice field);
/* Separates two fields of a line. */
MUST_CHECK enum status csv_write_comma(struct buffer *out);
MUST_CHECK enum status csv_write_end(struct buffer *out);

#endif
