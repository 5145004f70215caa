/* A transport: the bytes of one connection, plain or through TLS. Its user sees no difference.
 * A transport belongs to its loop's thread.
 * Memory: at most one batch of ciphertext that the socket has not taken (TLS_BATCH_BYTES_MAX), and
 * nothing while the connection is idle.
 * Errors: a peer that is gone or breaks TLS is reported by the lost event or by a return value.
 * Bytes that were encrypted but not taken by the socket count as unsent. */
#ifndef IO_TRANSPORT_H
#define IO_TRANSPORT_H

#include <sys/types.h>
#include <uv.h>

#include "base/slice.h"
#include "io/tls.h"

struct io_loop;
struct secure;

struct transport {
    uv_tcp_t tcp;
    struct secure *secure; /* NULL: plain bytes */
};

/* What a loop's transports report; one table for all of them. */
struct transport_events {
    /* The TLS handshake is complete. */
    void (*opened)(struct transport *transport);
    /* The peer sent bytes. They are valid during the call. */
    void (*received)(struct transport *transport, struct slice input);
    /* The socket took everything that transport_write was given. error: a libuv error, or 0. */
    void (*written)(struct transport *transport, int error);
    /* The peer is gone, or broke TLS. */
    void (*lost)(struct transport *transport);
    /* The peer does not speak TLS as we do; the alert is under way. */
    void (*handshake_failed)(struct transport *transport);
};

/* Ready for uv_accept. */
void transport_init(struct transport *transport, struct io_loop *loop);

/* From its first byte on the connection speaks TLS. */
MUST_CHECK enum status transport_secure(struct transport *transport, struct tls_context *context);
/* The connection closes: says so to the peer, if that can be said at once. */
void transport_close(struct transport *transport);
/* libuv has let go of the socket. */
void transport_release(struct transport *transport);
/* Plaintext may go both ways; false while the handshake lasts. */
bool transport_is_open(const struct transport *transport);

#define TRANSPORT_PEER_BYTES_MAX 46
/* The address at the other end, without its port; empty when that cannot be told any more. */
struct slice transport_peer(const struct transport *transport, char text[TRANSPORT_PEER_BYTES_MAX]);

/* Reports input by the received event. Reading on while reading is no error; false: the peer said
 * that it ends, or the socket cannot be read. */
MUST_CHECK bool transport_read_start(struct transport *transport);
void transport_read_stop(struct transport *transport);

/* How many bytes are taken at once; negative: the peer is gone. */
MUST_CHECK ssize_t transport_try(struct transport *transport, struct slice bytes);
/* Everything that was taken is the socket's. */
bool transport_is_clear(const struct transport *transport);
/* What transport_try did not take, or nothing when only the way is not clear. The written
 * event follows; the bytes stay where they are until then. */
MUST_CHECK bool transport_write(struct transport *transport, struct slice rest);
/* Of the bytes under way, those the socket does not have. */
size_t transport_unsent_bytes(const struct transport *transport);
/* Whether transport_try, which answered done, took all of size bytes and the socket has them. */
bool transport_took_all(const struct transport *transport, ssize_t done, size_t size);
/* How far the socket may run ahead of the network. */
void transport_set_unsent_max(struct transport *transport, unsigned bytes);
/* Whether anything was not sent yet, by us or by the kernel. */
bool transport_has_unsent(const struct transport *transport);
/* Whether bytes of the peer wait in the kernel. */
bool transport_has_input(const struct transport *transport);
/* Closing will discard what was not sent. */
void transport_reset_on_close(struct transport *transport);
/* Ends our side, and reads on as it comes, without a look at it. */
MUST_CHECK bool transport_end(struct transport *transport);

#endif
