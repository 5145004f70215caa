/* A transport: the bytes of one connection, plain or through TLS. Its user sees no difference.
 * Thread: that of its socket set.
 * Memory: at most one batch of ciphertext that the socket has not taken (TLS_BATCH_BYTES_MAX). An
 * idle connection holds none.
 * Errors: a peer that is gone or breaks TLS is reported by the lost event or by a return value.
 * Invariant: bytes that were encrypted but not taken by the socket count as unsent. */
#ifndef NET_TRANSPORT_H
#define NET_TRANSPORT_H

#include <sys/socket.h>
#include <sys/types.h>

#include "base/slice.h"
#include "net/socket_set.h"
#include "net/tls.h"

struct secure;
struct sending;

struct transport_events;

struct transport {
    struct socket_watch watch; /* of the socket */
    struct socket_set *set;
    const struct transport_events *events;
    struct secure *secure;   /* NULL: plain bytes */
    struct sending *sending; /* bytes that wait for the socket; NULL: none */
    uint32_t read_bytes_max; /* that one read may report */
    bool has_written;        /* the peer may still have bytes to confirm */
    bool wants_room;         /* transport_want_room has asked for an event */
    bool is_lingering;       /* our side has ended; input is counted and discarded */
    uint8_t silent_checks;   /* in a row, in which the peer confirmed nothing */
};

/* What a transport reports. */
struct transport_events {
    /* The result of transport_connect. error: a libuv error, or 0. May be NULL. */
    void (*connected)(struct transport *transport, int error);
    /* The TLS handshake is complete. */
    void (*opened)(struct transport *transport);
    /* The peer sent bytes. They are valid during the call. */
    void (*received)(struct transport *transport, struct slice input);
    /* The socket took everything that transport_write was given, or has room after
     * transport_want_room. error: a libuv error, or 0. */
    void (*written)(struct transport *transport, int error);
    /* The peer has closed its side. It may still read. */
    void (*ended)(struct transport *transport);
    /* The peer is gone, or broke TLS. */
    void (*lost)(struct transport *transport);
    /* The peer and the server found no common TLS; the alert is on its way. */
    void (*handshake_failed)(struct transport *transport);
    /* After transport_close, at the end of the turn. The memory may be freed. */
    void (*closed)(struct transport *transport);
};

/* Prepares the transport for a socket. */
void transport_init(struct transport *transport, struct socket_set *set,
                    const struct transport_events *events);
/* Takes over a connected socket that does not block. */
void transport_open(struct transport *transport, int fd);
/* Connects to a server, with a socket in place of the one that could not connect before. The
 * connected event follows, in a later turn. Returns 0, or a libuv error when no event follows. */
MUST_CHECK int transport_connect(struct transport *transport, const struct sockaddr *address);
/* Whether a connection that the peer has reset is lost at once, before the bytes that arrived
 * earlier are read, and also while nothing is read or written. */
void transport_drop_at_reset(struct transport *transport, bool drops);
/* Small writes leave at once. */
void transport_set_nodelay(struct transport *transport);

/* The connection speaks TLS from its first byte on. Called before any byte is read. */
MUST_CHECK enum status transport_secure(struct transport *transport, struct tls_context *context);
/* The same for a connection to a server, whose certificate must be of that host. */
MUST_CHECK enum status transport_secure_to(struct transport *transport, struct tls_context *context,
                                           const char *host);
/* Closes the socket. Sends the close alert of TLS first, if the socket takes it at once. No event
 * follows but the closed event. */
void transport_close(struct transport *transport);
/* Why the peer's certificate is not trusted, or NULL. */
const char *transport_distrust(const struct transport *transport);
/* Ends both directions. The loop reads what has arrived, and then the end. */
void transport_shut(struct transport *transport);
/* Plaintext may go both ways; false while the handshake lasts. */
bool transport_is_open(const struct transport *transport);

#define TRANSPORT_PEER_BYTES_MAX 46
/* The peer's address without its port; empty when the socket has none any more. */
struct slice transport_peer(const struct transport *transport, char text[TRANSPORT_PEER_BYTES_MAX]);

/* The same as a socket address. False: the socket has none any more. */
MUST_CHECK bool transport_peer_address(const struct transport *transport,
                                       struct sockaddr_storage *address);

enum transport_peer_state {
    TRANSPORT_PEER_PRESENT,
    TRANSPORT_PEER_ENDED, /* it has closed its side, and may still read */
    TRANSPORT_PEER_GONE,
};
/* True: the peer's machine has vanished. The kernel has sent it bytes or probes again and again for
 * that time, and it has acknowledged nothing. A machine that is there acknowledges even if its
 * program reads nothing, so TCP_USER_TIMEOUT would not do: it also closes the connection of a
 * client whose window is full. Called TRANSPORT_PEER_CHECKS times in that time. */
#define TRANSPORT_PEER_CHECKS 4
bool transport_check_peer(struct transport *transport, uint64_t timeout_ms);
/* Asks the kernel, also while nothing is read. An end behind bytes that the kernel has no room for
 * does not show. */
enum transport_peer_state transport_peer_state(const struct transport *transport);

/* Reports input by the received event. False: the socket cannot be read. A second start is no
 * error. */
MUST_CHECK bool transport_read_start(struct transport *transport);
/* The same, for a reader that has room for so many bytes, at least TRANSPORT_READ_BYTES_MIN. */
#define TRANSPORT_READ_BYTES_MIN (2 * TLS_RECORD_BYTES)
MUST_CHECK bool transport_read_start_within(struct transport *transport, size_t bytes_max);
void transport_read_stop(struct transport *transport);

/* Writes without waiting. Returns how many bytes were taken; negative: the peer is gone. */
MUST_CHECK ssize_t transport_try(struct transport *transport, struct slice bytes);
/* The same for two pieces that follow each other. */
MUST_CHECK ssize_t transport_try_both(struct transport *transport, struct slice first,
                                      struct slice second);
/* The socket has all bytes that the transport has taken. */
bool transport_is_clear(const struct transport *transport);
/* Writes the bytes that transport_try did not take. They may be empty when the transport is only
 * not clear. The caller keeps the bytes until the written event. */
MUST_CHECK bool transport_write(struct transport *transport, struct slice remaining);
/* Asks for one written event, when the socket has room. */
MUST_CHECK bool transport_want_room(struct transport *transport);
/* Bytes that were written and that the socket has not taken. */
size_t transport_unsent_bytes(const struct transport *transport);
/* Whether transport_try, which returned done, took all of size bytes and the socket has them. */
bool transport_took_all(const struct transport *transport, ssize_t done, size_t size);
/* Limits the bytes that the socket holds and has not sent to the network. */
void transport_set_unsent_max(struct transport *transport, unsigned bytes);
/* Whether the transport or the kernel holds bytes that are not sent yet. */
bool transport_has_unsent(const struct transport *transport);
/* Bytes that the transport or the kernel holds until the peer has confirmed them. */
size_t transport_unread_bytes(const struct transport *transport);
/* Whether the kernel holds bytes from the peer. */
bool transport_has_input(const struct transport *transport);
/* Closing will discard the bytes that were not sent. */
void transport_reset_on_close(struct transport *transport);
/* Ends our side. Later input is discarded; the received event tells its size, and no bytes. */
MUST_CHECK bool transport_end(struct transport *transport);

#endif
