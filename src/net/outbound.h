/* Outbound connections: name lookup, TCP, TLS and bytes both ways, for forwarding, for webhooks,
 * for the command line and for libkhala.
 * Thread: that of the group's sockets. Events come from the loop, except lost from
 * outbound_resume.
 * Memory: a connection lives until the end of the turn that closed it. Bytes that the socket does
 * not take are copied, up to unsent_bytes_max of the group.
 * Errors: the lost event has the reason, for people.
 * Invariant: nothing is sent before TLS has verified the server's certificate for its host. */
#ifndef NET_OUTBOUND_H
#define NET_OUTBOUND_H

#include "base/list.h"
#include "net/socket_set.h"
#include "net/tls.h"

#define OUTBOUND_HOST_BYTES_MAX 256

struct outbound;

struct outbound_target {
    char host[OUTBOUND_HOST_BYTES_MAX]; /* a name or an address, without brackets */
    uint16_t port;
    bool is_secure;
};

/* Reads HOST:PORT or SCHEME://HOST[:PORT][/], where the scheme is http, https, ws or wss. False:
 * another text. */
MUST_CHECK bool outbound_target_read(struct outbound_target *target, struct slice text);

struct outbound_events {
    /* Bytes may be sent. */
    void (*opened)(void *user);
    /* The bytes are valid during the call. */
    void (*received)(void *user, struct slice data);
    /* The server is gone. The connection closes by itself, and has no more events. */
    void (*lost)(void *user, const char *reason);
    /* The event that outbound_want_room asks for. NULL: never asked for. */
    void (*has_room)(void *user);
};

/* The connections of one owner. */
struct outbound_group {
    struct socket_set *set;
    struct tls_context *tls; /* NULL: each connection reads ca_file */
    const char *ca_file;     /* PEM of the authorities to trust; NULL: the system's */
    size_t unsent_bytes_max; /* of a connection */
    void *user;
    /* The memory of a connection was freed. */
    void (*freed)(void *user);
    size_t count;     /* connections with memory */
    struct list idle; /* kept connections, the last used one first */
};

/* The texts, tls and events outlive the connections. Zeroes the counters. */
void outbound_group_init(struct outbound_group *group, const struct outbound_group *options);

MUST_CHECK enum status outbound_open(struct outbound **outbound, struct outbound_group *group,
                                     const struct outbound_target *target,
                                     const struct outbound_events *events, void *user);
/* NULL is allowed. Bytes that were not sent are discarded. */
void outbound_close(struct outbound *outbound);
/* STATUS_SYSTEM_ERROR when the connection is not open, or the status of the buffer. A connection
 * that breaks reports it later, by the lost event: an answer may have arrived before. */
MUST_CHECK enum status outbound_send(struct outbound *outbound, struct slice bytes);
/* The connection is open, and the socket has taken every byte. */
bool outbound_is_clear(const struct outbound *outbound);
/* Asks for one has_room event, when the socket has taken every byte, in a later turn. */
void outbound_want_room(struct outbound *outbound);
/* Stops and resumes the received events. */
void outbound_pause(struct outbound *outbound);
void outbound_resume(struct outbound *outbound);

/* Keeps the connection for another request. It has no more events, and closes when the server sends
 * or closes. One that is not clear is closed at once. */
void outbound_keep(struct outbound *outbound);
/* A kept connection to the target, or NULL. Kept connections to other targets are closed. */
struct outbound *outbound_reuse(struct outbound_group *group, const struct outbound_target *target,
                                const struct outbound_events *events, void *user);
/* Closes the connections that have been kept for as long. */
void outbound_close_idle(struct outbound_group *group, uint64_t idle_ms);

#endif
