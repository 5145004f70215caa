#include "client/net/tls_stream.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

struct tls_stream {
    int socket;
    SSL_CTX *context;
    BIO_METHOD *method;
    SSL *ssl;
};

__attribute__((format(printf, 3, 4))) static enum status
refuse(enum status status, struct tls_stream_message *message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof(message->text), format, arguments);
    va_end(arguments);
    return status;
}

static const char *reason(void) {
    unsigned long code = ERR_peek_last_error();
    const char *text = code != 0 ? ERR_reason_error_string(code) : NULL;
    return text ? text : "the server ended the connection";
}

/* ---- the socket: OpenSSL's own would die of SIGPIPE ---- */

static bool is_later(void) {
    return errno == EAGAIN || errno == EINTR;
}

static int socket_read(BIO *bio, char *memory, int size) {
    const struct tls_stream *stream = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t got = recv(stream->socket, memory, (size_t)size, 0);
    if (got < 0 && is_later())
        BIO_set_retry_read(bio);
    return (int)got;
}

static int socket_write(BIO *bio, const char *data, int size) {
    const struct tls_stream *stream = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t sent = send(stream->socket, data, (size_t)size, MSG_NOSIGNAL);
    if (sent < 0 && is_later())
        BIO_set_retry_write(bio);
    return (int)sent;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static bool attach_socket(struct tls_stream *stream) {
    stream->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (!stream->method || BIO_meth_set_read(stream->method, socket_read) != 1 ||
        BIO_meth_set_write(stream->method, socket_write) != 1 ||
        BIO_meth_set_ctrl(stream->method, socket_control) != 1)
        return false;
    BIO *bio = BIO_new(stream->method);
    if (!bio)
        return false;
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(stream->ssl, bio, bio);
    return true;
}

/* ---- opening ---- */

static enum status set_trust(struct tls_stream *stream, const char *ca_file,
                             struct tls_stream_message *message) {
    SSL_CTX_set_verify(stream->context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_min_proto_version(stream->context, TLS1_2_VERSION) != 1)
        return refuse(STATUS_SYSTEM_ERROR, message, "OpenSSL: %s", reason());
    int result = ca_file ? SSL_CTX_load_verify_file(stream->context, ca_file)
                         : SSL_CTX_set_default_verify_paths(stream->context);
    /* A named file is trusted as it is: it may hold the server's own certificate, as in curl. */
    if (ca_file)
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(stream->context), X509_V_FLAG_PARTIAL_CHAIN);
    if (result == 1)
        return STATUS_OK;
    return refuse(STATUS_INVALID_CONFIG, message, "%s holds no certificates as PEM: %s",
                  ca_file ? ca_file : "the system's folder", reason());
}

/* An address has no name that could be sent, and is looked for among the certificate's addresses.
 */
static bool expect_host(struct tls_stream *stream, const char *host) {
    static const unsigned char protocols[] = "\x08http/1.1";
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    bool is_address = address != NULL;
    ASN1_OCTET_STRING_free(address);
    ERR_clear_error();
    if (SSL_set_alpn_protos(stream->ssl, protocols, sizeof(protocols) - 1) != 0)
        return false;
    if (is_address)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream->ssl), host) == 1;
    return SSL_set1_host(stream->ssl, host) == 1 &&
           SSL_set_tlsext_host_name(stream->ssl, host) == 1;
}

static enum status prepare(struct tls_stream *stream, const struct tls_stream_options *options,
                           struct tls_stream_message *message) {
    stream->socket = options->socket;
    stream->context = SSL_CTX_new(TLS_client_method());
    if (!stream->context)
        return refuse(STATUS_OUT_OF_MEMORY, message, "OpenSSL: %s", reason());
    enum status status = set_trust(stream, options->ca_file, message);
    if (status != STATUS_OK)
        return status;
    SSL_CTX_set_mode(stream->context, SSL_MODE_ENABLE_PARTIAL_WRITE);
    stream->ssl = SSL_new(stream->context);
    if (!stream->ssl || !attach_socket(stream) || !expect_host(stream, options->host))
        return refuse(STATUS_OUT_OF_MEMORY, message, "OpenSSL: %s", reason());
    return STATUS_OK;
}

