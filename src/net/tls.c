/* OpenSSL reads and writes through a BIO of our own: its read takes from the input of the call
 * under way, its write appends to out. So OpenSSL never waits for a socket, and the transport
 * decides when bytes move. */
#include "net/tls.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"

/* The most that a record adds to its plaintext. */
#define RECORD_EXTRA_BYTES 64
/* Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else. */
#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20"

struct tls_context {
    pthread_mutex_t lock; /* guards current while a session takes a reference */
    SSL_CTX *current;
    BIO_METHOD *method;
    struct tls_options options;
    int64_t not_after_s;
};

/* ---- the BIO ---- */

static int bio_read(BIO *bio, char *memory, int size) {
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->input.size == 0 || tls->is_flooding) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t taken = tls->input.size < (size_t)size ? tls->input.size : (size_t)size;
    memcpy(memory, tls->input.data, taken);
    tls->input = slice_from(tls->input, taken);
    return (int)taken;
}

static int bio_write(BIO *bio, const char *data, int size) {
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    /* No retry: a peer that forces more answers than it reads ends its session. */
    return buffer_append(&tls->out, data, (size_t)size) == STATUS_OK ? size : -1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *bio_method_make(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "khala");
    if (!method)
        return NULL;
    if (BIO_meth_set_read(method, bio_read) == 1 && BIO_meth_set_write(method, bio_write) == 1 &&
        BIO_meth_set_ctrl(method, bio_control) == 1)
        return method;
    BIO_meth_free(method);
    return NULL;
}

/* ---- the context ---- */

__attribute__((format(printf, 2, 3))) static enum status refuse(struct tls_message *message,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof(message->text), format, arguments);
    va_end(arguments);
    return STATUS_INVALID_CONFIG;
}

/* Without this callback OpenSSL would ask the terminal for the passphrase. */
static int no_passphrase(char *memory, int size, int is_writing, void *user) {
    (void)memory;
    (void)size;
    (void)is_writing;
    (void)user;
    return -1;
}

