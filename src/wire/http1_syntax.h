/* The grammar of HTTP/1.1 (RFC 9110, 9112), strictly. Only codecs of wire include this.
 * Thread: any.
 * Errors: a status for a bad line; false for a bad text.
 * Invariant: a rule may refuse more than the RFC does; it never reads a text differently. */
#ifndef WIRE_HTTP1_SYNTAX_H
#define WIRE_HTTP1_SYNTAX_H

#include "base/slice.h"
#include "spec/codes.h"

bool http1_equal_any_case(struct slice a, struct slice b);
/* Returns the text without the blanks and tabs around it. */
struct slice http1_trim(struct slice text);
/* Splits the text at the separator: returns the part before it, leaves the part after it. */
struct slice http1_split(struct slice *text, char separator);

bool http1_is_token(struct slice text);
bool http1_is_digits(struct slice text);
/* Text of a field's value: no control characters except HTAB. */
bool http1_is_field_text(struct slice text);
/* A name or address with an optional port. */
bool http1_is_host(struct slice text);

/* Both take a line without its CRLF. */
MUST_CHECK enum status http1_check_request_line(struct slice line);
MUST_CHECK enum status http1_check_field_line(struct slice line);
/* STATUS_OK for chunked and nothing else. */
MUST_CHECK enum status http1_check_transfer_encoding(struct slice value);

#endif
