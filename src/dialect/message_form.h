/* A frame as a message of the polling dialect, which the topic socket and event streams also send.
 * Any thread.
 * Memory: the form is kept with the frame, as all its forms.
 * Errors: the buffer's own.
 * A message is the same bytes in every answer. */
#ifndef DIALECT_MESSAGE_FORM_H
#define DIALECT_MESSAGE_FORM_H

#include "hub/frame.h"

extern const struct frame_form message_form;

#endif
