/* TLS on a connected socket, for a client: send and recv like those of the C library.
 * Belongs to one thread. Owns its session, not the socket, which does not block and outlives it.
 * STATUS_INVALID_CONFIG for authorities that cannot be read, STATUS_SYSTEM_ERROR for a server that
 * cannot be reached or trusted; the reason is in the message.
 * Nothing is sent before the server's certificate was verified for the requested host. */
#ifndef CLIENT_NET_TLS_STREAM_H
#define CLIENT_NET_TLS_STREAM_H

#include <stddef.h>
#include <sys/types.h>

#include "base/slice.h"
#include "spec/codes.h"

#define TLS_STREAM_MESSAGE_MAX 400

struct tls_stream;

struct tls_stream_message {
    char text[TLS_STREAM_MESSAGE_MAX];
};

struct tls_stream_options {
    int socket;
    const char *host;    /* a name or an address, as in the URL */
    const char *ca_file; /* PEM of the authorities to trust; NULL: the system's */
    int timeout_ms;
};

enum tls_step { TLS_STEP_DONE, TLS_STEP_READ, TLS_STEP_WRITE, TLS_STEP_FAILED };

/* Begins without I/O. Then call tls_stream_step when the socket is ready, until it is done. */
MUST_CHECK enum status tls_stream_begin(struct tls_stream **stream,
                                        const struct tls_stream_options *options,
                                        struct tls_stream_message *message);
/* One step of the handshake. TLS_STEP_READ and TLS_STEP_WRITE: wait until the socket can do so. */
MUST_CHECK enum tls_step tls_stream_step(struct tls_stream *stream, const char *host,
                                         struct tls_stream_message *message);
/* Begins and shakes hands. */
MUST_CHECK enum status tls_stream_open(struct tls_stream **stream,
                                       const struct tls_stream_options *options,
                                       struct tls_stream_message *message);
/* Notifies the server if that is possible without blocking. */
void tls_stream_close(struct tls_stream *stream);
/* On error errno is set: EAGAIN to call again when the socket is ready, EPROTO for a TLS error. */
MUST_CHECK ssize_t tls_stream_recv(struct tls_stream *stream, char *memory, size_t size);
/* After EAGAIN the same bytes must come again. */
MUST_CHECK ssize_t tls_stream_send(struct tls_stream *stream, const char *data, size_t size);

#endif
