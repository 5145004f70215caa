/* All topics of a client over one WebSocket, in the Phoenix dialect.
 * Thread: that of the client's loop. Events come from the loop only.
 * Memory: owns its WebSocket and the requests that wait for a reply.
 * Errors: a status other than STATUS_OK of a call means that nothing was sent, for want of memory.
 * Invariant: one WebSocket can carry many topics, refuse one of them, and take a new token. */
#ifndef CLIENT_CHANNEL_H
#define CLIENT_CHANNEL_H

#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"
#include "client/follower.h"
#include "client/ws_client.h"

struct channel_events {
    void (*opened)(void *user);
    void (*joined)(void *user, uint64_t heartbeat_ms); /* 0: the server did not say */
    void (*heard)(void *user);
    void (*expiring)(void *user);
    void (*refreshed)(void *user);
    void (*closed)(void *user, const struct client_error *error);
    /* The follower of a topic or stream id; NULL if there is none. */
    struct follower *(*find)(void *user, struct slice topic);
    struct follower *(*find_number)(void *user, uint64_t number);
    /* Called after each event, when everything that the event caused was done. */
    void (*settle)(void *user);
};

struct channel_options {
    struct client_net *net;
    const char *client_build_id; /* NULL: none */
    struct slice token;
    const struct channel_events *events;
    void *user;
};

struct channel;

MUST_CHECK enum status channel_open(struct channel **channel,
                                    const struct channel_options *options);
/* NULL is allowed. No event follows, but the one that runs is completed. */
void channel_close(struct channel *channel);
MUST_CHECK enum status channel_join(struct channel *channel);
MUST_CHECK enum status channel_refresh(struct channel *channel, struct slice token);
/* False if an earlier request has been without a reply for too long. */
MUST_CHECK bool channel_heartbeat(struct channel *channel);
/* The follower is subscribed by the next channel_flush. */
void channel_want(struct channel *channel, struct follower *follower);
MUST_CHECK enum status channel_flush(struct channel *channel);
MUST_CHECK enum status channel_unsubscribe(struct channel *channel, struct follower *follower);

#endif
