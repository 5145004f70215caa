/* A topic by polling: a page of messages behind a position, at once or when there is a message.
 * Belongs to the exchange's loop.
 * Memory: the poll is the exchange's work, and freed with it.
 * Errors are the exchange's answers.
 * The handler is handle_messages, in dialect/handlers.h. */
#ifndef DIALECT_POLL_H
#define DIALECT_POLL_H

#include "io/deadline.h"

/* A poll has waited as long as its client asked for. */
void poll_expired(struct deadline *deadline);

#endif