static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_size,
                           const unsigned char *offered, unsigned offered_size, void *user) {
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *found = NULL;
    (void)ssl;
    (void)user;
    if (SSL_select_next_proto(&found, chosen_size, ours, sizeof(ours) - 1, offered, offered_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

/* OpenSSL handles such messages inside one read, as many as the input holds. It calls this before
 * it handles one; the BIO then gives it no more input once the peer has no message left. Alerts of
 * our own count too: OpenSSL answers a renegotiation with one, and reports no message. */
static void on_message(int is_written, int version, int type, const void *bytes, size_t size,
                       SSL *ssl, void *user) {
    struct tls *tls = user;
    (void)version;
    (void)bytes;
    (void)size;
    (void)ssl;
    if (!tls || !(type == SSL3_RT_ALERT || (type == SSL3_RT_HANDSHAKE && !is_written)))
        return;
    tls->is_flooding = tls->is_flooding || tls->control_left == 0;
    if (tls->control_left > 0)
        tls->control_left--;
}

static bool set_rules(SSL_CTX *made, enum tls_version version_min) {
    SSL_CTX_set_options(made, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_RENEGOTIATION |
                                  SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(made, SSL_MODE_RELEASE_BUFFERS);
    /* Tickets keep a session's state at the peer. A cache would be state that loops share. */
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(made, no_passphrase);
    SSL_CTX_set_alpn_select_cb(made, choose_protocol, NULL);
    SSL_CTX_set_msg_callback(made, on_message);
    return SSL_CTX_set_min_proto_version(made, version_min == TLS_VERSION_1_3 ? TLS1_3_VERSION
                                                                              : TLS1_2_VERSION) &&
           SSL_CTX_set_cipher_list(made, CIPHERS_1_2);
}

static enum status check_readable(const char *path, struct tls_message *message) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return refuse(message, "%s: %s", path, strerror(errno));
    close(file);
    return STATUS_OK;
}

static enum status load_files(SSL_CTX *made, const struct tls_options *options,
                              struct tls_message *message) {
    enum status status = check_readable(options->certificate_file, message);
    if (status == STATUS_OK)
        status = check_readable(options->key_file, message);
    if (status != STATUS_OK)
        return status;
    if (SSL_CTX_use_certificate_chain_file(made, options->certificate_file) != 1)
        return refuse(message, "%s holds no certificates as PEM that can be used: %s",
                      options->certificate_file, tls_failure());
    /* OpenSSL also refuses a key here that does not belong to the certificate. */
    if (SSL_CTX_use_PrivateKey_file(made, options->key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(made) != 1)
        return refuse(message,
                      "%s holds no key as PEM, without a passphrase and of the certificate in %s: "
                      "%s",
                      options->key_file, options->certificate_file, tls_failure());
    return STATUS_OK;
}

static enum status context_make(const struct tls_options *options, SSL_CTX **made,
                                struct tls_message *message) {
    ERR_clear_error();
    *made = SSL_CTX_new(TLS_server_method());
    enum status status = STATUS_OK;
    if (!*made || !set_rules(*made, options->version_min))
        status = refuse(message, "OpenSSL: %s", tls_failure());
    if (status == STATUS_OK)
        status = load_files(*made, options, message);
    if (status != STATUS_OK) {
        SSL_CTX_free(*made);
        *made = NULL;
    }
    return status;
}

static int64_t not_after_s_of(SSL_CTX *made) {
    struct tm end = {.tm_sec = 0};
    const X509 *certificate = SSL_CTX_get0_certificate(made);
    if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1)
        return 0;
    return timegm(&end);
}

/* Takes over made, also on failure. */
static enum status context_of(SSL_CTX *made, struct tls_context **context) {
    struct tls_context *opened = calloc(1, sizeof(*opened));
    if (opened)
        opened->method = bio_method_make();
    if (!opened || !opened->method) {
        free(opened);
        SSL_CTX_free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&opened->lock, NULL);
    opened->current = made;
    *context = opened;
    return STATUS_OK;
}

enum status tls_context_open(struct tls_context **context, const struct tls_options *options,
                             struct tls_message *message) {
    SSL_CTX *made;
    enum status status = context_make(options, &made, message);
    if (status == STATUS_OK)
        status = context_of(made, context);
    if (status != STATUS_OK)
        return status;
    (*context)->options = *options;
    (*context)->not_after_s = not_after_s_of(made);
    return STATUS_OK;
}

enum status tls_context_open_client(struct tls_context **context, const char *ca_file,
                                    struct tls_message *message) {
    ERR_clear_error();
    SSL_CTX *made = SSL_CTX_new(TLS_client_method());
    bool is_set = made && SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION) == 1;
    if (is_set) {
        SSL_CTX_set_verify(made, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_mode(made, SSL_MODE_RELEASE_BUFFERS);
    }
    if (is_set && ca_file) {
        /* A named file is trusted as it is: it may hold the server's own certificate. */
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(made), X509_V_FLAG_PARTIAL_CHAIN);
        is_set = SSL_CTX_load_verify_file(made, ca_file) == 1;
    } else if (is_set) {
        is_set = SSL_CTX_set_default_verify_paths(made) == 1;
    }
    if (is_set)
        return context_of(made, context);
    SSL_CTX_free(made);
    return refuse(message, "%s holds no certificates as PEM that can be used: %s",
                  ca_file ? ca_file : "the system's folder", tls_failure());
}

void tls_context_close(struct tls_context *context) {
    if (!context)
        return;
    SSL_CTX_free(context->current);
    BIO_meth_free(context->method);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

enum status tls_context_reload(struct tls_context *context, struct tls_message *message) {
    SSL_CTX *made;
    enum status status = context_make(&context->options, &made, message);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&context->lock);
    SSL_CTX *previous = context->current;
    context->current = made;
    pthread_mutex_unlock(&context->lock);
    context->not_after_s = not_after_s_of(made);
    SSL_CTX_free(previous);
    return STATUS_OK;
}

int64_t tls_context_not_after_s(const struct tls_context *context) {
    return context->not_after_s;
}

/* ---- sessions ---- */

static enum status session_make(struct tls *tls, struct tls_context *context) {
    *tls = (struct tls){.ssl = NULL, .control_left = TLS_CONTROL_MAX};
    buffer_init(&tls->out, TLS_OUT_BYTES_MAX);
    BIO *bio = BIO_new(context->method);
    if (!bio)
        return STATUS_OUT_OF_MEMORY;
    pthread_mutex_lock(&context->lock);
    tls->ssl = SSL_new(context->current);
    pthread_mutex_unlock(&context->lock);
    if (!tls->ssl) {
        BIO_free(bio);
        return STATUS_OUT_OF_MEMORY;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_msg_callback_arg(tls->ssl, tls);
    return STATUS_OK;
}

enum status tls_init(struct tls *tls, struct tls_context *context) {
    enum status status = session_make(tls, context);
    if (status == STATUS_OK)
        SSL_set_accept_state(tls->ssl);
    return status;
}

/* An address has no name that could be sent. It is looked for among the certificate's addresses. */
static bool expect_host(SSL *ssl, const char *host) {
    static const unsigned char protocols[] = "\x08http/1.1";
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    bool is_address = address != NULL;
    ASN1_OCTET_STRING_free(address);
    ERR_clear_error();
    if (SSL_set_alpn_protos(ssl, protocols, sizeof(protocols) - 1) != 0)
        return false;
    if (is_address)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

enum status tls_init_to(struct tls *tls, struct tls_context *context, const char *host) {
    enum status status = session_make(tls, context);
    if (status != STATUS_OK)
        return status;
    SSL_set_connect_state(tls->ssl);
    if (!expect_host(tls->ssl, host))
        return STATUS_OUT_OF_MEMORY;
    /* The handshake waits for the server's first bytes. */
    (void)SSL_do_handshake(tls->ssl);
    return tls->out.size > 0 ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

void tls_release(struct tls *tls) {
    SSL_free(tls->ssl);
    tls->ssl = NULL;
    buffer_release(&tls->out);
}

bool tls_is_open(const struct tls *tls) {
    return SSL_is_init_finished(tls->ssl) == 1;
}

enum tls_step tls_receive(struct tls *tls, struct slice input, char *memory, size_t memory_size,
                          size_t *size) {
    assert(memory_size >= input.size + TLS_RECORD_BYTES);
    *size = 0;
    if (tls->is_failed)
        return TLS_STEP_FAILED;
    ERR_clear_error();
    tls->input = input;
    tls->records = 0;
    int error = SSL_ERROR_NONE;
    while (error == SSL_ERROR_NONE) {
        size_t taken = 0;
        int result = SSL_read_ex(tls->ssl, memory + *size, memory_size - *size, &taken);
        *size += taken;
        tls->records++;
        error = SSL_get_error(tls->ssl, result);
    }
    bool is_whole = tls->input.size == 0;
    tls->input = (struct slice){NULL, 0};
    if (error == SSL_ERROR_WANT_READ && is_whole && !tls->is_flooding)
        return TLS_STEP_MORE;
    if (error == SSL_ERROR_ZERO_RETURN)
        return TLS_STEP_ENDED;
    tls->is_failed = true;
    return TLS_STEP_FAILED;
}

enum status tls_send(struct tls *tls, struct slice plaintext) {
    assert(plaintext.size > 0 && plaintext.size <= TLS_BATCH_BYTES_MAX);
    size_t records = plaintext.size / TLS_RECORD_BYTES + 1;
    size_t written = 0;
    ERR_clear_error();
    /* Reserved once, so that the buffer does not grow by doubling. */
    enum status status = buffer_reserve(&tls->out, plaintext.size + records * RECORD_EXTRA_BYTES);
    if (status != STATUS_OK || tls->is_failed)
        return STATUS_SYSTEM_ERROR;
    if (SSL_write_ex(tls->ssl, plaintext.data, plaintext.size, &written) == 1 &&
        written == plaintext.size)
        return STATUS_OK;
    tls->is_failed = true;
    return STATUS_SYSTEM_ERROR;
}

void tls_end(struct tls *tls) {
    if (tls->is_failed || !tls_is_open(tls))
        return;
    ERR_clear_error();
    (void)SSL_shutdown(tls->ssl);
}

const char *tls_distrust(const struct tls *tls) {
    long verdict = SSL_get_verify_result(tls->ssl);
    return verdict == X509_V_OK ? NULL : X509_verify_cert_error_string(verdict);
}

const char *tls_failure(void) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    return reason ? reason : "no reason given";
}
