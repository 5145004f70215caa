/* A WebSocket to a server: the opening handshake, masked frames out, messages in.
 * Belongs to the thread of the client's loop. Events come from the loop only.
 * Owns its stream. ws_client_close ends all events and frees the client before it returns, unless
 * it is called from an event: then the client is freed after that event.
 * The event ended comes at most once, with the error; STATUS_OUT_OF_MEMORY of opening and sending.
 * A refused handshake is read with its body, so that its error has the server's own code. */
#ifndef CLIENT_NET_WS_CLIENT_H
#define CLIENT_NET_WS_CLIENT_H

#include "client/client_error.h"
#include "client/net/socket_stream.h"

struct ws_client_events {
    void (*opened)(void *user);
    void (*received)(void *user, struct slice text);
    /* close is 0 if the server sent no close frame. */
    void (*ended)(void *user, unsigned close, const struct client_error *error);
};

struct ws_client;

struct ws_client_options {
    uv_loop_t *loop;
    struct socket_holds *holds;
    const struct socket_target *target;
    struct slice path; /* with the query */
    const struct ws_client_events *events;
    void *user;
};

MUST_CHECK enum status ws_client_open(struct ws_client **client,
                                      const struct ws_client_options *options);
MUST_CHECK enum status ws_client_send(struct ws_client *client, struct slice text);
/* NULL is allowed. */
void ws_client_close(struct ws_client *client);

#endif
