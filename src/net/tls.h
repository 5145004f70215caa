/* TLS as a codec: a context with the current certificate, and sessions that decrypt the peer's
 * bytes and encrypt ours. It does no I/O and reads no clock.
 * Thread: tls_context_open, _reload and _close: the main thread. tls_init: any. A session: its
 * connection's loop.
 * Memory: an idle session holds no buffer. It keeps the certificate it started with. The context
 * outlives its sessions.
 * Errors: STATUS_INVALID_CONFIG for unusable files, with the reason in the message.
 * TLS_STEP_FAILED for a peer that breaks the protocol; out then holds the alert.
 * Invariant: out holds the bytes for the peer, in order, and never more than TLS_OUT_BYTES_MAX. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <openssl/types.h>

#include "base/buffer.h"
#include "base/slice.h"

#define TLS_RECORD_BYTES (16u << 10)
/* Handshake messages and alerts that a peer may send at once. A handshake takes at most ten. A
 * KeyUpdate of 27 bytes costs the receiver two derivations of keys, and an honest peer sends one in
 * hours. So the owner of a session adds one message a second, and no more than this number. */
#define TLS_CONTROL_MAX 16
#define TLS_MESSAGE_MAX 768

struct tls_context;

struct tls_message {
    char text[TLS_MESSAGE_MAX];
};

enum tls_version { TLS_VERSION_1_2, TLS_VERSION_1_3 };

/* The texts outlive the context. */
struct tls_options {
    const char *certificate_file; /* PEM: the server's certificate, then its issuers */
    const char *key_file;         /* PEM, without a passphrase */
    enum tls_version version_min;
};

MUST_CHECK enum status tls_context_open(struct tls_context **context,
                                        const struct tls_options *options,
                                        struct tls_message *message);
/* For sessions with servers. Their certificates must come from an authority of the file, or, if it
 * is NULL, from one that the system trusts. */
MUST_CHECK enum status tls_context_open_client(struct tls_context **context, const char *ca_file,
                                               struct tls_message *message);
void tls_context_close(struct tls_context *context);
/* Reads the files again, for new sessions. Unusable files change nothing. */
MUST_CHECK enum status tls_context_reload(struct tls_context *context, struct tls_message *message);
/* When the current certificate expires, in seconds since 1970. */
int64_t tls_context_not_after_s(const struct tls_context *context);

struct tls {
    SSL *ssl;
    struct slice input; /* the peer's bytes that OpenSSL has not read yet; only within a call */
    struct buffer out;
    bool is_failed;
    bool is_flooding;      /* the session failed because the peer had no message left */
    unsigned control_left; /* messages other than data that the peer may still send */
    unsigned records;      /* records of data in the last input */
};

/* The session of an accepted connection. It must not move in memory. */
MUST_CHECK enum status tls_init(struct tls *tls, struct tls_context *context);
/* The session with a server, of a context for clients. out holds the first bytes for it. */
MUST_CHECK enum status tls_init_to(struct tls *tls, struct tls_context *context, const char *host);
void tls_release(struct tls *tls);

enum tls_step {
    TLS_STEP_MORE,   /* the peer may send more */
    TLS_STEP_ENDED,  /* the peer announced that it sends no more */
    TLS_STEP_FAILED, /* the peer broke the protocol, or is_flooding */
};

/* Takes all of the input and writes the plaintext to memory. memory must be TLS_RECORD_BYTES larger
 * than the input, because a record that started in an earlier input may end in this one. */
MUST_CHECK enum tls_step tls_receive(struct tls *tls, struct slice input, char *memory,
                                     size_t memory_size, size_t *size);
/* The handshake is complete: plaintext may go both ways. */
bool tls_is_open(const struct tls *tls);
/* Appends the encrypted text to out. Any error ends the session. */
MUST_CHECK enum status tls_send(struct tls *tls, struct slice plaintext);
/* Appends the close alert to out, if the session is open. */
void tls_end(struct tls *tls);
/* Why the peer's certificate is not trusted, for people; NULL if it is, or has not come. */
const char *tls_distrust(const struct tls *tls);
/* The reason of the last failure on this thread, for people. */
const char *tls_failure(void);

#endif
