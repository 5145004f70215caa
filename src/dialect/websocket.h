/* The WebSocket under a session: its handshake, its messages in and out, its close.
 * Thread: the session's loop.
 * Memory: messages that arrive during a lookup of the session, or while its peer does not read
 * replies, wait in a bounded buffer. While one waits, nothing more is read.
 * Errors: a failed handshake is answered as HTTP. A broken frame, or an error of the dialect,
 * closes the connection with its code.
 * Invariant: text only. The dialect gets messages whole and in their order. */
#ifndef DIALECT_WEBSOCKET_H
#define DIALECT_WEBSOCKET_H

#include "delivery/session/session.h"
#include "http/exchange.h"

/* The handshake, and a session of that dialect over it. Takes over the state in any case. The
 * answer to the handshake is in the replies, which the caller sends. NULL: the exchange has been
 * answered. */
struct session *websocket_open(struct exchange *exchange, const struct dialect *dialect,
                               const struct principal *principal, void *state);
bool websocket_deflates(const struct session *session);
/* Whether the peer sends faster than it may. Each call counts one message of that size. */
bool websocket_is_flooding(struct session *session, size_t message_bytes);

/* For encoders: turns the bytes of out behind begin + gap into a text message as the socket sends
 * it, like ws_frame_wrap. compress: for clients that agreed on compression. */
MUST_CHECK enum status websocket_wrap(struct delivery_loop *delivery, struct buffer *out,
                                      size_t begin, size_t gap, bool compress);
/* The same for a text that is not in out. */
MUST_CHECK enum status websocket_text(struct delivery_loop *delivery, struct buffer *out,
                                      struct slice text, bool compress);
/* Adds a text message to the replies of this session. */
MUST_CHECK enum status websocket_send(struct session *session, struct slice text);
/* The close, with the positions to resume from as its reason. */
MUST_CHECK enum status websocket_send_last(struct session *session, struct buffer *out,
                                           enum close_code code);
/* A ping, for dialects whose protocol has no heartbeat. */
MUST_CHECK enum status websocket_ping(struct session *session, struct buffer *out);

/* ---- typed messages ---- */

/* {"type":tag and the body's members}; body is an object, and may be {}. */
MUST_CHECK enum status typed_write(struct buffer *out, const char *tag, struct slice body);
/* The same as a message to the session's peer. */
MUST_CHECK enum status typed_send(struct session *session, struct buffer *out, const char *tag,
                                  struct slice body);
/* The last message, and the close behind it; the session is closed by the caller. */
MUST_CHECK enum status typed_send_last(struct session *session, struct buffer *out, const char *tag,
                                       struct slice body, enum close_code code, const char *reason);

#endif
