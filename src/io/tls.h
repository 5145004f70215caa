/* TLS as a codec: a context with the certificate in force, and sessions that turn the peer's bytes
 * into plaintext and plaintext into bytes for the peer. No I/O, no time.
 * tls_context_open, _reload and _close belong to the main thread; tls_init to any; a session to
 * its connection's loop.
 * Memory: a session that idles holds no buffer. It keeps the certificate it began with, which goes
 * with its last session. The context outlives its sessions.
 * STATUS_INVALID_CONFIG for files that cannot be used, with the reason in the message. What a peer
 * does wrong is TLS_STEP_FAILED; the alert that tells it so is in out.
 * out holds whatever must reach the peer, in order, and never more than TLS_OUT_BYTES_MAX. */
#ifndef IO_TLS_H
#define IO_TLS_H

#include <openssl/types.h>

#include "base/buffer.h"
#include "base/slice.h"

#define TLS_RECORD_BYTES (16u << 10)
#define TLS_MESSAGE_MAX  768

struct tls_context;

struct tls_message {
    char text[TLS_MESSAGE_MAX];
};

enum tls_version { TLS_VERSION_1_2, TLS_VERSION_1_3 };

/* The texts outlive the context. */
struct tls_options {
    const char *certificate_file; /* PEM, the server's own first, then its issuers */
    const char *key_file;         /* PEM, without a passphrase */
    enum tls_version version_min;
};

MUST_CHECK enum status tls_context_open(struct tls_context **context,
                                        const struct tls_options *options,
                                        struct tls_message *message);
void tls_context_close(struct tls_context *context);
/* Reads the files again, for sessions to come. When they cannot be used nothing changes. */
MUST_CHECK enum status tls_context_reload(struct tls_context *context, struct tls_message *message);
/* When the certificate in force ends, in seconds since 1970. */
int64_t tls_context_not_after_s(const struct tls_context *context);

struct tls {
    SSL *ssl;
    struct slice input; /* what of the peer's bytes is still to be taken; only within a call */
    struct buffer out;
    bool is_failed;
};

/* A session of one who connected. It must not move. */
MUST_CHECK enum status tls_init(struct tls *tls, struct tls_context *context);
void tls_release(struct tls *tls);

enum tls_step {
    TLS_STEP_MORE,   /* the peer will say more */
    TLS_STEP_ENDED,  /* it said that it will not */
    TLS_STEP_FAILED, /* nothing more can be understood */
};

/* Takes all of the input. What it held goes to memory, which has TLS_RECORD_BYTES more than the
 * input: a record that was begun before may end in it. */
MUST_CHECK enum tls_step tls_receive(struct tls *tls, struct slice input, char *memory,
                                     size_t memory_size, size_t *size);
/* The handshake is over: plaintext may go both ways. */
bool tls_is_open(const struct tls *tls);
/* Appends to out. Anything but STATUS_OK is the session's end. */
MUST_CHECK enum status tls_send(struct tls *tls, struct slice plaintext);
/* Nothing more will be sent; says so in out, where that can be said. */
void tls_end(struct tls *tls);
/* Why it failed, for people. */
const char *tls_failure(void);

#endif
