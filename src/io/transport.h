/* The way of a connection's bytes: straight to its socket, or through TLS where conn->secure is
 * set. What conn.c sees is the same on both.
 * Belongs to its connection's loop. Memory: what the socket has not taken of one batch of
 * ciphertext (TLS_BATCH_BYTES_MAX), and nothing while it idles.
 * A peer that is gone, or breaks TLS, has its connection closed; functions that answer say so.
 * What was encrypted but not taken counts as unsent: a write is done when the socket has it all. */
#ifndef IO_TRANSPORT_H
#define IO_TRANSPORT_H

#include <sys/types.h>

#include "base/slice.h"
#include "io/tls.h"

struct conn;
struct secure;

/* From its first byte on the connection speaks TLS. */
MUST_CHECK enum status transport_secure(struct conn *conn, struct tls_context *context);
/* The connection closes: says so to the peer, if that can be said at once. */
void transport_close(struct conn *conn);
/* libuv has let go of the socket. */
void transport_release(struct conn *conn);
/* Plaintext may go both ways; false while the handshake lasts. */
bool transport_is_open(const struct conn *conn);

#define TRANSPORT_PEER_BYTES_MAX 46
/* The address at the other end, without its port; empty when that cannot be told any more. */
struct slice transport_peer(const struct conn *conn, char text[TRANSPORT_PEER_BYTES_MAX]);

/* Hands what comes to conn_received. Reading on while reading is no error; false: the peer said
 * that it ends, or the socket cannot be read. */
MUST_CHECK bool transport_read_start(struct conn *conn);
void transport_read_stop(struct conn *conn);

/* How many bytes are taken at once; negative: the peer is gone. */
MUST_CHECK ssize_t transport_try(struct conn *conn, struct slice bytes);
/* Everything that was taken is the socket's. */
bool transport_is_clear(const struct conn *conn);
/* What transport_try did not take, or nothing when only the way is not clear. conn_output_done
 * follows; the bytes stay where they are until then. */
MUST_CHECK bool transport_write(struct conn *conn, struct slice rest);
/* Of the bytes under way, those the socket does not have. */
size_t transport_unsent_bytes(const struct conn *conn);
/* Ends our side, and reads on as it comes, without a look at it. */
MUST_CHECK bool transport_end(struct conn *conn);

#endif
