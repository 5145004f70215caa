/* What the connections of a client share: its loop, its socket set, the server, and the count of
 * what the loop holds.
 * Thread: the client's loop.
 * Memory: a member of the client.
 * Errors: those of uv_sockets_open.
 * Invariant: emptied comes once, when the loop has nothing of the client any more. */
#ifndef CLIENT_CLIENT_NET_H
#define CLIENT_CLIENT_NET_H

#include "net/outbound.h"
#include "net/uv_sockets.h"

struct client_net {
    uv_loop_t *loop;
    struct uv_sockets sockets;
    struct outbound_group group;
    struct outbound_target target;
    size_t hold_count; /* handles, requests to libuv, and connections */
    void *user;
    void (*emptied)(void *user);
};

MUST_CHECK enum status client_net_open(struct client_net *net, uv_loop_t *loop,
                                       const char *ca_file);
void client_net_hold(struct client_net *net);
/* The last one closes the socket set; emptied follows. */
void client_net_let_go(struct client_net *net);
/* Connects to the server of the client. */
MUST_CHECK enum status client_net_connect(struct client_net *net, struct outbound **outbound,
                                          const struct outbound_events *events, void *user);

#endif
