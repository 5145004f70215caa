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
/* Its members and the closing brace, behind an object that was begun with other members. */
MUST_CHECK enum status message_write_members(struct buffer *out, const struct frame *frame,
                                             enum frame_form form);
/* The form that the query asks for; FRAME_FULL without the parameter. */
MUST_CHECK enum status message_query_form(const struct exchange *exchange, enum frame_form *form);

#endif
