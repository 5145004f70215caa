/* Comma-separated values (RFC 4180): one field or one line's end at a time.
 * Any thread. Appends to the caller's buffer, all or nothing; allocates nothing else.
 * Errors: the buffer's own. A field is quoted only if it has a comma, a quote, a line end or a
 * blank at either end; quotes inside are doubled. Other bytes stay exactly as they are: a text that
 * a spreadsheet would read as a formula is not escaped. */
#ifndef WIRE_CSV_H
#define WIRE_CSV_H

#include "base/buffer.h"
#include "base/slice.h"

MUST_CHECK enum status csv_write_field(struct buffer *out, struct slice field);
/* Between two fields of a line. */
MUST_CHECK enum status csv_write_comma(struct buffer *out);
MUST_CHECK enum status csv_write_end(struct buffer *out);

#endif
