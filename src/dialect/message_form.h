/* A frame as a message of the polling dialect, which the topic socket and event streams also send.
 * Any thread; a query is read on the exchange's loop.
 * Memory: appends to the caller's buffer.
 * Errors: the buffer's own; STATUS_INVALID_REQUEST for a form that does not exist.
 * A message is the same bytes in every answer. */
#ifndef DIALECT_MESSAGE_FORM_H
#define DIALECT_MESSAGE_FORM_H

#include "http/exchange.h"
#include "hub/frame.h"

/* The object {…}. */
MUST_CHECK enum status message_write(struct buffer *out, const struct frame *frame,
                                     enum frame_form form);
/* The members that follow the text of the frame, and the closing brace. Writes at most
 * MESSAGE_END_BYTES_MAX bytes and returns their end. */
#define MESSAGE_END_BYTES_MAX 80
char *message_put_end(char *at, const struct frame *frame, enum frame_form form);
/* The form that the query asks for; FRAME_FULL without the parameter. */
MUST_CHECK enum status message_query_form(const struct exchange *exchange, enum frame_form *form);

#endif
