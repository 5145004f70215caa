/* The WebSocket under a session: its handshake, its messages in and out, its close.
 * Belongs to the session's loop. Messages that come while the session is looking something up, or
 * has replies its peer does not read, wait in a bounded buffer and nothing more is read. A
 * handshake that fails is answered as HTTP; a broken frame, or what the dialect answers, closes
 * with its code.
 * Text only; a message is handed on whole, and in the order it came. */
#ifndef DIALECT_WEBSOCKET_H
#define DIALECT_WEBSOCKET_H

#include "delivery/session/session.h"
#include "http/exchange.h"

/* The handshake, and a session of that dialect over it. NULL: the exchange has been answered. The
 * state is taken over in any case. */
struct session *websocket_open(struct exchange *exchange, const struct dialect *dialect,
                               const struct principal *principal, void *state);
bool websocket_deflates(const struct session *session);
/* Whether the peer sent more than it may; each question counts a message of that size. */
bool websocket_is_flooding(struct session *session, size_t message_bytes);

/* For encoders: makes a text message, as it goes to the socket, of what stands in out from begin
 * on. compress: for all who agreed on it. */
MUST_CHECK enum status websocket_wrap(struct delivery_loop *delivery, struct buffer *out,
                                      size_t begin, bool compress);
/* The same for a text that is elsewhere. */
MUST_CHECK enum status websocket_text(struct delivery_loop *delivery, struct buffer *out,
                                      struct slice text, bool compress);
/* A text message to this peer. */
MUST_CHECK enum status websocket_say(struct session *session, struct slice text);
/* A ping, for dialects without heartbeats of their own. */
MUST_CHECK enum status websocket_ping(struct session *session, struct buffer *out);

#endif
