/* The opening handshake of a WebSocket, server side (RFC 6455 section 4.2, RFC 7692 section 5):
 * header values of a GET over HTTP/1.1 in, the 101 response out.
 * Thread: any.
 * Memory: the caller's buffer; the agreement's protocol points into the policy.
 * Errors: STATUS_WS_UNSUPPORTED_VERSION (426 with Sec-WebSocket-Version: 13 is due) or
 * STATUS_WS_BAD_HANDSHAKE.
 * Invariant: the response is written whole or not at all. */
#ifndef WIRE_WEBSOCKET_WS_HANDSHAKE_H
#define WIRE_WEBSOCKET_WS_HANDSHAKE_H

#include "base/buffer.h"
#include "wire/http1_request.h"

/* Values as received, without surrounding blanks; several headers of one name are joined with
 * commas. data NULL means that the header is absent. */
struct ws_request {
    struct slice upgrade;
    struct slice connection;
    struct slice key;
    struct slice version;
    struct slice extensions;
    struct slice protocols;
};

struct ws_policy {
    bool deflate;
    /* Subprotocols the server speaks; the first one the client names among them is agreed on. */
    const struct slice *protocols;
    size_t protocol_count;
};

struct ws_agreement {
    /* permessage-deflate, always without context takeover on either side. */
    bool deflate;
    /* The server may refer back 2 to this power bytes in a message that it compresses.
     * ws_deflate_fits says which messages that allows. */
    unsigned server_window_bits;
    /* The offer named server_max_window_bits, which the answer must then repeat. */
    bool window_bits_named;
    /* data NULL when none was agreed on. */
    struct slice protocol;
};

/* Joins the fields of the request that may repeat; memory holds the joined texts. Sec-WebSocket-Key
 * and Sec-WebSocket-Version may not repeat: STATUS_WS_BAD_HANDSHAKE. */
MUST_CHECK enum status ws_request_read(const struct http1_request *http, struct buffer *memory,
                                       struct ws_request *request);
/* The value of Sec-WebSocket-Accept for a key of 24 characters. False: OpenSSL failed. */
#define WS_KEY_CHARACTERS    24
#define WS_ACCEPT_CHARACTERS 28
MUST_CHECK bool ws_accept(struct slice key, char accept[WS_ACCEPT_CHARACTERS + 1]);
MUST_CHECK enum status ws_handshake(struct buffer *out, const struct ws_request *request,
                                    const struct ws_policy *policy, struct ws_agreement *agreement);

#endif
