/* Upstream connections: those that a loop opens to another node, and keeps for later requests.
 * Belongs to its loop's thread.
 * Memory: at most FORWARD_CONNECTIONS_MAX connections a loop, each without a buffer of its own.
 * Errors: a server that cannot be reached, or that closes, is reported by the lost event with the
 * reason. No event comes after upstream_close or upstream_keep.
 * A connection serves one request at a time. It is kept only for requests to the same address. */
#ifndef NET_UPSTREAM_H
#define NET_UPSTREAM_H

#include "base/buffer.h"
#include "net/loop.h"
#include "net/transport.h"

#define UPSTREAM_HOST_BYTES_MAX 256

struct upstream;
struct upstreams;

struct upstream_address {
    char host[UPSTREAM_HOST_BYTES_MAX]; /* a name or an address, without brackets */
    uint16_t port;
    bool is_secure;
};

/* Reads HOST:PORT, [ADDRESS]:PORT, http://HOST:PORT or https://HOST:PORT. */
MUST_CHECK bool upstream_address_read(struct slice text, struct upstream_address *address);

struct upstream_events {
    /* The connection is open: bytes may be sent. In a later turn than upstream_open. */
    void (*opened)(struct upstream *upstream);
    /* The server sent bytes. They are valid during the call. */
    void (*received)(struct upstream *upstream, struct slice input);
    /* The socket took all bytes of the last upstream_send. */
    void (*written)(struct upstream *upstream);
    /* The server is gone. The connection closes by itself afterwards. */
    void (*lost)(struct upstream *upstream, const char *reason);
    /* There is room for a new connection. May be NULL. */
    void (*freed)(struct upstreams *upstreams);
};

/* The connections of one loop. */
struct upstreams {
    struct io_loop *loop;
    const struct upstream_events *events;
    struct tls_context *tls; /* of clients; NULL: https is not possible */
    struct list open;        /* all that are not closing */
    struct list idle;        /* kept, the last used one first */
    size_t count;            /* also of those that are closing */
};

/* events and tls outlive the connections. */
void upstreams_init(struct upstreams *upstreams, struct io_loop *loop,
                    const struct upstream_events *events, struct tls_context *tls);
/* Closes the connections that no request uses. The loop drains: none is kept any more. */
void upstreams_drain(struct upstreams *upstreams);
/* Closes all connections. Requests that use one get the lost event. */
void upstreams_close_all(struct upstreams *upstreams);

/* A kept connection to the address, or NULL. It is open. */
struct upstream *upstream_reuse(struct upstreams *upstreams, const struct upstream_address *address,
                                void *user);
/* A new connection. NULL: there are as many as there may be, or there is no memory. */
struct upstream *upstream_open(struct upstreams *upstreams, const struct upstream_address *address,
                               void *user);
/* What was given to upstream_open or upstream_reuse. */
void *upstream_user(const struct upstream *upstream);
/* True: the socket took all bytes. False: the written or the lost event follows, and the caller
 * keeps the bytes until then, or gives them to upstream_close. */
MUST_CHECK bool upstream_send(struct upstream *upstream, struct slice bytes);
/* Stops and resumes the received events. */
void upstream_pause(struct upstream *upstream);
void upstream_resume(struct upstream *upstream);
/* The answer is complete: the connection is kept for another request. */
void upstream_keep(struct upstream *upstream);
/* unsent, which may be NULL: bytes that upstream_send has not taken yet; they are moved away. */
void upstream_close(struct upstream *upstream, struct buffer *unsent);

#endif
