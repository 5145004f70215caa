/* A WebSocket to a server: the opening handshake, masked frames out, messages in.
 * Thread: the client's loop. Events come from the loop only.
 * Memory: it owns its connection. ws_client_close ends all events and frees the client before it
 * returns; called from an event, it frees the client after that event.
 * Errors: the event ended, at most once; STATUS_OUT_OF_MEMORY of opening and sending.
 * Invariant: a refused handshake is read with its body, so that its error has the server's own
 * code. */
#ifndef CLIENT_WS_CLIENT_H
#define CLIENT_WS_CLIENT_H

#include "client/client_error.h"
#include "client/client_net.h"

struct ws_client_events {
    void (*opened)(void *user);
    void (*received)(void *user, struct slice text);
    /* close is 0 if the server sent no close frame. */
    void (*ended)(void *user, unsigned close, const struct client_error *error);
};

struct ws_client;

struct ws_client_options {
    struct client_net *net;
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