static void refuse_handshake(const struct tls_stream *stream, const char *host,
                             struct tls_stream_message *message) {
    long verdict = SSL_get_verify_result(stream->ssl);
    if (verdict != X509_V_OK)
        (void)refuse(STATUS_SYSTEM_ERROR, message,
                     "the certificate of %s is not trusted: %s; --ca or KHALA_CA_FILE names the "
                     "authority",
                     host, X509_verify_cert_error_string(verdict));
    else
        (void)refuse(STATUS_SYSTEM_ERROR, message, "no TLS with %s: %s", host, reason());
}

enum status tls_stream_begin(struct tls_stream **stream, const struct tls_stream_options *options,
                             struct tls_stream_message *message) {
    struct tls_stream *begun = calloc(1, sizeof(*begun));
    if (!begun)
        return refuse(STATUS_OUT_OF_MEMORY, message, "no memory");
    ERR_clear_error();
    enum status status = prepare(begun, options, message);
    if (status == STATUS_OK)
        *stream = begun;
    else
        tls_stream_close(begun);
    return status;
}

enum tls_step tls_stream_step(struct tls_stream *stream, const char *host,
                              struct tls_stream_message *message) {
    assert(stream);
    ERR_clear_error();
    int result = SSL_connect(stream->ssl);
    if (result == 1)
        return TLS_STEP_DONE;
    int wanted = SSL_get_error(stream->ssl, result);
    if (wanted == SSL_ERROR_WANT_READ)
        return TLS_STEP_READ;
    if (wanted == SSL_ERROR_WANT_WRITE)
        return TLS_STEP_WRITE;
    refuse_handshake(stream, host, message);
    return TLS_STEP_FAILED;
}

static enum status shake_hands(struct tls_stream *stream, const struct tls_stream_options *options,
                               struct tls_stream_message *message) {
    for (;;) {
        enum tls_step step = tls_stream_step(stream, options->host, message);
        if (step == TLS_STEP_DONE)
            return STATUS_OK;
        if (step == TLS_STEP_FAILED)
            return STATUS_SYSTEM_ERROR;
        struct pollfd wait = {stream->socket, step == TLS_STEP_READ ? POLLIN : POLLOUT, 0};
        if (poll(&wait, 1, options->timeout_ms) == 0)
            return refuse(STATUS_SYSTEM_ERROR, message, "no TLS with %s: it said nothing for %d s",
                          options->host, options->timeout_ms / 1000);
    }
}

enum status tls_stream_open(struct tls_stream **stream, const struct tls_stream_options *options,
                            struct tls_stream_message *message) {
    struct tls_stream *opened = NULL;
    enum status status = tls_stream_begin(&opened, options, message);
    if (status == STATUS_OK)
        status = shake_hands(opened, options, message);
    if (status == STATUS_OK)
        *stream = opened;
    else
        tls_stream_close(opened);
    return status;
}

void tls_stream_close(struct tls_stream *stream) {
    if (!stream)
        return;
    ERR_clear_error();
    if (stream->ssl && SSL_is_init_finished(stream->ssl))
        (void)SSL_shutdown(stream->ssl);
    SSL_free(stream->ssl);
    SSL_CTX_free(stream->context);
    BIO_meth_free(stream->method);
    free(stream);
}

/* ---- using it ---- */

/* What SSL_read or SSL_write answered, as recv or send would. */
static ssize_t outcome(const struct tls_stream *stream, int result, size_t size) {
    int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(stream->ssl, result);
    int because = errno;
    if (error == SSL_ERROR_NONE)
        return (ssize_t)size;
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        because = EAGAIN;
    else if (error != SSL_ERROR_SYSCALL || because == 0)
        because = EPROTO;
    errno = because;
    return -1;
}

ssize_t tls_stream_recv(struct tls_stream *stream, char *memory, size_t size) {
    size_t got = 0;
    ERR_clear_error();
    errno = 0;
    int result = SSL_read_ex(stream->ssl, memory, size, &got);
    return outcome(stream, result, got);
}

ssize_t tls_stream_send(struct tls_stream *stream, const char *data, size_t size) {
    size_t sent = 0;
    assert(size > 0);
    ERR_clear_error();
    errno = 0;
    int result = SSL_write_ex(stream->ssl, data, size, &sent);
    return outcome(stream, result, sent);
}
