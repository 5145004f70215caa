/* Typed messages: {"type":…} and the members of a body, for the topic and audit sockets.
 * Belongs to the session's loop.
 * Memory: appends whole WebSocket messages to the caller's buffer, all or nothing.
 * Errors: the buffer's own, and the compressor's.
 * The type is the first member, so that a client can recognise a message by its beginning. */
#ifndef DIALECT_TYPED_MESSAGE_H
#define DIALECT_TYPED_MESSAGE_H

#include "dialect/websocket.h"

/* {"type":tag and the body's members}; body is an object, and may be {}. */
MUST_CHECK enum status typed_write(struct buffer *out, const char *tag, struct slice body);
/* The same as a message to the session's peer. */
MUST_CHECK enum status typed_send(struct session *session, struct buffer *out, const char *tag,
                                  struct slice body);
/* The last message, and the close behind it; the session is closed by the caller. */
MUST_CHECK enum status typed_send_last(struct session *session, struct buffer *out, const char *tag,
                                       struct slice body, enum close_code code, const char *reason);

#endif
